"""Figures of `docs/defaults.md` that `calibration.py` and `dimensions.py` do not have, one line each.

Run: python benchmarks/defaults.py [crescent window resampling crps beta silent]
"""

from __future__ import annotations

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
from reproduction.experiments.crescent_oracle import crescent as crescent_of

import partialbayes as pb
from benchmarks.dimensions import linear_model

RUNS = 8


def crescent() -> None:
    """Variances at ψ = 1 over those of quadrature: after `ohsmc` and after `refine`, at defaults."""
    targets = jnp.asarray(0.5 + np.random.default_rng(3).normal(size=100), float)
    oracle, inputs = crescent_of(targets, 1.0), jnp.zeros((100, 1))
    axis = np.linspace(-6.0, 6.0, 601)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    weights = np.exp(np.asarray(oracle.log_density(1.0, jnp.asarray(points, float)), np.float64))
    weights /= weights.sum()
    mean = np.einsum("ab,abc->c", weights, points)
    exact = np.einsum("ab,abc->c", weights, (points - mean) ** 2)
    still = pb.ohsmc(oracle.model, optimizer=optax.set_to_zero())
    found = []
    for key in range(RUNS):
        trained = pb.fit(still, (inputs, targets), epochs=10, batch_size=10, key=key)
        refined = pb.refine(oracle.model, trained, (inputs, targets), key=key).posterior
        clouds = (trained.posterior, refined)
        found.append([pb.weights.weighted_variance(cloud.particles) / exact for cloud in clouds])
    report("crescent, after ohsmc, both variances", np.asarray(found)[:, 0])
    report("crescent, then refine", np.asarray(found)[:, 1])


def window() -> None:
    """A linear model of 5 weights: variance over the exact one, and the mean in posterior variances."""
    model, dim = linear_model("linear", 5), 5
    algorithm = pb.ohsmc(model, num_particles=400, optimizer=optax.set_to_zero())
    filling, moving = [], []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(200, dim))
        y = x @ rng.normal(size=dim) + rng.normal(size=200)

        def off(online: pb.online.OnlineState, begin: int, end: int, x=x, y=y) -> tuple[float, float]:
            covariance = np.linalg.inv(np.eye(dim) + x[begin:end].T @ x[begin:end])
            values = np.asarray(online.posterior.particles.values, np.float64)
            error = values.mean(axis=0) - covariance @ x[begin:end].T @ y[begin:end]
            precision = np.linalg.inv(covariance)
            return np.trace(precision @ np.cov(values.T)) / dim, error @ precision @ error / dim

        for size, found in ((200, filling), (100, moving)):
            online = pb.online.start(algorithm, (x[:20], y[:20]), window_size=size, key=seed)
            for begin in range(20, 200, 20):
                online, _ = pb.online.update(online, (x[begin : begin + 20], y[begin : begin + 20]))
            found.append(off(online, 200 - size, 200))
    report("window that fills, variance and mean", np.asarray(filling))
    report("window that moves, variance and mean", np.asarray(moving))


def resampling() -> None:
    """Particles of weight zero that are copied."""
    for size in (10**5, 10**6):
        rng = np.random.default_rng(0)
        weights = np.where(rng.uniform(size=size) < 0.5, 0.0, rng.exponential(size=size))
        with np.errstate(divide="ignore"):
            log_weights = jnp.asarray(np.log(weights / weights.sum()), jnp.float32)
        particles = pb.types.Particles(jnp.zeros((size, 1)), log_weights)
        for scheme in (pb.resampling.stratified, pb.resampling.systematic, pb.resampling.multinomial):
            ancestors = np.asarray(scheme(jax.random.key(0), particles)[1])
            print(
                f"J = {size}, {scheme.__name__}: {(weights[ancestors] == 0.0).sum()} copies of weight 0"
            )


def crps() -> None:
    """CRPS from draws over the closed form, for particles of uneven weights."""
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(50, 3)), float)
    model = linear_model("linear", 3)
    psi = model.init(jax.random.key(0)).psi
    ratios = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        log_weights = jnp.asarray(np.log(rng.dirichlet(0.1 * np.ones(100)) + 1e-30), jnp.float32)
        values = jnp.asarray(3.0 * rng.normal(size=(100, 3)), float)
        particles = pb.types.Particles(values, log_weights - jax.nn.logsumexp(log_weights))
        predictive = pb.predict(model, pb.types.Posterior(psi, particles), inputs)
        targets = jnp.asarray(3.0 * rng.normal(size=50), float)
        exact = pb.metrics.crps(predictive, targets)
        samples = predictive.even_sample(jax.random.key(seed))
        equal = jnp.full(len(samples), -jnp.log(float(len(samples))))
        drawn = pb.metrics.sample_crps(samples, equal, targets)
        ratios.append([float(jnp.mean(drawn) / jnp.mean(exact))])
    report("CRPS of draws over the exact one", np.asarray(ratios))


def beta() -> None:
    """Second stages at one ψ with a likelihood whose gradient is that of the β-NLL, and without."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1))
    data = (x, 0.5 * x[:, 0] + np.exp(0.3 * x[:, 0]) * rng.normal(size=60))
    for value in (0.0, 0.5):
        likelihood = (
            pb.likelihoods.heteroscedastic(beta=value) if value else pb.likelihoods.heteroscedastic()
        )
        model = pb.partial_bnn(pb.mlp([1, 3, 2]), "layers/1/*", likelihood)
        trained = pb.fit(pb.map_estimate(model), data, epochs=300)
        psi = trained.posterior.psi if value == 0.0 else psi
        start = trained.posterior._replace(psi=psi)
        nuts = pb.samplers.nuts(num_warmup=500, num_draws=500)
        laplace = pb.samplers.laplace(num_particles=100)
        chains = pb.training.second_stage(nuts, model, start, data)[1]
        normal = pb.training.second_stage(laplace, model, start, data)[1]
        r_hat, log_evidence = np.nanmax(chains.r_hat), float(normal.log_evidence)
        print(f"beta = {value}: NUTS R-hat {r_hat:.3f}, Laplace log Z {log_evidence:.3f}")


def silent() -> None:
    """What is said of HMC that cannot work, and what SGLD does on a sine at its defaults."""
    rng = np.random.default_rng(0)
    x = np.linspace(-3.0, 3.0, 200)[:, None]
    data = (x, np.sin(2.0 * x[:, 0]) + 0.1 * rng.normal(size=200))
    model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/1/*", pb.gaussian(0.01))
    trained = pb.fit(pb.map_estimate(model), data, epochs=20, batch_size=20)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        wild = pb.samplers.hmc(step_size=10.0, num_leapfrog_steps=10, num_warmup=100, num_draws=1000)
        pb.training.second_stage(wild, model, trained.posterior, data)
    print(f"HMC with steps of 10: {[str(one.message) for one in raised]}")
    loss = pb.fit(pb.algorithms.sgld(model), data, epochs=20, batch_size=20).history.metrics["loss"]
    first, most, last = loss[0], loss.max(), loss[-20:].mean()
    print(f"SGLD on a sine: loss {first:.3g} at first, {most:.3g} at most, {last:.3g} at last")


def report(name: str, found: np.ndarray) -> None:
    """The mean of each column over runs ± its standard error."""
    errors = found.std(axis=0, ddof=1) / len(found) ** 0.5
    pairs = zip(found.mean(axis=0), errors, strict=True)
    print(f"{name}: " + ", ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in pairs), flush=True)


PARTS = {part.__name__: part for part in (crescent, window, resampling, crps, beta, silent)}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
