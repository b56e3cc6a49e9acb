"""Weights to PyTorch and back: both networks must say the same of the same samples.

For each model, in both element types:
  1. `dahl train --save`, `dahl export --module`: PyTorch loads the module and the
     weights; its logits are compared with `dahl predict --json`;
  2. PyTorch makes weights and writes its state dict; `dahl predict` and `dahl eval`
     read it; logits and loss are compared; `dahl train --init` starts from it.

The error of logits is the largest difference over the largest magnitude; the limit
is 1e-5 for f32 and 1e-13 for f64, some hundred units of the last place: the two sum
in different orders, thousands of terms an element in resnet18, 20 layers deep. In
direction 2 each computes the statistics that samples are normalised by on its own and
rounds them to f32, which may differ in the last bit: the limit of f64 is 1e-6 there.

    cargo build --release
    python scripts/exchange.py [--dahl target/release/dahl] [--samples 4] [MODEL …]

Needs torch, numpy and safetensors. Ends with 1 where a limit is exceeded.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

MODELS = ["lenet", "vgg-small", "resnet18", "mlp", "digits-cnn", "seed-cnn"]
LIMITS = {"f32": (1e-5, 1e-5), "f64": (1e-13, 1e-6)}
DTYPES = {"f32": torch.float32, "f64": torch.float64}
CLASSES = 10


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, args))}: code {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def load_module(path):
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_samples(directory, shape, samples):
    """A dataset of arrays, whose parts are all different; the test part."""
    rng = np.random.default_rng(7)
    for part in ("train", "test"):
        x = rng.random((samples, *shape), dtype=np.float32)
        y = np.arange(samples, dtype=np.int64) % CLASSES
        np.save(directory / f"{part}-images.npy", x)
        np.save(directory / f"{part}-labels.npy", y)
    return x, y


def logits(network, x, mean, std, shape, dtype):
    # As dahl: in the network's precision, by channel or, without channels, by feature.
    axes = (-1, 1, 1) if x.ndim == 4 else (-1,)
    mean, std = (torch.tensor(v, dtype=dtype).reshape(axes) for v in (mean, std))
    x = ((torch.from_numpy(x).to(dtype) - mean) / std).reshape(-1, *shape)
    with torch.no_grad():
        return network.eval()(x).double().numpy()


def distance(found, expected):
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def predicted(dahl, *args):
    return np.array([line["logits"] for line in run(dahl, "predict", "--json", *args)])


def randomise(network, generator):
    """Weights and statistics that no layer starts with."""
    for name, value in network.state_dict().items():
        if name.endswith("running_var"):
            value.uniform_(0.5, 1.5, generator=generator)
        elif value.is_floating_point():
            value.add_(0.02 * torch.randn(value.shape, generator=generator, dtype=value.dtype))
        else:
            value.fill_(3)


def exchange(dahl, model, dtype, samples, directory):
    """The errors of both directions."""
    about = run(dahl, "models", model, "--json")[0]
    x, y = make_samples(directory, about["input"], samples)
    common = ["--data", directory, "--dtype", dtype]
    ours, ported = directory / "ours.safetensors", directory / "ported.safetensors"
    run(dahl, "train", *common, "--model", model, "--epochs", 1, "--quiet", "--save", ours)
    run(dahl, "export", "--weights", ours, "--dtype", dtype, "--to", ported,
        "--module", directory / "exported.py")
    module = load_module(directory / "exported.py")
    network = module.load(str(ported))
    expected = logits(network, x, module.MEAN, module.STD, module.INPUT, DTYPES[dtype])
    out = distance(predicted(dahl, "--weights", ours, "--dtype", dtype), expected)

    generator = torch.Generator().manual_seed(5)
    network = module.model().to(DTYPES[dtype])
    randomise(network, generator)
    theirs = directory / "theirs.safetensors"
    save_file(network.state_dict(), str(theirs))
    train = np.load(directory / "train-images.npy").astype(np.float64)
    axes = (0, 2, 3) if train.ndim == 4 else 0
    mean, std = train.mean(axes), train.std(axes)
    expected = logits(network, x, mean, std, module.INPUT, DTYPES[dtype])
    known = [*common, "--model", model, "--weights", theirs]
    back = distance(predicted(dahl, *known), expected)
    loss = run(dahl, "eval", *known, "--json")[0]["loss"]
    reference = torch.nn.functional.cross_entropy(torch.from_numpy(expected), torch.from_numpy(y))
    back = max(back, abs(loss / float(reference) - 1))
    run(dahl, "train", *common, "--model", model, "--epochs", 1, "--quiet", "--init", theirs)
    return out, back


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--dahl", type=Path, default=Path("target/release/dahl"))
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--dtype", choices=LIMITS, nargs="*", default=list(LIMITS))
    args = parser.parse_args()
    failed = 0
    print(f"torch {torch.__version__}\nmodel       dtype  to PyTorch   limit  to dahl   limit")
    for model in args.models:
        for dtype in args.dtype:
            out_limit, back_limit = LIMITS[dtype]
            with tempfile.TemporaryDirectory() as directory:
                out, back = exchange(args.dahl, model, dtype, args.samples, Path(directory))
            wrong = not (out <= out_limit and back <= back_limit)
            failed += wrong
            print(f"{model:11} {dtype:5} {out:11.1e} {out_limit:7.0e} {back:8.1e} {back_limit:7.0e}"
                  f"{'  FAIL' if wrong else ''}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
