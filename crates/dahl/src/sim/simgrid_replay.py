"""Replays a scenario that `dahl simulate --export simgrid` wrote, in SimGrid.

    python3 replay.py [scenario.json]

Needs SimGrid 3.32 with its Python bindings (Debian: python3-simgrid). Prints
makespan in seconds and joules by worker as one JSON object.
"""

import ctypes
import json
import os
import sys

from simgrid import Actor, Engine, Host, Link, LinkInRoute, Mailbox, NetZone, Semaphore, this_actor

library = ctypes.CDLL("libsimgrid.so.3.32")
library.sg_host_by_name.restype = ctypes.c_void_p
library.sg_host_by_name.argtypes = [ctypes.c_char_p]
library.sg_host_get_consumed_energy.restype = ctypes.c_double
library.sg_host_get_consumed_energy.argtypes = [ctypes.c_void_p]
library.sg_host_set_property_value.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]


def main():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenario.json")
    with open(sys.argv[1] if len(sys.argv) > 1 else beside, encoding="utf-8") as file:
        scenario = json.load(file)
    engine = Engine(["replay", "--log=root.thresh:error"])
    library.sg_host_energy_plugin_init()
    Engine.set_config("network/model:CM02")
    Engine.set_config("network/crosstraffic:0")
    # Time in steps of a tenth of a nanosecond, as far as SimGrid goes.
    Engine.set_config("surf/precision:1e-10")
    Engine.set_config("network/TCP-gamma:1e15")
    zone = NetZone.create_full_zone("zone")
    hosts = []
    for i, host in enumerate(scenario["hosts"]):
        hosts.append(zone.create_host(f"worker{i}", host["speed"]))
        watts = f"{host['idle']}:{host['busy']}:{host['busy']}".encode()
        found = library.sg_host_by_name(f"worker{i}".encode())
        library.sg_host_set_property_value(found, b"wattage_per_state", watts)
    # Transfers begin and end at memories.
    memories = {}
    for route in scenario["routes"]:
        for end in (route["from"], route["to"]):
            if end not in memories:
                memories[end] = zone.create_host(f"memory{end}", 1e9)
                found = library.sg_host_by_name(f"memory{end}".encode())
                library.sg_host_set_property_value(found, b"wattage_per_state", b"0:0:0")
    links = {}
    for link in scenario["links"]:
        links[link["id"]] = zone.create_link(f"link{link['id']}", link["bandwidth"])
        links[link["id"]].set_latency(0).seal()
    for i, route in enumerate(scenario["routes"]):
        own = zone.create_link(f"way{i}", route["bandwidth"])
        own.set_latency(route["latency"])
        own.set_sharing_policy(Link.SharingPolicy.FATPIPE, None)
        own.seal()
        way = [LinkInRoute(own)] + [LinkInRoute(links[link]) for link in route["links"]]
        ends = [memories[route[end]].netpoint for end in ("from", "to")]
        zone.add_route(ends[0], ends[1], None, None, way, False)
    zone.seal()

    jobs = scenario["jobs"]
    done = {}
    succs = {i: [] for i in range(len(jobs))}
    for i, job in enumerate(jobs):
        for pred in job["after"]:
            done[pred, i] = Semaphore(0)
            succs[pred].append(i)

    def wait(i):
        for pred in jobs[i]["after"]:
            done[pred, i].acquire()

    def end(i):
        for succ in succs[i]:
            done[i, succ].release()

    def worker(mine):
        for i in mine:
            wait(i)
            if scenario["overhead"] > 0:
                this_actor.execute(scenario["overhead"] * this_actor.get_host().speed)
            this_actor.execute(jobs[i]["flops"])
            end(i)

    def sender(i):
        wait(i)
        Mailbox.by_name(f"transfer{i}").put("bytes", int(jobs[i]["bytes"]))

    def receiver(i):
        Mailbox.by_name(f"transfer{i}").get()
        end(i)

    def collective(i):
        wait(i)
        this_actor.sleep_for(jobs[i]["seconds"])
        end(i)

    lists = {}
    for i, job in enumerate(jobs):
        if "worker" in job:
            lists.setdefault(job["worker"], []).append(i)
        elif "bytes" in job:
            Actor.create(f"send{i}", memories[job["from"]], sender, i)
            Actor.create(f"receive{i}", memories[job["to"]], receiver, i)
        else:
            Actor.create(f"collective{i}", hosts[0], collective, i)
    for number, mine in lists.items():
        Actor.create(f"work{number}", hosts[number], worker, mine)
    engine.run()
    joules = []
    for i in range(len(hosts)):
        found = library.sg_host_by_name(f"worker{i}".encode())
        joules.append(library.sg_host_get_consumed_energy(found))
    print(json.dumps({"makespan": Engine.clock, "joules": joules}))


main()
