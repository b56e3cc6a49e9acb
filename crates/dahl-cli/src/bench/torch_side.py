"""PyTorch's side of `dahl bench --against torch`: steps of one network, timed.

Reads a JSON object a line from standard input and answers with one:
  {"setup": {"module": SOURCE, "batch": N, "classes": N, "dtype": "f32", "threads": N,
             "mode": MODE}}
  {"run": STEPS}   -> {"wall": SECONDS, "cpu": SECONDS}
"""

import json
import sys
import time
import types

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "f64": torch.float64}


def load(text):
    module = types.ModuleType("network")
    exec(compile(text, "network", "exec"), module.__dict__)
    return module


def setup(module, batch, classes, dtype, threads, mode):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    source = load(module)
    dtype = DTYPES[dtype]
    network = source.model().to(dtype)
    x = torch.randn(batch, *source.INPUT, dtype=dtype)
    y = torch.arange(batch) % classes
    if mode == "channels_last":
        if x.dim() != 4:
            raise ValueError("no images")
        network = network.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    # Without oneDNN: PyTorch's own kernels over the BLAS.
    torch.backends.mkldnn.enabled = mode != "nomkldnn"

    def loss(x, y):
        return F.cross_entropy(network(x), y)

    if mode == "compile":
        torch._dynamo.reset()
        loss = torch.compile(loss)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss(x, y).backward()
        optimizer.step()

    for _ in range(2):
        step()
    return step


def main():
    step = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "setup" in request:
                step = setup(**request["setup"])
                answer = {"version": torch.__version__}
            else:
                wall, cpu = time.perf_counter(), time.process_time()
                for _ in range(request["run"]):
                    step()
                answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        except Exception as error:  # told to the other side, which goes on without this mode
            answer = {"error": repr(error)[:300]}
        print(json.dumps(answer), flush=True)


main()
