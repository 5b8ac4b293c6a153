"""Last-layer Laplace of laplace-torch and `bayesianize`, on the same trained PyTorch CNN.

    python -m benchmarks.laplace_torch [rows] [epochs]

It needs torch, torchax and laplace-torch, which are in no lock of this project (requirements-torch.txt;
pip install laplace-torch). The CNN is trained on ``rows`` images of MNIST (10,000 by default) for
``epochs`` (6 by default); 2,000 further ones choose, the first 2,000 test images and as many of
Fashion-MNIST score. Each method runs in a process of its own, so that the seconds of the processor and
the peak of memory are its own. Every method is scored by the entropy of its predictions, by their mutual
information where it has draws, and by the energy of its mean logits (those of Laplace are the
network's); ``strangeness`` is that of `bayesianize`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from reproduction.data import fashion_mnist, mnist
from torch import nn

from benchmarks.measure import peak_memory
from partialbayes import metrics

CHOOSE, SCORE = 2000, 2000


class CNN(nn.Module):
    """Two convolutions, a hidden layer, a head."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(512, 64), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.trunk(x))


def load(rows: int):
    """Training, choosing and scoring rows, and inputs from elsewhere; NCHW."""
    data, other = mnist(progress=False), fashion_mnist(progress=False)
    images = data.train_inputs.transpose(0, 3, 1, 2).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))[: rows + CHOOSE]
    labels = np.asarray(data.train_targets).astype(np.int64)
    train, choose = order[:rows], order[rows:]
    test = data.test_inputs[:SCORE].transpose(0, 3, 1, 2).astype(np.float32)
    away = other.test_inputs[:SCORE].transpose(0, 3, 1, 2).astype(np.float32)
    return (
        (images[train], labels[train]),
        (images[choose], labels[choose]),
        (test, np.asarray(data.test_targets)[:SCORE].astype(np.int64)),
        away,
    )


def train_cnn(images, labels, epochs: int = 6) -> CNN:
    torch.manual_seed(0)
    model = CNN()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    inputs, targets = torch.tensor(images), torch.tensor(labels)
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    return model.eval()


def entropy(probabilities):
    return -(probabilities * np.log(np.maximum(probabilities, 1e-12))).sum(-1)


def energy(logits):
    highest = logits.max(-1)
    return -highest - np.log(np.exp(logits - highest[:, None]).sum(-1))


def scores(probabilities, labels, away, **others) -> dict[str, float]:
    """The scores of class probabilities; ``others`` are uncertainties inside and outside."""
    others = {"entropy": (entropy(probabilities), entropy(away))} | others
    found = {
        "NLPD": float(-np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-12)).mean()),
        "accuracy": float((probabilities.argmax(-1) == labels).mean()),
        "ECE": float(metrics.expected_calibration_error(probabilities, labels)),
    }
    return found | {f"AUROC {name}": float(metrics.auroc(*pair)) for name, pair in others.items()}


def logits_of(model, test, away):
    with torch.no_grad():
        return [model(torch.tensor(x)).numpy() for x in (test[0], away)]


def as_it_was(model, train, choose, test, away):
    logits = logits_of(model, test, away)
    inside, outside = (torch.tensor(one).softmax(-1).numpy() for one in logits)
    return scores(inside, test[1], outside, energy=[energy(one) for one in logits])


def laplace(structure: str, link: str):
    def run(model, train, choose, test, away):
        from laplace import Laplace
        from torch.utils.data import DataLoader, TensorDataset

        energies = [energy(one) for one in logits_of(model, test, away)]
        loader = DataLoader(TensorDataset(*map(torch.tensor, train)), batch_size=256)
        la = Laplace(
            model, "classification", subset_of_weights="last_layer", hessian_structure=structure
        )
        la.fit(loader)
        la.optimize_prior_precision(method="marglik")
        if link == "probit":
            inside, outside = (
                la(torch.tensor(x), link_approx="probit").detach().numpy() for x in (test[0], away)
            )
            return scores(inside, test[1], outside, energy=energies)
        drawn = [
            la.predictive_samples(torch.tensor(x), pred_type="glm", n_samples=100).detach().numpy()
            for x in (test[0], away)
        ]
        means = [samples.mean(0) for samples in drawn]
        information = [
            entropy(mean) - entropy(samples).mean(0) for mean, samples in zip(means, drawn, strict=True)
        ]
        return scores(means[0], test[1], means[1], information=information, energy=energies)

    return run


def bayesian(*dense, **options):
    """`bayesianize`; with names of layers, low-rank factors of their kernels are random."""

    def run(model, train, choose, test, away):
        import partialbayes as pb

        network = pb.from_torch(model)
        if dense:
            network = pb.networks.low_rank(network, dense, 4)
        result = pb.bayesianize(network, train, validation=choose, **options)
        inside, outside = result.predict(test[0]), result.predict(away)
        features = [result.trunk.features(x)[0] for x in (train[0], test[0], away)]
        density = pb.metrics.feature_density(features[0], train[1])
        found = scores(
            np.asarray(inside.probabilities),
            test[1],
            np.asarray(outside.probabilities),
            information=(inside.mutual_information, outside.mutual_information),
            energy=(pb.metrics.energy(inside), pb.metrics.energy(outside)),
            density=[density(one) for one in features[1:]],
            strangeness=(result.strangeness(test[0]), result.strangeness(away)),
        )
        return found | {"width": result.width, "temperature": result.temperature}

    return run


def low_rank(model, train, choose, test, away):
    import partialbayes as pb

    return bayesian(
        "trunk/7/weight",
        "head/weight",
        stochastic="factors/**/output",
        widths=(0.1, 0.3, 1.0),
        sampler=pb.samplers.laplace(num_particles=100, num_steps=100),
    )(model, train, choose, test, away)


METHODS = {
    "the network as it was": as_it_was,
    "laplace-torch, last layer, full, probit": laplace("full", "probit"),
    "laplace-torch, last layer, full, samples": laplace("full", "mc"),
    "laplace-torch, last layer, kron, probit": laplace("kron", "probit"),
    "bayesianize, head": bayesian(),
    "bayesianize, low rank, dense layers": low_rank,
}


def one(name: str, rows: int, weights: str) -> None:
    model = CNN()
    model.load_state_dict(torch.load(weights, weights_only=True))
    data = load(rows)
    model.eval()
    begin = time.process_time()
    found = METHODS[name](model, *data)
    seconds = time.process_time() - begin
    print(json.dumps(found | {"seconds": seconds, "peak memory, MB": peak_memory() / 1e6}))


def main(rows: int, epochs: int) -> None:
    train, *_ = load(rows)
    with tempfile.TemporaryDirectory() as folder:
        weights = str(Path(folder) / "cnn.pt")
        torch.save(train_cnn(*train, epochs).state_dict(), weights)
        for name in METHODS:
            command = [sys.executable, "-m", "benchmarks.laplace_torch", str(rows), name, weights]
            done = subprocess.run(command, capture_output=True, text=True)
            line = done.stdout.strip().splitlines()[-1] if done.returncode == 0 else done.stderr[-300:]
            print(f"{name:45s} {line}", flush=True)


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    if len(sys.argv) > 3:
        one(sys.argv[2], number, sys.argv[3])
    else:
        main(number, int(sys.argv[2]) if len(sys.argv) > 2 else 6)
