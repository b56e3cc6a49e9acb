"""The platform of the GPUs that Zeus measured, with a power state a power limit.

    python scripts/platform_from_zeus.py path/to/zeus/trace > platforms/zeus.toml

Reads summary_power_{a40,v100,p100,rtx6000}.csv of github.com/ml-energy/zeus. Needs
nothing but Python.
"""

import argparse
import csv
import statistics
from collections import defaultdict
from pathlib import Path

# The run whose figures are taken: all four GPUs have it, and it keeps them busy.
NETWORK, BATCH = ("imagenet", "resnet50"), 128
# This network leaves GPUs waiting for most of the time: what it draws is no busy watt,
# but about what a GPU draws that waits for work.
WAITING = "ncf"
# ResNet-50 has 4.09e9 multiply-adds an image forwards, and twice that backwards;
# an epoch has all images of ImageNet's training set.
OPERATIONS = 1_281_167 * 3 * 2 * 4.09e9

# What the measurements do not tell: from data sheets, but for the idle watts.
GPUS = {
    "a40": dict(bytes="48 GB", bandwidth=696e9, idle=(30, 15), pcie=25e9),
    "v100": dict(bytes="32 GB", bandwidth=900e9, idle=(30, 22), pcie=12e9),
    "p100": dict(bytes="16 GB", bandwidth=732e9, idle=(28, 22), pcie=12e9),
    "rtx6000": dict(bytes="24 GB", bandwidth=672e9, idle=(22, 12), pcie=12e9),
}

HEAD = """\
#:schema ../docs/platform.schema.json
# Four machines with a GPU each: A40, V100, P100 and RTX6000, with what Zeus (You, Chung
# and Chowdhury 2023) measured of them. Made by scripts/platform_from_zeus.py from
# summary_power_*.csv of github.com/ml-energy/zeus, whose licence is Apache-2.0.
#
# busy_watts, flops and states are of ResNet-50 on ImageNet with a batch of 128: average
# watts, and speed as time an epoch at the highest power limit over that at the limit.
# The limit of each state is its name; without a state the highest limit holds. Low and
# high are the least and the most over all networks but NCF, each with its largest
# batch (of flops: over all batches of ResNet-50). Above 1, speeds are noise of networks
# that the limit does not slow down.
#
# spinning_watts are those of NCF, which leaves a GPU waiting for most of the time, over
# all batches and limits. Memories are from data sheets. All of the rest is guessed: idle
# watts, what else a machine draws, PCI Express, network. The machines' processors are
# no units here.
dahl_platform = 1
name = "GPUs that Zeus measured"
from = "measured"
"""


def read(path):
    """Rows by (dataset, network), batch and power limit; of two optimisers the first."""
    runs = defaultdict(lambda: defaultdict(dict))
    with path.open() as lines:
        for row in csv.DictReader(lines):
            key = (row["dataset"], row["network"])
            point = (float(row["time_per_epoch"]), float(row["average_power"]))
            limits = runs[key][int(row["batch_size"])]
            limits.setdefault(int(row["power_limit"]), point)
    return runs


def number(x, digits):
    return f"{x:.{digits}g}".replace("e+", "e").replace("e-0", "e-").replace("e0", "e")


def figure(value, others, digits, more=""):
    low, high = min([value, *others]), max([value, *others])
    numbers = [number(x, digits) for x in (value, low, high)]
    return "{{ value = {}, low = {}, high = {}{} }}".format(*numbers, more)


def node(name, runs):
    gpu = GPUS[name]
    taken = runs[NETWORK][BATCH]
    busy = [b[max(b)] for key, b in sorted(runs.items()) if key[1] != WAITING]
    waiting = [
        watts
        for key, batches in runs.items()
        if key[1] == WAITING
        for limits in batches.values()
        for _, watts in limits.values()
    ]
    top = max(taken)

    def speed(limits, limit):
        return limits[max(limits)][0] / limits[limit][0]

    def watts(limit):
        return figure(taken[limit][1], [run[limit][1] for run in busy if limit in run], 4)

    flops = [OPERATIONS / limits[max(limits)][0] for limits in runs[NETWORK].values()]
    states = [
        '  {{ name = "{} W", speed = {}, busy_watts = {} }},\n'.format(
            limit,
            figure(speed(taken, limit), [speed(run, limit) for run in busy if limit in run], 4),
            watts(limit),
        )
        for limit in sorted(taken, reverse=True)
        if limit != top
    ]
    idle, least = gpu["idle"]
    guess = ', from = "guess"'
    return f"""
[[node]]
name = "{name}"
base_watts = {figure(100, [60, 250], 3, guess)}

[[node.memory]]
name = "ram"
bytes = "128 GiB"
bandwidth = {figure(80e9, [40e9, 200e9], 3, guess)}

[[node.memory]]
name = "gpu-memory"
bytes = "{gpu["bytes"]}"
bandwidth = {figure(gpu["bandwidth"], [0.8 * gpu["bandwidth"]], 4, ', from = "data sheet"')}

# Up to {top} W.
[[node.unit]]
name = "gpu"
kind = "gpu-{name}"
memory = "gpu-memory"
flops = {figure(OPERATIONS / taken[top][0], flops, 4)}
busy_watts = {watts(top)}
spinning_watts = {figure(statistics.median(waiting), waiting, 4)}
idle_watts = {figure(idle, [least, min(waiting)], 4, guess)}
states = [
{"".join(states)}]

[[node.link]]
name = "pcie"
connects = ["ram", "gpu-memory"]
bandwidth = {figure(gpu["pcie"], [0.8 * gpu["pcie"], 1.25 * gpu["pcie"]], 3, guess)}
latency = {figure(8e-6, [3e-6, 20e-6], 3, guess)}
joules_per_byte = {figure(1e-10, [5e-11, 5e-10], 3, guess)}
shared = "ends"
"""


def link():
    guess = ', from = "guess"'
    names = ", ".join(f'"{name}"' for name in GPUS)
    return f"""
[[link]]
name = "ethernet"
connects = [{names}]
bandwidth = {figure(1.17e9, [1e9, 1.25e9], 3, guess)}
latency = {figure(30e-6, [10e-6, 100e-6], 3, guess)}
joules_per_byte = {figure(1e-8, [2e-9, 3e-8], 3, guess)}
shared = "ends"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", type=Path, help="directory of summary_power_*.csv")
    tables = parser.parse_args().tables
    print(HEAD, end="")
    for name in GPUS:
        print(node(name, read(tables / f"summary_power_{name}.csv")), end="")
    print(link(), end="")


if __name__ == "__main__":
    main()
