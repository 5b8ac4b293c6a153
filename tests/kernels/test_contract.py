"""What every kernel must do, whatever it is. A new one is added to `KERNELS`."""

import warnings
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch
from partialbayes.types import Moments, Target
from partialbayes.weights import uniform_log_weights
from tests.oracles import conjugate

NUM_PARTICLES, DIM = 12, 3


def from_blackjax(variance) -> pb.types.Kernel:
    """How a user plugs in a kernel that this library does not name."""
    import blackjax

    step = partial(blackjax.barker.build_kernel(), step_size=jnp.sqrt(variance))
    return pb.kernels.from_mcmc(pb.types.ParticleKernel(blackjax.barker.init, step))


# Each is built from one number that a user may want to map over.
KERNELS: dict[str, Callable[..., pb.types.Kernel]] = {
    "random_walk": pb.kernels.random_walk,
    "ornstein_uhlenbeck": pb.kernels.ornstein_uhlenbeck,
    "random_walk_metropolis": partial(pb.kernels.random_walk_metropolis, num_steps=2),
    "random_walk_metropolis, in pairs": partial(pb.kernels.random_walk_metropolis, in_pairs=True),
    "mala": partial(pb.kernels.mala, num_steps=2),
    "unadjusted_langevin": partial(pb.kernels.unadjusted_langevin, num_steps=2),
    "hamiltonian": partial(pb.kernels.hamiltonian, num_leapfrog_steps=3),
    "guided_langevin": pb.kernels.guided_langevin,
    "adapted_hamiltonian": lambda variance: pb.kernels.adapted_hamiltonian(
        2, target_acceptance=variance
    ),
    "adapted_metropolis": lambda variance: pb.kernels.adapted_metropolis(2, target_acceptance=variance),
    "pcn": partial(pb.kernels.pcn, num_steps=2),
    "blackjax barker": from_blackjax,
}
WITHOUT_ARGUMENT: dict[str, Callable[..., pb.types.Kernel]] = {
    "identity": lambda variance: pb.kernels.identity(),
    "forgetting": lambda variance: pb.kernels.forgetting(),
    "forgetting, diagonal": lambda variance: pb.kernels.forgetting("diagonal"),
    "transport": lambda variance: pb.kernels.transport(),
    "transport, diagonal": lambda variance: pb.kernels.transport("diagonal"),
    "affine_langevin": lambda variance: pb.kernels.affine_langevin(),
    "affine_langevin, diagonal": lambda variance: pb.kernels.affine_langevin("diagonal"),
}

every_kernel = pytest.mark.parametrize(
    "build", [*KERNELS.values(), *WITHOUT_ARGUMENT.values()], ids=[*KERNELS, *WITHOUT_ARGUMENT]
)


def cloud() -> tuple[pb.types.Particles, Target]:
    values = jax.random.normal(jax.random.key(0), (NUM_PARTICLES, DIM))

    def log_potential(phi):
        return -0.5 * jnp.sum(jnp.square(phi - 0.3))

    target = Target(
        log_density=lambda phi: -0.5 * jnp.sum(jnp.square(phi)) + 4.0 * log_potential(phi),
        log_potential=log_potential,
        prior=Moments(jnp.zeros(DIM), jnp.ones(DIM)),
        fraction=jnp.asarray(0.25),
    )
    return pb.types.Particles(values, uniform_log_weights(NUM_PARTICLES)), target


@every_kernel
def test_shapes_dtypes_state_and_key(build):
    particles, target = cloud()
    kernel = build(0.1)
    state = kernel.init(particles)
    step = jax.jit(lambda key, state: kernel.step(key, particles, target, state))
    moved = step(jax.random.key(1), state)
    assert jax.typeof(moved.values) == jax.typeof(particles.values)
    assert jax.typeof(moved.log_correction) == jax.typeof(particles.log_weights)
    assert jnp.shape(moved.acceptance) == ()
    assert moved.acceptance.dtype == particles.values.dtype
    assert jax.tree.map(jax.typeof, state) == jax.tree.map(jax.typeof, moved.state)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(jax.tree.map(jax.typeof, moved)))
    assert bool(jnp.isfinite(moved.values).all())
    assert 0.0 <= float(moved.acceptance) <= 1.0
    again = step(jax.random.key(1), state)
    assert all(map(jnp.array_equal, jax.tree.leaves(moved), jax.tree.leaves(again)))


@every_kernel
def test_a_kernel_that_says_it_uses_the_batch_does_and_ohsmc_does_not_weight_by_it_again(build):
    kernel = build(0.1)
    assert kernel.fewest_particles(DIM) >= 1
    oracle = conjugate(num_data=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pb.errors.FewParticlesWarning)
        algorithm = pb.ohsmc(oracle.model, num_particles=NUM_PARTICLES, kernel=kernel)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    batch = full_batch(oracle.inputs, oracle.targets)
    _, info = jax.eval_shape(algorithm.step, jax.random.key(0), state, batch)
    assert ("log_evidence_increment" in info) == ("ess" in info) == (kernel.batch_rate == 0.0)
    if kernel.batch_rate:
        particles, target = cloud()

        def toward(center):
            """The mean of the cloud after a batch that wants it there."""

            def log_potential(phi):
                return -0.5 * jnp.sum(jnp.square(phi - center))

            def log_density(phi):
                return -0.5 * jnp.sum(jnp.square(phi)) + 4.0 * log_potential(phi)

            there = target._replace(log_density=log_density, log_potential=log_potential)
            moved = kernel.step(jax.random.key(1), particles, there, kernel.init(particles))
            return moved.values.mean(axis=0), moved.log_correction

        means, corrections = jax.jit(jax.vmap(toward))(jnp.asarray([-3.0, 3.0]))
        assert bool((means[1] - means[0] > 0.05).all())
        assert not corrections.any()  # there are no weights for it to correct


@pytest.mark.parametrize("build", KERNELS.values(), ids=KERNELS.keys())
def test_its_number_can_be_mapped_over(build):
    particles, target = cloud()

    def values(variance):
        kernel = build(variance)

        def move(state, key):
            moved = kernel.step(key, particles, target, state)
            return moved.state, moved.values

        # Two moves, for what acts through the state.
        return jax.lax.scan(move, kernel.init(particles), jax.random.split(jax.random.key(1)))[1][1]

    # The checker of keys does not see through a mapped loop whose length depends on the number.
    with jax.debug_key_reuse(False):
        several = jax.jit(jax.vmap(values))(jnp.asarray([0.1, 0.5, 0.1]))
    assert several.shape == (3, NUM_PARTICLES, DIM)
    assert jnp.allclose(several[0], several[2], atol=1e-5)
    assert not jnp.allclose(several[0], several[1], atol=1e-3)


@pytest.mark.parametrize("build", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_a_bad_number_fails_when_built(build, bad):
    if build is from_blackjax:
        pytest.skip("BlackJAX does not check")
    with pytest.raises(ValueError, match="must be positive and finite"):
        build(bad)
