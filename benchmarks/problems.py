"""The paper's networks on data of the paper's shapes; made up where only the shape matters."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from reproduction.networks.cnn import cnn
from sklearn.datasets import make_moons

import partialbayes as pb
from benchmarks.naive import plain_cnn


class Problem(NamedTuple):
    """A model with data to train on, and how many rows a step takes.

    `reference` is the same model on the network as one would write it down; it is the naive method's.
    """

    name: str
    model: pb.types.Model
    reference: pb.types.Model
    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    batch_size: int


def two_moons(rows: int = 100, batch_size: int = 20, widths: tuple[int, ...] = (100, 20, 5)) -> Problem:
    model = pb.partial_bnn(pb.mlp([2, *widths, 1]), f"layers/{len(widths) - 1}/**", pb.bernoulli())
    x, y = make_moons(2 * rows, noise=0.3, random_state=0)
    return Problem("two moons", model, model, (x[:rows], y[:rows]), (x[rows:], y[rows:]), batch_size)


def regression() -> Problem:
    model = pb.partial_bnn(pb.mlp([1, 20, 10, 1]), "layers/1/**", pb.gaussian())
    generator = np.random.default_rng(0)
    x = generator.uniform(-6, 6, (200, 1))
    y = x[:, 0] * np.sin(x[:, 0] * np.tanh(x[:, 0])) + generator.normal(size=200)
    return Problem("regression", model, model, (x[:100], y[:100]), (x[100:], y[100:]), 20)


def uci_size() -> Problem:
    """The network of the UCI experiments, on a table of concrete's shape."""
    model = pb.partial_bnn(pb.mlp([8, 50, 20, 5, 1]), "layers/2/**", pb.gaussian())
    generator = np.random.default_rng(0)
    x = generator.normal(size=(927, 8))
    y = np.sin(x[:, 0]) + 0.3 * generator.normal(size=927)
    return Problem("UCI size", model, model, (x[:618], y[:618]), (x[618:], y[618:]), 50)


def mnist(rows: int = 200, batch_size: int = 20) -> Problem:
    """The network of the MNIST experiment; noise for images, since only their shape matters here."""
    images = np.asarray(jax.random.uniform(jax.random.key(0), (rows, 28, 28, 1)))
    labels = np.asarray(jax.random.randint(jax.random.key(1), (rows,), 0, 10))
    model = pb.partial_bnn(cnn(), "layers/0/**", pb.categorical())
    reference = pb.partial_bnn(plain_cnn(), "layers/0/**", pb.categorical())
    data = (images, labels)
    return Problem("MNIST network", model, reference, data, data, batch_size)
