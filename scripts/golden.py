"""Writes the golden cases: inputs, and what PyTorch makes of them.

    python scripts/golden.py                     # into crates/dahl/tests/golden
    python scripts/golden.py --out DIR           # somewhere else
    python scripts/golden.py --replay DIR        # checks stored `train` cases against this loop

It needs `torch` and `numpy`. The stored files were made by PyTorch 2.15.0
on a CPU, one thread, deterministic algorithms. Everything is seeded by the
case's name, and files are written without anything that varies, so the same
PyTorch writes the same bytes again; another version may differ in the last
bits, which the tolerances of the tests allow for.

The format: one safetensors file a case; its metadata are strings, lists and
objects as JSON. An op's case has its attributes, its inputs by name, `output`,
`grad_output` and the gradients `grad_<input>`. A `train` case has the model as
a list of layers, the optimiser, `inputs` and `targets`, the parameters before
(`init.*`) and after (`final.*`), the `loss` of every step and the last step's
logits. Step s takes the `batch` samples from (s * batch) mod len(inputs) on;
len(inputs) is a multiple of the batch, so no batch wraps inside.

Values are drawn in f64 and rounded for f32: both files of a case are the same
problem, and an f64 case fails where something passes through f32.
"""

import argparse
import json
import struct
import zlib
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "f64": torch.float64}
HERE = Path(__file__).resolve().parent
DEFAULT_OUT = HERE.parent / "crates" / "dahl" / "tests" / "golden"


# -- files ------------------------------------------------------------------

NAMES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
TYPES = {name: dtype for dtype, name in NAMES.items()}


def save(path, metadata, tensors):
    """Writes a safetensors file whose bytes depend on nothing but its content
    (the safetensors package orders metadata by a random hash)."""
    order = sorted(tensors, key=lambda name: (tensors[name].dtype != torch.int64, name))
    header = {"__metadata__": dict(sorted(metadata.items()))}
    data = b""
    for name in order:
        tensor = tensors[name].detach().contiguous()
        chunk = tensor.flatten().numpy().tobytes() if tensor.numel() else b""
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(chunk)],
        }
        data += chunk
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def load(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, info in header.items():
        start, end = (8 + length + offset for offset in info["data_offsets"])
        flat = torch.frombuffer(bytearray(raw[start:end]), dtype=TYPES[info["dtype"]])
        tensors[name] = flat.reshape(info["shape"])
    return metadata, tensors


# -- ops --------------------------------------------------------------------


def pair(x):
    return [x, x] if isinstance(x, int) else list(x)


class Draw:
    """Seeded values in f64, rounded to the case's type."""

    def __init__(self, name, dtype):
        self.generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        self.dtype = dtype

    def normal(self, *shape, scale=1.0, offset=0.0):
        x = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return (x * scale + offset).to(self.dtype)

    def integers(self, low, high, shape, dtype=None):
        x = torch.randint(low, high, shape, generator=self.generator)
        return x.to(dtype or self.dtype)


def differentiate(f, inputs, draw, names):
    """Output, and the gradients of `names`, for a random gradient of the output."""
    leaves = {
        k: v.clone().requires_grad_() if k in names else v.clone() for k, v in inputs.items()
    }
    output = f(**leaves)
    grad_output = draw.normal(*output.shape)
    grads = torch.autograd.grad(output, [leaves[k] for k in names], grad_output)
    result = {"output": output, "grad_output": grad_output}
    return result | {f"grad_{k}": g for k, g in zip(names, grads)}


def conv2d(draw, n, c, size, out, kernel, *, stride=1, padding=0, dilation=1, groups=1, bias=True):
    inputs = {
        "input": draw.normal(n, c, *pair(size)),
        "weight": draw.normal(out, c // groups, *pair(kernel), scale=0.3),
    }
    if bias:
        inputs["bias"] = draw.normal(out)
    options = {"stride": pair(stride), "padding": pair(padding), "dilation": pair(dilation)}
    f = lambda input, weight, bias=None: F.conv2d(
        input, weight, bias, **{k: tuple(v) for k, v in options.items()}, groups=groups
    )
    return options | {"groups": groups}, inputs, differentiate(f, inputs, draw, list(inputs))


def pool2d(function, input, kernel, stride, padding):
    def case(draw):
        attributes = {
            "kernel": pair(kernel),
            "stride": pair(kernel if stride is None else stride),
            "padding": pair(padding),
        }
        inputs = {"input": input(draw)}
        f = lambda input: function(input, **{
            "kernel_size": tuple(attributes["kernel"]),
            "stride": tuple(attributes["stride"]),
            "padding": tuple(attributes["padding"]),
        })
        return attributes, inputs, differentiate(f, inputs, draw, ["input"])

    return case


def ties(*shape):
    """Few distinct values: many windows have more than one largest."""
    return lambda draw: draw.integers(-1, 2, shape)


def with_nan(draw):
    """NaN alone, twice in a window, before and after larger values; a plane of
    NaN; minus infinity everywhere in a window; plus infinity beside NaN."""
    x = draw.normal(2, 2, 6, 6)
    nan, inf = float("nan"), float("inf")
    x[0, 0, 0, 0] = nan
    x[0, 0, 2, 3] = x[0, 0, 3, 2] = nan
    x[0, 0, 4, 4], x[0, 0, 4, 5] = inf, nan
    x[0, 0, 5, 0], x[0, 0, 5, 1] = nan, inf
    x[0, 1] = nan
    x[1, 0, 0:4, 0:4] = -inf
    x[1, 1, 5, 5] = nan
    return x


def plain(*shape):
    return lambda draw: draw.normal(*shape)


def unary(function, input, **attributes):
    def case(draw):
        inputs = {"input": input(draw)}
        return attributes, inputs, differentiate(
            lambda input: function(input), inputs, draw, ["input"]
        )

    return case


def listed(*values):
    return lambda draw: torch.tensor(values, dtype=torch.float64).to(draw.dtype)


def wide(draw):
    """From the tiniest to where exp overflows, both signs."""
    x = torch.tensor(
        [0.0, 1e-30, 1e-8, 1e-4, 0.03, 0.5, 0.625, 1, 2, 4, 5, 6, 8, 9.5, 12, 17, 20, 40, 87, 89,
         104, 200, 710, 1000, 1e5],
        dtype=torch.float64,
    )
    return torch.cat([x, -x]).to(draw.dtype)


def linear(draw, n, features, out, *, bias=True):
    inputs = {"input": draw.normal(n, features), "weight": draw.normal(out, features, scale=0.3)}
    if bias:
        inputs["bias"] = draw.normal(out)
    f = lambda input, weight, bias=None: F.linear(input, weight, bias)
    return {}, inputs, differentiate(f, inputs, draw, list(inputs))


def cross_entropy(draw, n, classes, reduction, *, scale=1.0):
    inputs = {
        "input": draw.normal(n, classes, scale=scale),
        "target": draw.integers(0, classes, (n,), torch.int64),
    }
    f = lambda input, target: F.cross_entropy(input, target, reduction=reduction)
    return {"reduction": reduction}, inputs, differentiate(f, inputs, draw, ["input"])


def mse(draw, shape, reduction):
    inputs = {"input": draw.normal(*shape), "target": draw.normal(*shape)}
    f = lambda input, target: F.mse_loss(input, target, reduction=reduction)
    return {"reduction": reduction}, inputs, differentiate(f, inputs, draw, ["input"])


def batch_norm2d(draw, shape, *, training, gradients=True, momentum=0.1, eps=1e-5, offset=0.5):
    channels = shape[1]
    inputs = {
        "input": draw.normal(*shape, scale=1.5, offset=offset),
        "weight": draw.normal(channels, scale=0.3, offset=1.0),
        "bias": draw.normal(channels),
        "running_mean": draw.normal(channels),
        "running_var": draw.normal(channels).abs() + 0.5,
    }
    mean, var = inputs["running_mean"].clone(), inputs["running_var"].clone()
    f = lambda input, weight, bias, **_: F.batch_norm(
        input, mean, var, weight, bias, training=training, momentum=momentum, eps=eps
    )
    if gradients:
        results = differentiate(f, inputs, draw, ["input", "weight", "bias"])
    else:
        results = {"output": f(**inputs)}
    if training:
        results |= {"running_mean_after": mean, "running_var_after": var}
    return {"training": training, "momentum": momentum, "eps": eps}, inputs, results


def op(function, *args, **kwargs):
    return lambda draw: function(draw, *args, **kwargs)


def pools(op_name, function):
    """The windows that both kinds of pooling are tried on."""
    make = lambda input, kernel, stride=None, padding=0: (
        op_name, pool2d(function, input, kernel, stride, padding)
    )
    return {
        f"{op_name}_tiles": make(plain(2, 3, 6, 6), 2),
        f"{op_name}_ragged": make(plain(2, 2, 7, 5), 2),
        f"{op_name}_overlap": make(plain(2, 2, 8, 7), 3, 2, 1),
        f"{op_name}_overlap_dense": make(plain(1, 2, 6, 6), 3, 1, 1),
        f"{op_name}_gaps": make(plain(1, 2, 9, 8), 2, 3),
        f"{op_name}_oblong": make(plain(2, 2, 7, 9), [2, 3], [1, 2], [1, 0]),
        f"{op_name}_oblong_gaps": make(plain(1, 2, 8, 9), [1, 2], [3, 4], [0, 1]),
        f"{op_name}_whole": make(plain(2, 3, 5, 4), [5, 4]),
        f"{op_name}_one": make(plain(1, 2, 4, 4), 1),
        f"{op_name}_ties": make(ties(2, 2, 6, 6), 2),
        f"{op_name}_ties_overlap": make(ties(1, 2, 7, 7), 3, 2, 1),
        f"{op_name}_nan": make(with_nan, 2),
        f"{op_name}_nan_overlap": make(with_nan, 3, 1, 1),
    }


OPS = {
    "conv2d_plain": ("conv2d", op(conv2d, 2, 3, 6, 4, 3)),
    "conv2d_padding": ("conv2d", op(conv2d, 2, 3, [7, 6], 4, 3, padding=1)),
    "conv2d_padding_wide": ("conv2d", op(conv2d, 1, 2, 4, 3, 3, padding=2)),
    "conv2d_stride": ("conv2d", op(conv2d, 2, 3, 9, 4, 3, stride=2, padding=1)),
    "conv2d_stride_ragged": ("conv2d", op(conv2d, 1, 2, [8, 10], 3, 3, stride=3)),
    "conv2d_dilation": ("conv2d", op(conv2d, 1, 3, 8, 4, 3, padding=2, dilation=2)),
    "conv2d_groups": ("conv2d", op(conv2d, 2, 4, 6, 6, 3, padding=1, groups=2)),
    "conv2d_depthwise": ("conv2d", op(conv2d, 2, 6, 6, 6, 3, padding=1, groups=6)),
    "conv2d_depthwise_multiplied": ("conv2d", op(conv2d, 1, 3, 7, 6, 3, stride=2, groups=3)),
    "conv2d_no_bias": ("conv2d", op(conv2d, 2, 2, 6, 5, 3, bias=False)),
    "conv2d_1x1": ("conv2d", op(conv2d, 2, 5, 5, 7, 1)),
    "conv2d_1x1_stride": ("conv2d", op(conv2d, 2, 4, 6, 6, 1, stride=2, bias=False)),
    "conv2d_1x1_padding": ("conv2d", op(conv2d, 1, 2, 4, 3, 1, padding=1)),
    "conv2d_oblong": (
        "conv2d",
        op(conv2d, 2, 3, [9, 7], 4, [3, 2], stride=[2, 1], padding=[0, 1]),
    ),
    "conv2d_oblong_dilation": (
        "conv2d",
        op(conv2d, 1, 2, [9, 11], 4, [2, 3], stride=[1, 2], padding=[2, 1], dilation=[3, 2]),
    ),
    "conv2d_everything": (
        "conv2d",
        op(conv2d, 2, 4, [10, 9], 6, [3, 2], stride=[2, 3], padding=[2, 1], dilation=[2, 3],
           groups=2, bias=False),
    ),
    "conv2d_whole": ("conv2d", op(conv2d, 2, 3, [5, 4], 6, [5, 4])),
    "conv2d_larger_than_input": ("conv2d", op(conv2d, 1, 2, 3, 3, 5, padding=1)),
    "conv2d_pixel": ("conv2d", op(conv2d, 1, 1, 1, 1, 1)),
    "conv2d_many_channels": ("conv2d", op(conv2d, 1, 19, 4, 17, 3, padding=1)),
    # Large enough for tiles that take fewer products, and for products by taps.
    "conv2d_tiles": ("conv2d", op(conv2d, 1, 18, [13, 12], 34, 3, padding=1)),
    "conv2d_taps": ("conv2d", op(conv2d, 1, 18, [9, 10], 34, 3, stride=2, padding=1)),
    **pools("max_pool2d", F.max_pool2d),
    **pools("avg_pool2d", F.avg_pool2d),
    "relu": ("relu", unary(F.relu, plain(2, 3, 5, 4))),
    "relu_special": (
        "relu",
        unary(F.relu, listed(0.0, -0.0, 1e-40, -1e-40, float("inf"), -float("inf"), float("nan"))),
    ),
    "leaky_relu": ("leaky_relu", unary(F.leaky_relu, plain(2, 3, 5, 4), negative_slope=0.01)),
    "leaky_relu_steep": (
        "leaky_relu",
        unary(lambda x: F.leaky_relu(x, 0.2), plain(3, 7), negative_slope=0.2),
    ),
    "leaky_relu_special": (
        "leaky_relu",
        unary(F.leaky_relu, listed(0.0, -0.0, float("inf"), -float("inf"), float("nan")),
              negative_slope=0.01),
    ),
    "sigmoid": ("sigmoid", unary(torch.sigmoid, plain(2, 3, 5, 4))),
    "sigmoid_wide": ("sigmoid", unary(torch.sigmoid, wide)),
    "tanh": ("tanh", unary(torch.tanh, plain(2, 3, 5, 4))),
    "tanh_wide": ("tanh", unary(torch.tanh, wide)),
    "gelu": ("gelu", unary(F.gelu, plain(2, 3, 5, 4))),
    "gelu_wide": ("gelu", unary(F.gelu, wide)),
    "softmax": ("softmax", unary(lambda x: F.softmax(x, 1), plain(5, 7), dim=1)),
    "softmax_large": (
        "softmax",
        unary(lambda x: F.softmax(x, 1), lambda draw: draw.normal(4, 6, scale=200.0), dim=1),
    ),
    "softmax_one": ("softmax", unary(lambda x: F.softmax(x, 1), plain(3, 1), dim=1)),
    "log_softmax": ("log_softmax", unary(lambda x: F.log_softmax(x, 1), plain(5, 7), dim=1)),
    "log_softmax_large": (
        "log_softmax",
        unary(lambda x: F.log_softmax(x, 1), lambda draw: draw.normal(4, 6, scale=200.0), dim=1),
    ),
    "linear": ("linear", op(linear, 5, 12, 7)),
    "linear_no_bias": ("linear", op(linear, 4, 9, 3, bias=False)),
    "linear_1x1": ("linear", op(linear, 1, 1, 1)),
    "linear_one_sample": ("linear", op(linear, 1, 33, 17)),
    "linear_long": ("linear", op(linear, 3, 300, 2)),
    "cross_entropy_mean": ("cross_entropy", op(cross_entropy, 6, 5, "mean")),
    "cross_entropy_sum": ("cross_entropy", op(cross_entropy, 6, 5, "sum")),
    "cross_entropy_none": ("cross_entropy", op(cross_entropy, 6, 5, "none")),
    "cross_entropy_large": ("cross_entropy", op(cross_entropy, 7, 10, "mean", scale=200.0)),
    "cross_entropy_one": ("cross_entropy", op(cross_entropy, 1, 2, "mean")),
    "mse_mean": ("mse", op(mse, (4, 5), "mean")),
    "mse_sum": ("mse", op(mse, (4, 5), "sum")),
    "mse_none": ("mse", op(mse, (4, 5), "none")),
    "batch_norm2d_train": ("batch_norm2d", op(batch_norm2d, (4, 5, 3, 4), training=True)),
    "batch_norm2d_train_one_sample": (
        "batch_norm2d", op(batch_norm2d, (1, 3, 4, 5), training=True),
    ),
    "batch_norm2d_train_pixel": ("batch_norm2d", op(batch_norm2d, (6, 4, 1, 1), training=True)),
    "batch_norm2d_train_momentum": (
        "batch_norm2d",
        op(batch_norm2d, (3, 4, 3, 3), training=True, momentum=0.3, eps=1e-3, offset=3.0),
    ),
    "batch_norm2d_eval": (
        "batch_norm2d", op(batch_norm2d, (2, 5, 3, 4), training=False, gradients=False),
    ),
    "batch_norm2d_eval_gradients": (
        "batch_norm2d", op(batch_norm2d, (2, 5, 3, 4), training=False),
    ),
}


def positive(*shape):
    return lambda draw: draw.normal(*shape).abs() + 0.2


def binary(function, input, other):
    def case(draw):
        inputs = {"input": input(draw), "other": other(draw)}
        return {}, inputs, differentiate(
            lambda input, other: function(input, other), inputs, draw, ["input", "other"]
        )

    return case


def without_gradient(function, input, **attributes):
    def case(draw):
        inputs = {"input": input(draw)}
        return attributes, inputs, {"output": function(inputs["input"])}

    return case


def axes(function, *over):
    return unary(lambda x: function(x, dim=over), plain(3, 4, 5), axes=list(over))


def elementary():
    """The elementary ops: functions of elements, reductions, products."""
    image = plain(2, 3, 4)
    cases = {
        "neg": unary(torch.neg, image),
        "exp": unary(torch.exp, image),
        "log": unary(torch.log, positive(2, 3, 4)),
        "sqrt": unary(torch.sqrt, positive(2, 3, 4)),
        "copy": unary(torch.clone, image),
        "round": without_gradient(torch.round, lambda draw: draw.normal(3, 7, scale=4.0)),
        "power": unary(lambda x: x.pow(2.5), positive(2, 3, 4), exponent=2.5),
        "power_2": unary(lambda x: x.pow(2), image, exponent=2),
        "clip": unary(lambda x: x.clamp(-0.5, 0.8), image, low=-0.5, high=0.8),
        "add_scalar": unary(lambda x: x + 0.3, image, value=0.3),
        "sub_scalar": unary(lambda x: x - 0.3, image, value=0.3),
        "scale": unary(lambda x: x * 0.3, image, value=0.3),
        "div_scalar": unary(lambda x: x / 0.3, image, value=0.3),
        "add": binary(torch.add, image, image),
        "sub": binary(torch.sub, image, image),
        "mul": binary(torch.mul, image, image),
        "div": binary(torch.div, image, positive(2, 3, 4)),
        "sum": axes(torch.sum, 0, 2),
        "sum_all": axes(torch.sum, 0, 1, 2),
        "mean": axes(torch.mean, 1),
        "min": axes(torch.amin, 0, 2),
        "max": axes(torch.amax, 1, 2),
        "argmax": without_gradient(lambda x: x.argmax(1), plain(3, 4, 5), axes=[1]),
        "dot": binary(torch.dot, plain(37), plain(37)),
        "matvec": binary(torch.mv, plain(5, 7), plain(7)),
        "outer": binary(torch.outer, plain(5), plain(7)),
        "matmul": binary(torch.matmul, plain(5, 7), plain(7, 3)),
        "matmul_long": binary(torch.matmul, plain(2, 300), plain(300, 3)),
        "bmm": binary(torch.bmm, plain(3, 4, 5), plain(3, 5, 2)),
        "transpose": unary(lambda x: x.t(), plain(4, 7)),
        "permute": unary(lambda x: x.permute(2, 0, 1), image, axes=[2, 0, 1]),
        "norm": unary(torch.linalg.vector_norm, image),
        "global_avg_pool2d": unary(lambda x: F.adaptive_avg_pool2d(x, 1), plain(2, 3, 5, 4)),
    }
    # `sum_all` is the op `sum` in another case.
    ops = {"sum_all": "sum", "power_2": "power", "matmul_long": "matmul"}
    return {name: (ops.get(name, name), case) for name, case in cases.items()}


OPS |= elementary()


# -- training ---------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, body, shortcut):
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


WINDOW = {"kernel", "stride", "padding"}
KEYS = {
    "conv2d": {"out", "kernel", "stride", "padding", "dilation", "groups", "bias"},
    "linear": {"out", "bias"},
    "max_pool2d": WINDOW,
    "avg_pool2d": WINDOW,
    "leaky_relu": {"negative_slope"},
    "residual": {"body", "shortcut"},
}
ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "gelu": nn.GELU}


def spread(x):
    return tuple(x) if isinstance(x, list) else x


def build(layers, shape):
    """The model, and the shape of its output without the batch."""
    modules = []
    for layer in layers:
        kind = layer["type"]
        options = {k: spread(v) for k, v in layer.items() if k != "type"}
        unknown = set(options) - KEYS.get(kind, set())
        assert not unknown, f"{kind} does not know {unknown}"
        if kind == "conv2d":
            out, kernel = options.pop("out"), options.pop("kernel")
            module = nn.Conv2d(shape[0], out, kernel, **options)
        elif kind == "linear":
            module = nn.Linear(shape[0], options.pop("out"), **options)
        elif kind in ("max_pool2d", "avg_pool2d"):
            window = {"max_pool2d": nn.MaxPool2d, "avg_pool2d": nn.AvgPool2d}[kind]
            module = window(options.pop("kernel"), **options)
        elif kind == "global_avg_pool2d":
            module = nn.AdaptiveAvgPool2d(1)
        elif kind == "batch_norm2d":
            module = nn.BatchNorm2d(shape[0])
        elif kind == "flatten":
            module = nn.Flatten()
        elif kind == "leaky_relu":
            module = nn.LeakyReLU(**options)
        elif kind == "residual":
            body, _ = build(layer["body"], shape)
            module = Residual(body, build(layer["shortcut"], shape)[0])
        else:
            module = ACTIVATIONS[kind]()
        with torch.no_grad():
            probe = torch.zeros(2, *shape, dtype=torch.get_default_dtype())
            shape = tuple(module.eval()(probe).shape[1:])
        modules.append(module)
    return nn.Sequential(*modules), shape


def optimizer_of(description, parameters):
    options = {k: spread(v) for k, v in description.items() if k not in ("type", "clip_grad_norm")}
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    return kind[description["type"]](parameters, foreach=False, **options)


def run(model, metadata, inputs, targets):
    """The training loop that defines a `train` case."""
    description = metadata["optimizer"]
    clip = description.get("clip_grad_norm")
    loss_of = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss}[metadata["loss"]]
    batch = metadata["batch"]
    assert len(inputs) % batch == 0, "no batch wraps inside"
    optimizer = optimizer_of(description, model.parameters())
    model.train()
    losses = []
    for step in range(metadata["steps"]):
        start = step * batch % len(inputs)
        logits = model(inputs[start : start + batch])
        loss = loss_of(logits, targets[start : start + batch])
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip, foreach=False)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), logits.detach()


def prefixed(prefix, model):
    return {f"{prefix}.{k}": v.detach().clone() for k, v in model.state_dict().items()}


def train(name, dtype, shape, model, optimizer, *, samples=12, batch=4, steps=6, loss="cross_entropy"):
    draw = Draw(name, dtype)
    torch.manual_seed(zlib.crc32(name.encode()))
    torch.set_default_dtype(torch.float64)
    network, (classes,) = build(model, shape)
    torch.set_default_dtype(torch.float32)
    network = network.to(dtype)
    inputs = draw.normal(samples, *shape)
    if loss == "mse":
        targets = draw.normal(samples, classes)
    else:
        targets = draw.integers(0, classes, (samples,), torch.int64)
    metadata = {
        "input_shape": list(shape), "model": model, "optimizer": optimizer, "loss": loss,
        "batch": batch, "steps": steps,
    }
    before = prefixed("init", network)
    losses, logits = run(network, metadata, inputs, targets)
    tensors = {"inputs": inputs, "targets": targets, "loss": losses, "last_logits": logits}
    return metadata, tensors | before | prefixed("final", network)


def conv(out, kernel, **options):
    return {"type": "conv2d", "out": out, "kernel": kernel, **options}


def dense(out, **options):
    return {"type": "linear", "out": out, **options}


def pool(kind, kernel, **options):
    return {"type": f"{kind}_pool2d", "kernel": kernel, **options}


def residual(body, shortcut=()):
    return {"type": "residual", "body": list(body), "shortcut": list(shortcut)}


def layer(kind, **options):
    return {"type": kind, **options}


RELU, FLAT, NORM = layer("relu"), layer("flatten"), layer("batch_norm2d")
CNN = [conv(3, 3), RELU, pool("max", 2), FLAT, dense(5)]
SMALL = (1, 8, 8)


def block(out, stride):
    return [conv(out, 3, stride=stride, padding=1, bias=False), NORM, RELU,
            conv(out, 3, padding=1, bias=False), NORM]


def project(out, stride):
    return [conv(out, 1, stride=stride, bias=False), NORM]


def sgd(lr, **options):
    return {"type": "sgd", "lr": lr, **options}


def adam(lr, **options):
    return {"type": "adam", "lr": lr, **options}


TRAIN = {
    "train_cnn_sgd": (SMALL, CNN, sgd(0.1)),
    "train_cnn_nesterov": (
        SMALL, CNN, sgd(0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    ),
    "train_cnn_momentum": (SMALL, CNN, sgd(0.05, momentum=0.8)),
    "train_cnn_dampening": (SMALL, CNN, sgd(0.1, momentum=0.9, dampening=0.3)),
    "train_cnn_weight_decay": (SMALL, CNN, sgd(0.1, weight_decay=0.1)),
    "train_cnn_adam": (SMALL, CNN, adam(0.01)),
    "train_cnn_adam_weight_decay": (SMALL, CNN, adam(0.01, weight_decay=0.1)),
    "train_cnn_amsgrad": (SMALL, CNN, adam(0.02, amsgrad=True)),
    "train_cnn_adamw": (SMALL, CNN, {"type": "adamw", "lr": 0.01, "weight_decay": 0.2}),
    "train_cnn_adamw_default": (SMALL, CNN, {"type": "adamw", "lr": 0.01}),
    "train_cnn_adamw_amsgrad": (
        SMALL, CNN, {"type": "adamw", "lr": 0.02, "betas": [0.7, 0.9], "amsgrad": True},
    ),
    "train_cnn_adam_betas": (SMALL, CNN, adam(0.02, betas=[0.8, 0.95], eps=1e-4)),
    "train_cnn_clipped": (SMALL, CNN, sgd(0.1, momentum=0.9, clip_grad_norm=0.5)),
    # The bound is above some norms and below others: both sides of the rule.
    "train_cnn_clipped_sometimes": (SMALL, CNN, adam(0.01, clip_grad_norm=2.2)),
    "train_resnet_identity": (
        (2, 6, 6),
        [conv(4, 3, padding=1, bias=False), NORM, RELU, residual(block(4, 1)), RELU,
         layer("global_avg_pool2d"), FLAT, dense(3)],
        sgd(0.05, momentum=0.9),
    ),
    "train_resnet_projected": (
        (2, 7, 8),
        [residual(block(4, 2), project(4, 2)), RELU, pool("avg", [4, 4]), FLAT, dense(3)],
        sgd(0.05, momentum=0.9),
    ),
    "train_resnet_both": (
        (1, 8, 8),
        [conv(3, 3, padding=1, bias=False), NORM, RELU, residual(block(3, 1)), RELU,
         residual(block(5, 2), project(5, 2)), RELU, pool("avg", 4), FLAT, dense(4)],
        sgd(0.05, momentum=0.9, weight_decay=0.001),
    ),
    "train_resnet_nested": (
        (2, 4, 4),
        [residual([conv(2, 3, padding=1), RELU,
                   residual([conv(2, 1)], [conv(2, [1, 3], padding=[0, 1])])]),
         FLAT, dense(3)],
        sgd(0.05),
    ),
    "train_mlp_activations": (
        (1, 4, 4),
        [FLAT, dense(9), layer("tanh"), dense(8), layer("sigmoid"), dense(7), layer("gelu"),
         dense(6), layer("leaky_relu", negative_slope=0.1), dense(4)],
        sgd(0.2, momentum=0.9),
    ),
    "train_mlp_leaky_default": (
        (6,), [dense(8, bias=False), layer("leaky_relu"), dense(3)], adam(0.02),
    ),
    "train_mlp_regression": (
        (5,), [dense(8), layer("tanh"), dense(3)], sgd(0.1, momentum=0.9),
    ),
    "train_linear": ((6,), [dense(3)], sgd(0.3)),
    "train_avg_pool": (
        (2, 9, 9),
        [conv(4, 3), RELU, pool("avg", 3, stride=2, padding=1), conv(5, 3, padding=1),
         layer("gelu"), layer("global_avg_pool2d"), FLAT, dense(4)],
        adam(0.01),
    ),
    "train_max_pool": (
        (1, 9, 8),
        [conv(3, 2), layer("tanh"), pool("max", [3, 2], stride=[2, 1], padding=[1, 1]), FLAT,
         dense(4)],
        sgd(0.1),
    ),
    "train_convolutions": (
        (2, 10, 9),
        [conv(4, [3, 2], padding=[1, 0], groups=2), RELU,
         conv(6, [2, 3], stride=[2, 1], padding=[1, 2], dilation=[2, 2], groups=2, bias=False),
         layer("leaky_relu"), conv(6, 3, stride=2, groups=6), FLAT, dense(4)],
        sgd(0.05, momentum=0.9),
    ),
    # 11 steps over 3 batches: the samples are gone through several times.
    "train_epochs": (SMALL, CNN, sgd(0.1), {"steps": 11}),
    "train_batch_one": ((1, 6, 6), CNN, sgd(0.05), {"samples": 5, "batch": 1, "steps": 7}),
}
TRAIN_OPTIONS = {"train_mlp_regression": {"loss": "mse"}}


# -- main -------------------------------------------------------------------


def text(value):
    return value if isinstance(value, str) else json.dumps(value)


def write(out):
    out.mkdir(parents=True, exist_ok=True)
    written = set()
    for type_name, dtype in DTYPES.items():
        for name, (op_name, case) in OPS.items():
            attributes, inputs, results = case(Draw(name, dtype))
            metadata = {"op": op_name, "dtype": type_name} | attributes
            written.add(write_case(out, name, type_name, metadata, inputs | results))
        for name, (shape, model, optimizer, *options) in TRAIN.items():
            options = (options[0] if options else {}) | TRAIN_OPTIONS.get(name, {})
            metadata, tensors = train(name, dtype, shape, model, optimizer, **options)
            metadata |= {"op": "train", "dtype": type_name}
            written.add(write_case(out, name, type_name, metadata, tensors))
    print(f"{len(written)} files, {sum(f.stat().st_size for f in written)} bytes in {out}")
    for stale in sorted(set(out.glob("*.safetensors")) - written):
        print(f"not of this script: {stale}")


def write_case(out, name, type_name, metadata, tensors):
    strings = {k: text(v) for k, v in metadata.items()}
    path = out / f"{name}_{type_name}.safetensors"
    save(path, strings, tensors)
    return path


def replay(directory):
    """Runs stored `train` cases again and prints how far this loop is from them."""
    for path in sorted(directory.glob("train_*.safetensors")):
        strings, tensors = load(path)
        metadata = {
            k: v if k in ("op", "dtype", "loss") else json.loads(v) for k, v in strings.items()
        }
        network, _ = build(metadata["model"], tuple(metadata["input_shape"]))
        network = network.to(DTYPES[metadata["dtype"]])
        state = {k[5:]: v for k, v in tensors.items() if k.startswith("init.")}
        network.load_state_dict(state, strict=True)
        losses, logits = run(network, metadata, tensors["inputs"], tensors["targets"])
        found = {"loss": losses, "last_logits": logits} | prefixed("final", network)
        worst = max((found[k] - tensors[k]).abs().max().item() for k in found)
        print(f"{path.name}: largest difference {worst:.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--replay", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if arguments.replay:
        replay(arguments.replay)
    else:
        write(arguments.out)


if __name__ == "__main__":
    main()
