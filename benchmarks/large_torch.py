"""Large PyTorch networks: a ResNet of eleven million weights, and a frozen trunk of 25 million.

    python -m benchmarks.large_torch resnet-scales | resnet-head | trunk

It needs torch and torchax (requirements-torch.txt). Each case prints seconds and the peak memory of its
process. The networks have random weights: only the size matters here.
"""

from __future__ import annotations

import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn

import partialbayes as pb
from benchmarks.measure import peak_memory


class Block(nn.Module):
    def __init__(self, before: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.short = nn.Identity()
        if stride > 1:
            conv = nn.Conv2d(before, width, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(width))

    def forward(self, x):
        hidden = nn.functional.relu(self.bn1(self.conv1(x)))
        return nn.functional.relu(self.bn2(self.conv2(hidden)) + self.short(x))


def resnet18(classes: int = 10) -> nn.Module:
    """The layers of ResNet-18, 11.2 million weights."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, width, stride), Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def resnet(stochastic, size: int = 64, rows: int = 40, particles: int = 4) -> None:
    torch.manual_seed(0)
    network = pb.from_torch(resnet18())
    model = pb.partial_bnn(
        network, stochastic, pb.categorical(), pb.priors.centered_on(network, 0.1), freeze="**"
    )
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(rows, 3, size, size)).astype(np.float32), rng.integers(0, 10, rows))
    begin = time.perf_counter()
    algorithm = pb.ohsmc(model, num_particles=particles)
    trained = pb.fit(algorithm, data, epochs=1, batch_size=rows // 10)
    steps = len(trained.history.metrics["loss"])
    _say(
        model, f"{steps} steps, images of {size} × {size}, batches of {rows // 10}, J={particles}", begin
    )


def trunk(rows: int = 4000, classes: int = 10) -> None:
    """25 million weights in the trunk, 10,000 in the head."""
    torch.manual_seed(0)
    width = 3240
    module = nn.Sequential(
        nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width),
        nn.ReLU(), nn.Linear(width, 999), nn.ReLU(), nn.Linear(999, classes),
    )  # fmt: skip
    print(sum(p.numel() for p in module.parameters()), "weights")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 256)).astype(np.float32)
    y = rng.integers(0, classes, rows)
    network = pb.from_torch(module)
    model = pb.partial_bnn(
        network, "8/*", pb.categorical(), pb.priors.centered_on(network, 0.1), freeze="**"
    )
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        cut = pb.model.split_trunk(model, x)
        features = cut.features(x, folder=folder)
        _say(model, f"features of {rows} rows to disk", begin)
        algorithm = pb.ohsmc(cut.head, num_particles=100)
        stream = pb.training.data_source((features, y), batch_size=200)
        trained = pb.fit(algorithm, stream, epochs=5)
    steps = len(trained.history.metrics["loss"])
    _say(model, f"and {steps} steps of OHSMC, J=100, batches of 200", begin)


def _say(model, what: str, begin: float) -> None:
    seconds = time.perf_counter() - begin
    print(f"d={model.split.dim}: {what}: {seconds:.0f} s, peak {peak_memory() / 1e9:.2f} GB", flush=True)


CASES = {
    "resnet-scales": lambda: resnet(pb.subsets.normalization_scales()),
    "resnet-head": lambda: resnet(pb.subsets.output_layer()),
    "trunk": trunk,
}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
