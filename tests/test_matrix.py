"""Adapter × subset × likelihood: each combination trains a few steps and predicts.

The quick tests hold every adapter, every subset and every likelihood; the whole product is slow.
"""

from itertools import product

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import partialbayes as pb
from tests.short import train_briefly

RNG = np.random.default_rng(1)
X = RNG.normal(size=(6, 2))
Y = RNG.normal(size=6)
LABELS = np.array([0, 1, 1, 0, 1, 0])

ADAPTERS = {
    "nnx": lambda outputs: pb.from_nnx(
        lambda rngs: nnx.Sequential(
            nnx.Linear(2, 4, rngs=rngs), jnp.tanh, nnx.Linear(4, outputs, rngs=rngs)
        )
    ),
    "linen": lambda outputs: pb.from_linen(
        nn.Sequential([nn.Dense(4), jnp.tanh, nn.Dense(outputs)]), jnp.ones((1, 2))
    ),
    "equinox": lambda outputs: pb.from_equinox(
        lambda key: eqx.nn.MLP(2, outputs, 4, 1, jnp.tanh, key=key)
    ),
    "plain": lambda outputs: pb.mlp([2, 4, outputs], jnp.tanh),
}

SUBSETS = {
    "glob": lambda network: "**/bias",
    "several": lambda network: ["**/bias", "**/*e*"],
    "predicate": lambda network: lambda leaf: leaf.size == 8,
    "first": lambda network: pb.subsets.layer(0),
    "role": lambda network: pb.subsets.output_layer() & ~pb.subsets.biases(),
    "everything": lambda network: "**",
    "scalar": lambda network: pb.subsets.largest(1, network.init(jax.random.key(0))),
    "fraction": lambda network: pb.subsets.random_fraction(0.3, seed=1),
}


def logistic(outputs, targets):
    return jax.scipy.stats.logistic.logpdf(targets, outputs[:, 0])


LIKELIHOODS = {
    "gaussian": (lambda: pb.gaussian(0.5), 1, Y),
    "learned": (lambda: pb.gaussian(pb.learned(np.ones(2))), 2, np.stack([Y, -Y], 1)),
    "sampled": (lambda: pb.gaussian(pb.sampled(0.5)), 1, Y),
    "heteroscedastic": (lambda: pb.likelihoods.heteroscedastic(beta=0.5), 2, Y),
    "multivariate": (
        lambda: pb.likelihoods.multivariate_gaussian(pb.learned(np.eye(2))),
        2,
        np.stack([Y, Y], 1),
    ),
    "student": (lambda: pb.likelihoods.student_t(4.0, pb.learned(1.0)), 1, Y),
    "student, predicted": (lambda: pb.likelihoods.student_t(pb.learned(4.0), "predicted"), 2, Y),
    "bernoulli": (pb.bernoulli, 1, LABELS),
    "categorical": (pb.categorical, 3, LABELS + 1),
    "poisson": (pb.likelihoods.poisson, 1, LABELS * 3),
    "missing": (
        lambda: pb.likelihoods.allow_missing(pb.gaussian()),
        1,
        np.where(LABELS == 1, np.nan, Y),
    ),
    "custom": (
        lambda: pb.likelihoods.custom(
            logistic,
            mean=lambda outputs: outputs[:, 0],
            variance=lambda outputs: jnp.full(outputs.shape[0], jnp.pi**2 / 3.0),
            sample=lambda key, outputs: outputs[:, 0] + jax.random.logistic(key, outputs.shape[:1]),
        ),
        1,
        Y,
    ),
}


def quick() -> set[tuple[str, str, str]]:
    """Every likelihood once, the adapters and subsets in turn."""
    adapters, subsets = list(ADAPTERS), list(SUBSETS)
    return {
        (adapters[i % len(adapters)], subsets[(i + i // 4) % len(subsets)], likelihood)
        for i, likelihood in enumerate(LIKELIHOODS)
    }


def combinations():
    first = quick()
    for combination in product(ADAPTERS, SUBSETS, LIKELIHOODS):
        marks = () if combination in first else (pytest.mark.slow,)
        yield pytest.param(*combination, marks=marks, id="-".join(combination))


@pytest.mark.parametrize(("adapter", "subset", "likelihood"), list(combinations()))
def test_trains_and_predicts(adapter, subset, likelihood):
    build, outputs, targets = LIKELIHOODS[likelihood]
    network = ADAPTERS[adapter](outputs)
    model = pb.partial_bnn(network, SUBSETS[subset](network), build())
    start = model.init(jax.random.split(jax.random.key(0))[0]).psi
    posterior = train_briefly(model, (X, targets))
    changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), start, posterior.psi)
    assert all(jax.tree.leaves(changed))  # the whole of ψ takes part
    parameters = model.parameters(posterior.particles.values[0], posterior.psi, jnp.asarray(X, float))
    drawn = model.likelihood.sample(jax.random.key(3), parameters)
    for value in (model.likelihood.mean(parameters), model.likelihood.variance(parameters), drawn):
        assert np.isfinite(value).all()
        assert len(value) == len(X)
