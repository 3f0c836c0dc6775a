"""Trains a small network with PyTorch, and prints each step's loss to the bit: what a preempted run is compared by.

    train.py [--model transformer|cnn] [--steps N] [--graph] [--loader] [--amp] [--pause SECONDS] [--time]
"""

import argparse
import struct
import sys
import time

import torch
from torch import nn


class Transformer(nn.Module):
    """A language model of a few layers."""

    def __init__(self, words=512, width=256, layers=4):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x))).flatten(0, 1)


def cnn():
    """An image classifier of a few layers."""

    def block(a, b):
        return [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*block(3, 64), *block(64, 128), *block(128, 256), nn.Flatten(), nn.Linear(256 * 16, 10))


def batches(arguments, device):
    """Endless (input, target) on the device."""
    generator = torch.Generator().manual_seed(2)
    if arguments.model == "transformer":
        x = torch.randint(0, 512, (64, 16, 128), generator=generator)
        data = torch.utils.data.TensorDataset(x, x.roll(1, 2).flatten(1))
    else:
        x = torch.randn(64, 64, 3, 32, 32, generator=generator)
        data = torch.utils.data.TensorDataset(x, torch.randint(0, 10, (64, 64), generator=generator))
    workers = {"num_workers": 2, "pin_memory": True, "persistent_workers": True} if arguments.loader else {}
    loader = torch.utils.data.DataLoader(data, batch_size=None, **workers)
    while True:
        for x, target in loader:
            yield x.to(device, non_blocking=True), target.to(device, non_blocking=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["transformer", "cnn"], default="transformer")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--graph", action="store_true", help="each step is the launch of a CUDA graph")
    parser.add_argument("--loader", action="store_true", help="batches come from processes, through pinned memory")
    parser.add_argument("--amp", action="store_true", help="bfloat16 where autocast takes it")
    parser.add_argument("--pause", type=float, default=0, help="sleep between steps, seconds")
    parser.add_argument("--time", action="store_true", help="print only how long a step takes, in milliseconds")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    device = torch.device("cuda")
    net = (Transformer() if arguments.model == "transformer" else cnn()).to(device)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-4, capturable=arguments.graph)
    stream = batches(arguments, device)
    x, target = (part.clone() for part in next(stream))

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=arguments.amp):
            loss = nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=not arguments.graph)
        return loss.detach()

    if arguments.graph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()

        def step():
            graph.replay()
            return captured

    times = []
    for number in range(arguments.steps):
        began = time.perf_counter()
        for place, part in zip((x, target), next(stream)):
            place.copy_(part)
        loss = step().item()
        times.append(time.perf_counter() - began)
        if not arguments.time:
            print(number, struct.pack(">f", loss).hex(), flush=True)
        time.sleep(arguments.pause)
    if arguments.time:
        times = sorted(times[len(times) // 4 :])
        print(f"{times[len(times) // 2] * 1000:.3f}")


if __name__ == "__main__":
    sys.exit(main())
