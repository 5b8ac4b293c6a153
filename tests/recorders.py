"""Algorithms that learn nothing: one notes what it is given, the other does as it is told."""

import jax
import jax.numpy as jnp

import partialbayes as pb


def linear(dim: int) -> pb.types.Model:
    """y = x φ + N(0, 1), without a ψ."""
    network = pb.types.Network(
        init=lambda key: {"slope": jnp.zeros(dim)}, apply=lambda params, x: x @ params["slope"]
    )
    return pb.partial_bnn(network, "slope", pb.gaussian())


def recorder(num_rows: int) -> pb.types.Algorithm:
    """Its only particle counts how often it was given each row of ``numbered(num_rows)``.

    A step reports the scale of its batch, the share to be forgotten, and its rows as the bits of a
    number.
    """
    model = linear(num_rows)
    psi = model.init(jax.random.key(0)).psi

    def step(key, counts, batch):
        rows = batch.mask.astype(counts.dtype) @ batch.inputs
        info = {
            "loss": jnp.zeros(()),
            "scale": batch.scale,
            "room": batch.room,
            "rows": rows @ 2.0 ** jnp.arange(num_rows),
        }
        return counts + rows, info

    return pb.types.Algorithm(
        model,
        init=lambda key: jnp.zeros(num_rows),
        step=step,
        posterior=lambda counts: pb.types.Posterior(
            psi, pb.types.Particles(counts[None, :], jnp.zeros(1))
        ),
        restart=lambda counts, posterior: posterior.particles.values[0],
    )


def numbered(num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Data whose rows tell which they are."""
    return jnp.eye(num_rows), jnp.zeros(num_rows)


def scripted(values: jax.Array, num_particles: int = 1, **info: float) -> pb.types.Algorithm:
    """All its particles are at ``values[n − 1]`` after n steps, each of which reports ``info``."""
    model = linear(1)
    psi = model.init(jax.random.key(0)).psi
    log_weights = jnp.full(num_particles, -jnp.log(num_particles))
    reported = {name: jnp.asarray(value, float) for name, value in ({"loss": 0.0} | info).items()}

    def posterior(steps):
        cloud = jnp.full((num_particles, 1), values[steps - 1])
        return pb.types.Posterior(psi, pb.types.Particles(cloud, log_weights))

    return pb.types.Algorithm(
        model,
        init=lambda key: jnp.zeros((), jnp.int32),
        step=lambda key, steps, batch: (steps + 1, reported),
        posterior=posterior,
    )
