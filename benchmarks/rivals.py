"""Other libraries where they do the same job: resampling, and Hamiltonian Monte Carlo."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpyro.infer

import partialbayes as pb
from benchmarks.measure import Row, interleaved, row
from benchmarks.problems import two_moons
from partialbayes.feynman_kac._random import antithetic
from partialbayes.model._batch import as_batch


def noise(quick: bool) -> Iterator[Row]:
    """Standard normal draws for the moves in opposite pairs, against as many independent ones."""
    key, shape = jax.random.key(0), (1000, 105)
    jobs = {
        "independent": partial(jax.jit(lambda key: jax.random.normal(key, shape)), key),
        "pairs": partial(jax.jit(lambda key: antithetic(key, shape, "float32")), key),
    }
    ratio, spread = interleaved(jobs, 10 if quick else 201).ratio("independent", "pairs")
    yield row("noise of 1000 × 105: independent / in pairs", ratio, "times", "jax.random", None, spread)


def resampling(quick: bool) -> Iterator[Row]:
    """Indices drawn by weight, against BlackJAX's functions of the same names."""
    schemes = {
        "stratified": (pb.resampling.stratified, blackjax.smc.resampling.stratified),
        "systematic": (pb.resampling.systematic, blackjax.smc.resampling.systematic),
    }
    for size in (1000, 10**5):
        log_weights = jax.nn.log_softmax(jax.random.normal(jax.random.key(0), (size,)))
        particles = pb.types.Particles(jnp.zeros((size, 1)), log_weights)
        weights, key = jnp.exp(log_weights), jax.random.key(1)
        for name, (ours, theirs) in schemes.items():
            jobs = {
                "ours": partial(jax.jit(lambda key, p, f=ours: f(key, p)[1]), key, particles),
                "theirs": partial(jax.jit(theirs, static_argnums=2), key, weights, size),
            }
            ratio, spread = interleaved(jobs, 5 if quick else 101).ratio("theirs", "ours")
            title = f"{name} resampling, J={size}: BlackJAX / ours"
            yield row(title, ratio, "times", "BlackJAX", None, spread)


def hamiltonian(quick: bool) -> Iterator[Row]:
    """HMC over the stochastic weights of two moons, one chain, 100 leapfrog steps a draw."""
    problem, draws = two_moons(), 20 if quick else 300
    model, data = problem.model, as_batch(problem.model, problem.train, "data")
    fitted = pb.fit(pb.map_estimate(model), problem.train, epochs=20, batch_size=20)
    psi, start = fitted.posterior.psi, fitted.posterior.particles.values[0]

    def log_density(phi: jax.Array) -> jax.Array:
        return model.log_likelihood(phi, psi, data).sum() + model.log_prior(phi, psi)

    sampler = pb.samplers.hmc(
        step_size=0.01,
        num_leapfrog_steps=100,
        num_chains=1,
        num_warmup=1,
        num_draws=draws,
        num_particles=draws,
    )
    ours = jax.jit(lambda key: sampler(key, model, fitted.posterior, data)[0].particles.values)

    kernel = blackjax.hmc(log_density, 0.01, jnp.ones(start.shape), 100)

    @jax.jit
    def with_blackjax(key: jax.Array) -> Any:
        def body(state: Any, key: jax.Array) -> Any:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(body, kernel.init(start), jax.random.split(key, draws))[1]

    potential = numpyro.infer.HMC(
        potential_fn=lambda phi: -log_density(phi),
        step_size=0.01,
        trajectory_length=1.0,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    chain = numpyro.infer.MCMC(potential, num_warmup=0, num_samples=draws, progress_bar=False)

    def with_numpyro() -> Any:
        chain.run(jax.random.key(0), init_params=start)
        return chain.get_samples()

    key = jax.random.key(0)
    jobs = {
        "ours": partial(ours, key),
        "BlackJAX": partial(with_blackjax, key),
        "NumPyro": with_numpyro,
    }
    times = interleaved(jobs, 3 if quick else 7)
    for rival in ("BlackJAX", "NumPyro"):
        ratio, spread = times.ratio(rival, "ours")
        title = f"HMC, two moons, {draws} draws × 100 leapfrog: {rival} / ours"
        yield row(title, ratio, "times", rival, None, spread)
