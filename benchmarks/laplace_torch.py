"""Last-layer Laplace of laplace-torch and `bayesianize`, on the same trained PyTorch CNN.

    python -m benchmarks.laplace_torch [rows] [seed] [outside]

It needs torch, torchax and laplace-torch, which are in no lock of this project (requirements-torch.txt;
pip install laplace-torch). The CNN is trained on ``rows`` images of MNIST (10,000 by default) for six
epochs; 2,000 further ones choose. With ``outside`` "fashion", the default, the first 2,000 test images
and as many of Fashion-MNIST score. With "made", 2,000 training images that were held out do, and what
eight changes make of them (turned, flipped, in negative …). Uncertainties are compared on the latter;
Fashion-MNIST is for what was chosen there.

Each method runs in a process of its own, so that the seconds of the processor and the peak of memory are
its own. Every method is scored by the entropy of its predictions, by their mutual information where it
has draws, and by the energy of its mean logits (those of Laplace are the network's); ``strangeness`` is
that of `bayesianize`.
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
from scipy.ndimage import gaussian_filter
from torch import nn

from benchmarks.measure import peak_memory
from partialbayes import metrics

CHOOSE, SCORE, EPOCHS = 2000, 2000, 6


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


def load(rows: int, seed: int, outside: str):
    """Training, choosing and scoring rows, and inputs from elsewhere; NCHW."""
    data = mnist(progress=False)
    rng = np.random.default_rng(100 + seed)
    held, choose, train, _ = np.split(
        rng.permutation(len(data.train_inputs)), np.cumsum([SCORE, CHOOSE, rows])
    )

    def rows_of(inputs, targets, places):
        images = np.asarray(inputs[places]).transpose(0, 3, 1, 2).astype(np.float32)
        return images, np.asarray(targets)[places].astype(np.int64)

    known = [rows_of(data.train_inputs, data.train_targets, part) for part in (train, choose, held)]
    if outside == "made":
        return *known, made_strange(known[2][0], np.random.default_rng(seed))
    first, other = slice(0, SCORE), fashion_mnist(progress=False)
    test = rows_of(data.test_inputs, data.test_targets, first)
    return *known[:2], test, rows_of(other.test_inputs, other.test_targets, first)[0]


def made_strange(images, rng):
    """Eight changes of images; the area under the curve of all is the mean of those of each."""
    count = len(images)
    blocks = images.reshape(count, 4, 7, 4, 7).transpose(0, 1, 3, 2, 4).reshape(count, 16, 7, 7)
    blocks = np.stack([one[rng.permutation(16)] for one in blocks]).reshape(count, 4, 4, 7, 7)
    clouds = gaussian_filter(rng.normal(size=(count, 28, 28)), (0, 2, 2))
    edges = np.abs(np.gradient(images[:, 0], axis=1)) + np.abs(np.gradient(images[:, 0], axis=2))
    changes = (
        np.rot90(images, axes=(2, 3)),
        images[:, :, ::-1],
        blocks.transpose(0, 1, 3, 2, 4).reshape(images.shape),
        1.0 - images,
        0.5 * clouds[:, None] / clouds.std() + 0.2,
        np.maximum(images, images[rng.permutation(count)]),
        edges[:, None],
        images + 0.5 * rng.normal(size=images.shape),
    )
    return np.concatenate([np.clip(one, 0.0, 1.0) for one in changes]).astype(np.float32)


def train_cnn(images, labels, seed: int) -> CNN:
    torch.manual_seed(seed)
    model = CNN()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    inputs, targets = torch.tensor(images), torch.tensor(labels)
    for _ in range(EPOCHS):
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


def one(rows: int, seed: int, outside: str, name: str, weights: str) -> None:
    model = CNN()
    model.load_state_dict(torch.load(weights, weights_only=True))
    data = load(rows, seed, outside)
    model.eval()
    begin = time.process_time()
    found = METHODS[name](model, *data)
    seconds = time.process_time() - begin
    print(json.dumps(found | {"seconds": seconds, "peak memory, MB": peak_memory() / 1e6}))


def main(rows: int, seed: int, outside: str) -> None:
    train, *_ = load(rows, seed, outside)
    with tempfile.TemporaryDirectory() as folder:
        weights = str(Path(folder) / "cnn.pt")
        torch.save(train_cnn(*train, seed).state_dict(), weights)
        for name in METHODS:
            command = [sys.executable, "-m", "benchmarks.laplace_torch", str(rows), str(seed), outside]
            done = subprocess.run([*command, name, weights], capture_output=True, text=True)
            line = done.stdout.strip().splitlines()[-1] if done.returncode == 0 else done.stderr[-300:]
            print(f"{name:45s} {line}", flush=True)


if __name__ == "__main__":
    given = (*sys.argv[1:4], *("10000", "0", "fashion")[len(sys.argv) - 1 :])
    settings = int(given[0]), int(given[1]), given[2]
    if len(sys.argv) > 4:
        one(*settings, *sys.argv[4:])
    else:
        main(*settings)
