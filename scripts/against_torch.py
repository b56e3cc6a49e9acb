"""The same training in dahl and in PyTorch: the same start, samples, order and recipe.

diverge   Trains in double precision, in dahl and twice in PyTorch: as usual and with
          images in the channels-last format, where the same sums are taken in another
          order. Two runs that round differently drift apart, so the distance between
          PyTorch's two runs is the measure: dahl may be at most ten times as far.
accuracy  Trains with several seeds from PyTorch's initial weights, each side with its
          own order of the samples, and compares the accuracies on the test samples. The
          learning rate goes down to 0 along a cosine, step by step: with a constant one
          the accuracy of the last epoch is mostly chance.

    cargo build --release
    python scripts/against_torch.py diverge seed-cnn --data DIR --limit 6000 --epochs 20 --batch 10
    python scripts/against_torch.py diverge resnet18 --data DIR --limit 400 --epochs 1 --batch 8
    python scripts/against_torch.py accuracy lenet --data DIR --epochs 15 --seeds 5 --least 0.9

DIR has the files of MNIST, Fashion-MNIST (IDX) or CIFAR-10 (binary), gzipped or not.
Needs torch, numpy and safetensors. Ends with 1 where dahl is too far.
"""

import argparse
import gzip
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

DTYPES = {"f32": torch.float32, "f64": torch.float64}


def read(directory, *names):
    for name in names:
        for path in (directory / name, directory / f"{name}.gz"):
            if path.exists():
                data = path.read_bytes()
                return gzip.decompress(data) if path.suffix == ".gz" else data
    sys.exit(f"{directory}: expected one of {names}, gzipped or not")


def part(directory, train):
    """Images as f32 between 0 and 1, and labels."""
    name = "train" if train else "t10k"
    if any(directory.glob("*idx3*")):
        images = np.frombuffer(read(directory, f"{name}-images-idx3-ubyte"), np.uint8, offset=16)
        labels = np.frombuffer(read(directory, f"{name}-labels-idx1-ubyte"), np.uint8, offset=8)
        images = images.reshape(len(labels), 1, 28, 28)
    else:
        files = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
        files = [f for f in files if any(directory.glob(f + "*"))]
        rows = np.concatenate([np.frombuffer(read(directory, f), np.uint8) for f in files])
        rows = rows.reshape(-1, 3073)
        images, labels = rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]
    return images.astype(np.float32) / np.float32(255), labels.astype(np.int64)


def dahl(args, *rest):
    command = [args.dahl, *map(str, rest)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: code {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def recipe(args):
    flags = ["--optimizer", args.optimizer, "--lr", args.lr, "--batch", args.batch]
    flags += ["--momentum", args.momentum] if args.momentum else []
    flags += ["--limit", args.limit] if args.limit else []
    flags += ["--workers", args.threads] if args.threads else []
    flags += ["--schedule", args.schedule]
    return [*flags, "--dtype", args.dtype, "--epochs", args.epochs]


def optimizer(args, network):
    if args.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), args.lr, momentum=args.momentum)
    return torch.optim.Adam(network.parameters(), args.lr)


class Case:
    """The network as PyTorch has it, and the samples as dahl prepares them."""

    def __init__(self, args, directory):
        self.args, self.directory = args, directory
        weights, module = directory / "any.safetensors", directory / "network.py"
        data = ["--model", args.model, "--data", args.data]
        dahl(args, "train", *data, "--limit", 2, "--epochs", 1, "--dtype", args.dtype,
             "--no-run", "--save", weights, "--json")
        dahl(args, "export", "--weights", weights, "--module", module,
             "--to", directory / "other.safetensors")
        spec = importlib.util.spec_from_file_location("network", module)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        with safe_open(weights, "pt") as file:
            card = file.metadata()
        self.mean, self.std = (np.float32(json.loads(card[k])) for k in ("dahl.mean", "dahl.std"))

    def samples(self, train):
        images, labels = part(Path(self.args.data), train)
        if self.args.limit:
            images, labels = images[: self.args.limit], labels[: self.args.limit]
        axes = (1, -1, 1, 1)
        images = (images - self.mean.reshape(axes)) / self.std.reshape(axes)
        images = images.reshape(len(labels), *self.module.INPUT)
        return torch.from_numpy(images).to(DTYPES[self.args.dtype]), torch.from_numpy(labels)

    def network(self, seed):
        """A fresh network, and its weights as a file."""
        torch.manual_seed(seed)
        network = self.module.model().to(DTYPES[self.args.dtype])
        path = self.directory / f"start-{seed}.safetensors"
        save_file({k: v.contiguous() for k, v in network.state_dict().items()}, path)
        return network, path


def falling(args, optimizer, samples):
    """The rate of each step, as dahl's schedule has it."""
    steps = args.epochs * -(-samples // args.batch)
    if args.schedule == "constant":
        return torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


def epoch(network, step, images, labels, order, batch, rate=None):
    network.train()
    total = 0.0
    for i in range(0, len(order), batch):
        chosen = order[i : i + batch]
        step.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(network(images[chosen]), labels[chosen])
        loss.backward()
        step.step()
        if rate:
            rate.step()
        total += loss.item() * len(chosen)
    return total / len(order)


def accuracy(network, images, labels, batch=1000):
    network.eval()
    with torch.no_grad():
        right = sum(
            (network(images[i : i + batch]).argmax(1) == labels[i : i + batch]).sum().item()
            for i in range(0, len(labels), batch)
        )
    return right / len(labels)


def distance(ours, theirs):
    """The largest difference over the largest magnitude, of the worst tensor."""
    def of(a, b):
        return ((a - b).abs().max() / b.abs().max().clamp_min(1e-300)).item()

    return max(of(ours[k].double(), v.double()) for k, v in theirs.items() if v.is_floating_point())


def diverge(args):
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        case = Case(args, directory)
        images, labels = case.samples(True)
        order = torch.arange(len(labels))
        _, start = case.network(args.seed)
        losses, states = {}, {}
        for kind in ("as usual", "channels last"):
            network, _ = case.network(args.seed)
            x = images
            if kind == "channels last":
                network = network.to(memory_format=torch.channels_last)
                x = images.contiguous(memory_format=torch.channels_last)
            step = optimizer(args, network)
            losses[kind] = [
                epoch(network, step, x, labels, order, args.batch) for _ in range(args.epochs)
            ]
            states[kind] = {k: v.contiguous() for k, v in network.state_dict().items()}
        out = directory / "out.safetensors"
        lines = dahl(args, "train", "--model", args.model, "--data", args.data, *recipe(args),
                     "--init", start, "--no-shuffle", "--no-run", "--save", out, "--json")
        losses["dahl"] = [line["loss"] for line in lines if "loss" in line]
        theirs = losses["as usual"]
        print(f"{args.model}, {len(labels)} samples, batch {args.batch}, {args.epochs} epochs, {args.dtype}")
        print("epoch  PyTorch's loss          other format - PyTorch  dahl - PyTorch")
        for i, loss in enumerate(theirs):
            others = [losses[k][i] - loss for k in ("channels last", "dahl")]
            print(f"{i + 1:5}  {loss:<22.17g}  {others[0]:22.1e}  {others[1]:14.1e}")
        found = load_file(out)
        itself = distance(states["channels last"], states["as usual"])
        ours = distance(found, states["as usual"])
        apart = [max(abs(a - b) / b for a, b in zip(losses[k], theirs))
                 for k in ("channels last", "dahl")]
        # Where PyTorch does not differ from itself, the last place does.
        floor = 8 * torch.finfo(DTYPES[args.dtype]).eps
        checks = [("weights", itself, ours), ("losses", *apart)]
        good = True
        for what, reference, distant in checks:
            allowed = 10 * max(reference, floor)
            good &= distant <= allowed
            print(f"{what}: PyTorch from itself {reference:.1e}, dahl from PyTorch {distant:.1e}, "
                  f"allowed {allowed:.1e}: {'pass' if distant <= allowed else 'FAIL'}")
        return good


def compare_accuracy(args):
    with tempfile.TemporaryDirectory() as directory:
        case = Case(args, Path(directory))
        images, labels = case.samples(True)
        test = part(Path(args.data), False)
        axes = (1, -1, 1, 1)
        test_images = (test[0] - case.mean.reshape(axes)) / case.std.reshape(axes)
        test_images = torch.from_numpy(test_images.reshape(len(test[1]), *case.module.INPUT))
        test_images = test_images.to(DTYPES[args.dtype])
        test_labels = torch.from_numpy(test[1])
        rows = []
        print("seed    dahl  PyTorch  seconds of dahl  of PyTorch", flush=True)
        for seed in range(args.seed, args.seed + args.seeds):
            network, start = case.network(seed)
            begin = time.perf_counter()
            lines = dahl(args, "train", "--model", args.model, "--data", args.data, *recipe(args),
                         "--init", start, "--seed", seed, "--no-run", "--json")
            ours = [l["test_accuracy"] for l in lines if "test_accuracy" in l][-1]
            between = time.perf_counter()
            step, random = optimizer(args, network), torch.Generator().manual_seed(seed)
            rate = falling(args, step, len(labels))
            for _ in range(args.epochs):
                order = torch.randperm(len(labels), generator=random)
                epoch(network, step, images, labels, order, args.batch, rate)
            theirs = accuracy(network, test_images, test_labels)
            end = time.perf_counter()
            rows.append((ours, theirs))
            print(f"{seed:4}  {ours:7.2%}  {theirs:7.2%}  {between - begin:15.0f}  {end - between:10.0f}",
                  flush=True)
        ours, theirs = (statistics.median(column) for column in zip(*rows))
        good = ours >= args.least and ours >= theirs - 0.003
        print(f"median  {ours:.2%}  {theirs:.2%}  ({args.model}, {args.epochs} epochs, {args.dtype}, "
              f"{args.optimizer} {args.lr} {args.schedule}): {'pass' if good else 'FAIL'}")
        return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["diverge", "accuracy"])
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--dahl", default="target/release/dahl")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=0, help="10 to diverge, 64 for accuracy")
    parser.add_argument("--lr", type=float, default=0.0, help="0.01 to diverge, 0.001 for accuracy")
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default=None)
    parser.add_argument("--schedule", choices=["constant", "cosine"], default=None)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--dtype", choices=list(DTYPES), default=None)
    parser.add_argument("--seed", type=int, default=0, help="the first, where there are several")
    parser.add_argument("--threads", type=int, default=0, help="of both [default: all]")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--least", type=float, default=0.0, help="the least median accuracy")
    args = parser.parse_args()
    keys = ("batch", "lr", "optimizer", "dtype", "schedule")
    defaults = {
        "diverge": (10, 0.01, "sgd", "f64", "constant"),
        "accuracy": (64, 0.001, "adam", "f32", "cosine"),
    }
    for key, value in zip(keys, defaults[args.what]):
        setattr(args, key, getattr(args, key) or value)
    if args.threads:
        torch.set_num_threads(args.threads)
    sys.exit(0 if {"diverge": diverge, "accuracy": compare_accuracy}[args.what](args) else 1)


if __name__ == "__main__":
    main()
