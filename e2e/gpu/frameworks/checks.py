"""Small programs of Python frameworks whose results are compared, natively and under hetckpt.

    checks.py [--list] [--jobs N] [CHECK...]

Each check runs in a process of its own and prints `NAME ok HASH SECONDS`, the hash being that of its results' bits, or
`NAME failed REASON`. Frameworks that are not installed are left out.
"""

import argparse
import hashlib
import importlib.util
import os
import subprocess
import sys
import time

CHECKS = {}


def check(framework, **environment):
    """Registers a function that returns arrays; `environment` is set before its framework is imported."""

    def register(function):
        name = f"{framework}.{function.__name__}"
        CHECKS[name] = (function, framework, environment)
        return function

    return register


def torch_seeded():
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch


def product(kind, tf32=False):
    torch = torch_seeded()
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a = torch.randn(512, 768, device="cuda").to(kind)
    b = torch.randn(768, 640, device="cuda").to(kind)
    return [a @ b, torch.bmm(a[None].expand(3, -1, -1), b[None].expand(3, -1, -1))]


@check("torch")
def elementwise():
    torch = torch_seeded()
    a = torch.randn(1 << 20, device="cuda")
    return [a.sin() + a.exp(), a.sum(), a.softmax(0), a.sort()[0], a.cumsum(0), a.abs().topk(10)[0]]


@check("torch")
def matmul_f32():
    import torch

    return product(torch.float32)


@check("torch")
def matmul_tf32():
    import torch

    return product(torch.float32, tf32=True)


@check("torch")
def matmul_bf16():
    import torch

    return product(torch.bfloat16)


@check("torch")
def matmul_f16():
    import torch

    return product(torch.float16)


@check("torch")
def matmul_f64():
    import torch

    return product(torch.float64)


@check("torch")
def linear_gelu():
    torch = torch_seeded()
    layer = torch.nn.Linear(256, 512, device="cuda")
    return [torch.nn.functional.gelu(layer(torch.randn(128, 256, device="cuda")))]


@check("torch")
def convolution():
    torch = torch_seeded()
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2)).cuda()
    x = torch.randn(8, 3, 32, 32, device="cuda", requires_grad=True)
    y = net(x)
    y.square().mean().backward()
    return [y, x.grad]


@check("torch")
def recurrent():
    torch = torch_seeded()
    net = torch.nn.LSTM(32, 64, 2).cuda()
    y, _ = net(torch.randn(10, 4, 32, device="cuda"))
    return [y]


@check("torch")
def attention():
    torch = torch_seeded()
    q, k, v = (torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    return [torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)]


@check("torch")
def fourier():
    torch = torch_seeded()
    x = torch.randn(8, 1000, device="cuda")
    return [torch.view_as_real(torch.fft.fft(x)), torch.fft.irfft(torch.fft.rfft(x))]


@check("torch")
def solve():
    torch = torch_seeded()
    a = torch.randn(64, 64, device="cuda") + 64 * torch.eye(64, device="cuda")
    b = torch.randn(64, 3, device="cuda")
    return [torch.linalg.solve(a, b), torch.linalg.cholesky(a @ a.T), torch.linalg.qr(a)[1].abs()]


def small_network(torch):
    layers = [torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 10)]
    return torch.nn.Sequential(*layers).cuda()


def train(torch, net, steps, amp=False):
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, target = torch.randn(32, 64, device="cuda"), torch.randint(0, 10, (32,), device="cuda")
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = torch.nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    return [torch.stack(losses)]


@check("torch", CUBLAS_WORKSPACE_CONFIG=":4096:8")
def training():
    torch = torch_seeded()
    return train(torch, small_network(torch), 20)


@check("torch", CUBLAS_WORKSPACE_CONFIG=":4096:8")
def training_amp():
    torch = torch_seeded()
    return train(torch, small_network(torch), 20, amp=True)


@check("torch", CUBLAS_WORKSPACE_CONFIG=":4096:8")
def training_compiled():
    torch = torch_seeded()
    return train(torch, torch.compile(small_network(torch)), 5)


@check("torch")
def cuda_graph():
    torch = torch_seeded()
    a, b = torch.randn(256, 256, device="cuda"), torch.randn(256, 256, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            c = torch.relu(a @ b).sin()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = torch.relu(a @ b).sin()
    out = []
    for _ in range(3):
        a.mul_(0.5)
        graph.replay()
        out.append(c.clone())
    return out


@check("torch", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
def expandable_segments():
    torch = torch_seeded()
    kept = [torch.full((1 << 20,), float(i), device="cuda") for i in range(20)]
    del kept[::2]
    kept += [torch.full((3 << 20,), float(i), device="cuda") for i in range(5)]
    torch.cuda.empty_cache()
    return [sum(k.sum() for k in kept)]


@check("torch", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
def malloc_async():
    torch = torch_seeded()
    a = torch.randn(1 << 20, device="cuda")
    return [(a * i).sum() for i in range(10)]


@check("torch")
def pinned_loader():
    torch = torch_seeded()
    data = torch.utils.data.TensorDataset(torch.arange(4096.0).reshape(256, 16))
    loader = torch.utils.data.DataLoader(data, batch_size=32, num_workers=2, pin_memory=True)
    return [sum(x.cuda(non_blocking=True).sum() for (x,) in loader)]


@check("torch", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
def nccl_one_rank():
    torch = torch_seeded()
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda:0"))
    x = torch.arange(8.0, device="cuda")
    torch.distributed.all_reduce(x)
    torch.distributed.destroy_process_group()
    return [x]


@check("triton")
def kernel():
    import torch
    import triton
    import triton_kernels

    torch.manual_seed(1)
    x = torch.randn(10000, device="cuda")
    y = torch.empty_like(x)
    triton_kernels.scaled[(triton.cdiv(10000, 256),)](x, y, 10000, BLOCK=256)
    return [y]


@check("cupy")
def arrays():
    import cupy as cp

    a = cp.arange(100000, dtype=cp.float32).reshape(100, 1000)
    raw = cp.RawKernel('extern "C" __global__ void twice(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }', "twice")
    b = a.copy()
    raw((100,), (1000,), (b,))
    return [a.sum(), a.sum(axis=0), cp.sort(a[::-1].ravel()), b, a @ a.T, cp.fft.fft(a[0]).real, cp.argmax(a)]


@check("jax", XLA_PYTHON_CLIENT_PREALLOCATE="false")
def product_and_gradient():
    import jax
    import jax.numpy as jnp

    assert jax.devices()[0].platform == "gpu", jax.devices()
    x = jax.random.normal(jax.random.PRNGKey(1), (128, 64))
    loss = jax.jit(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))
    w = jnp.ones((64, 32)) * 0.1
    return [loss(w), jax.grad(loss)(w)]


@check("numba")
def saxpy():
    import numpy as np
    from numba import cuda

    @cuda.jit
    def add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = 2 * x[i] + y[i]

    x, y = np.arange(1000.0), np.ones(1000)
    out = np.zeros(1000)
    add[8, 128](x, y, out)
    return [out]


def digest(arrays):
    """SHA-256 of the arrays' bits."""
    total = hashlib.sha256()
    for array in arrays:
        if hasattr(array, "detach"):
            array = array.detach().cpu().reshape(-1).contiguous()
            import torch

            data = array.view(torch.uint8).numpy().tobytes() if array.numel() else b""
        elif hasattr(array, "get"):
            data = array.get().tobytes()
        else:
            import numpy

            data = numpy.asarray(array).tobytes()
        total.update(data)
    return total.hexdigest()[:16]


def run_one(name):
    function, _, _ = CHECKS[name]
    print(digest(function()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--jobs", type=int, default=4, help="so many at a time")
    parser.add_argument("--one", metavar="CHECK", help=argparse.SUPPRESS)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="all, if none is named")
    arguments = parser.parse_args()
    if arguments.one:
        return run_one(arguments.one)
    there = [n for n, (_, framework, _) in CHECKS.items() if importlib.util.find_spec(framework)]
    unknown = [n for n in arguments.checks if n not in CHECKS]
    if unknown:
        parser.error(f"no such check: {', '.join(unknown)}")
    names = [n for n in there if not arguments.checks or n in arguments.checks]
    if arguments.list:
        return print("\n".join(names))
    running, failed = [], 0
    while names or running:
        while names and len(running) < arguments.jobs:
            name = names.pop(0)
            command = [sys.executable, os.path.abspath(__file__), "--one", name]
            environment = {**os.environ, **CHECKS[name][2]}
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, errors="replace")
            running.append((name, time.monotonic(), process))
        name, began, process = running.pop(0)
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += "\nkilled after 120 s"
        took = time.monotonic() - began
        if process.returncode == 0:
            print(f"{name} ok {out.split()[-1]} {took:.1f}", flush=True)
        else:
            failed += 1
            lines = [line for line in err.splitlines() if line.strip()]
            print(f"{name} failed {process.returncode}: {lines[-1] if lines else ''}", flush=True)
            if log := os.environ.get("CHECKS_LOG"):
                with open(os.path.join(log, name + ".log"), "w", encoding="utf-8") as file:
                    file.write(err)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
