"""The one-pass gradient and what it costs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.feynman_kac._gradients import joint_gradient, one_pass, sampled_pass
from partialbayes.model._batch import full_batch
from tests.oracles import conjugate

ORACLE = conjugate()


def moons_like(hidden=(30, 10, 5)):
    model = pb.partial_bnn(pb.mlp([2, *hidden, 1]), f"layers/{len(hidden) - 1}/*", pb.bernoulli())
    inputs = jax.random.normal(jax.random.key(0), (16, 2))
    return model, full_batch(inputs, (inputs[:, 0] > 0).astype(jnp.int32))


def naive(model, values, psi, batch, weights):
    """The weighted sum of the particles' own gradients, one by one."""

    def objective(psi, phi):
        return batch.scale * model.log_likelihood(phi, psi, batch).sum() + model.log_prior(phi, psi)

    own_gradient = jax.jit(jax.grad(objective))
    total = jax.tree.map(jnp.zeros_like, psi)
    for phi, weight in zip(values, weights, strict=True):
        total = jax.tree.map(lambda a, b, w=weight: a + w * b, total, own_gradient(psi, phi))
    return total


@pytest.fixture(scope="module", params=["network", "learned noise and prior scale"])
def case(request):
    """A model, seven particles, ψ, and a batch of a part of the rows."""
    if request.param == "network":
        model, batch = moons_like()
    else:
        model, batch = ORACLE.model, full_batch(ORACLE.inputs, ORACLE.targets)
    batch = batch._replace(scale=jnp.asarray(3.0), mask=batch.mask.at[-1].set(False))

    @jax.jit
    def draw():
        psi = model.init(jax.random.key(1)).psi
        return model.sample_prior(jax.random.key(2), psi, 7), psi

    return model, *draw(), batch


def test_equals_the_naive_weighted_sum(case):
    model, values, psi, batch = case

    @jax.jit
    def ours():
        log_likelihoods, gradient = one_pass(model, values, psi, batch)
        weights = jax.nn.softmax(log_likelihoods)
        return log_likelihoods, weights, gradient(weights)

    log_likelihoods, weights, gradient = ours()
    own = jax.jit(lambda phi: model.log_likelihood(phi, psi, batch).sum())
    np.testing.assert_allclose(log_likelihoods, [own(phi) for phi in values], rtol=1e-5)
    expected = naive(model, values, psi, batch, weights)
    for ours, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5 * float(jnp.abs(theirs).max()))


def test_joint_gradient_equals_the_naive_ones(case):
    model, values, psi, batch = case

    def potential(phi):
        return model.log_likelihood(phi, psi, batch).sum()

    def objective(phi):
        return batch.scale * potential(phi) + model.log_prior(phi, psi)

    def weigh(log_likelihoods):
        return jax.nn.softmax(0.3 * log_likelihoods)

    value_and_gradient = jax.jit(jax.value_and_grad(objective))
    of_potential = jax.jit(jax.value_and_grad(potential))
    for of_data, weights in ((None, np.full(7, 1 / 7, np.float32)), (weigh, None)):
        more = {} if of_data is None else {"weigh": of_data}
        found = jax.jit(partial(joint_gradient, model, **more))(values, psi, batch)
        log_likelihoods, log_densities, slopes, of_psi = found
        if weights is None:
            weights = weigh(log_likelihoods)
            assert float(weights.max()) > 0.2  # uneven
        for j, phi in enumerate(values):
            value, gradient = value_and_gradient(phi)
            np.testing.assert_allclose(log_densities[j], value, rtol=1e-5)
            np.testing.assert_allclose(slopes.log_density[j], gradient, rtol=1e-4, atol=1e-4)
            log_likelihood, slope = of_potential(phi)
            np.testing.assert_allclose(log_likelihoods[j], log_likelihood, rtol=1e-5)
            np.testing.assert_allclose(slopes.log_potential[j], slope, rtol=1e-4, atol=1e-4)
            rest = gradient - batch.scale * slope
            np.testing.assert_allclose(slopes.log_prior[j], rest, rtol=1e-4, atol=1e-3)
        expected = naive(model, values, psi, batch, weights)
        for ours, theirs in zip(jax.tree.leaves(of_psi), jax.tree.leaves(expected), strict=True):
            largest = float(jnp.abs(theirs).max())
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5 * largest)


def step_memory(num_particles, hidden, num_data=4):
    """Bytes the compiled OHSMC step needs besides its arguments and results."""
    model, batch = moons_like(hidden)
    batch = jax.tree.map(lambda leaf: leaf[:num_data] if leaf.ndim else leaf, batch)
    algorithm = pb.ohsmc(model, num_particles=num_particles)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    compiled = jax.jit(algorithm.step).lower(jax.random.key(0), state, batch).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_memory_does_not_grow_with_particles_times_psi():
    """Two networks with the same layers after the trunk, one with a trunk of 250,000 weights."""
    narrow = step_memory(200, (10, 10, 5)) - step_memory(20, (10, 10, 5))
    wide = step_memory(200, (25_000, 10, 5)) - step_memory(20, (25_000, 10, 5))
    per_particle_gradients = 180 * 4 * 25_000 * 10
    assert wide - narrow < per_particle_gradients / 100


def test_trunk_runs_once_for_all_particles():
    model, batch = moons_like((400, 10, 5))

    def flops(num_particles):
        psi = jax.eval_shape(model.init, jax.random.key(0)).psi
        values = jax.ShapeDtypeStruct((num_particles, model.split.dim), jnp.float32)
        function = jax.jit(jax.vmap(model.log_likelihood, in_axes=(0, None, None)))
        return function.lower(values, psi, batch).compile().cost_analysis()["flops"]

    trunk = 16 * 2 * (2 * 400 + 400 * 10)
    assert flops(1) > trunk
    assert flops(11) - flops(1) < trunk


class TestGradientOfFewParticles:
    """`gradient_particles`: K particles drawn by weight stand for J in the backward pass."""

    def test_is_unbiased(self):
        model, batch = ORACLE.model, full_batch(ORACLE.inputs, ORACLE.targets)

        @jax.jit
        def of_all():
            psi = model.init(jax.random.key(1)).psi
            values = model.sample_prior(jax.random.key(2), psi, 40)
            log_likelihoods, gradient = one_pass(model, values, psi, batch)
            weights = jax.nn.softmax(0.2 * log_likelihoods)  # uneven, but not all on one
            exact = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient(weights))])
            return psi, values, log_likelihoods, weights, exact

        psi, values, log_likelihoods, weights, exact = of_all()

        def of_few(key, weights):
            same, gradient = sampled_pass(key, 5, model, values, psi, batch)
            return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient(weights))]), same

        replicates = jax.jit(jax.vmap(of_few, in_axes=(0, None)))
        found, same = replicates(jax.random.split(jax.random.key(3), 2000), weights)
        np.testing.assert_allclose(same[0], log_likelihoods, rtol=1e-5)

        def worst_z(found):
            return np.max(np.abs((found.mean(0) - exact) / (found.std(0) / len(found) ** 0.5)))

        assert worst_z(np.asarray(found)) < 4.5
        # The test can fail: particles drawn evenly are found out.
        even, _ = replicates(jax.random.split(jax.random.key(4), 2000), jnp.full(40, 1 / 40))
        assert worst_z(np.asarray(even)) > 20.0

    def test_the_backward_pass_costs_few_particles(self):
        """In FLOPs, and in the memory that the forward pass keeps for it."""
        model = pb.partial_bnn(pb.mlp([2, 8, 64, 64, 1]), "layers/0/*", pb.bernoulli())
        _, batch = moons_like()
        psi = jax.eval_shape(model.init, jax.random.key(0)).psi
        values = jax.ShapeDtypeStruct((400, model.split.dim), jnp.float32)

        def cost(differentiate):
            def gradient_of_psi(key, values, psi):
                log_likelihoods, gradient = differentiate(key, model, values, psi, batch)
                return gradient(jax.nn.softmax(log_likelihoods))

            compiled = jax.jit(gradient_of_psi).lower(jax.random.key(0), values, psi).compile()
            memory = compiled.memory_analysis()
            return compiled.cost_analysis()["flops"], memory.temp_size_in_bytes

        all_flops, all_bytes = cost(lambda key, *arguments: one_pass(*arguments))
        few_flops, few_bytes = cost(lambda key, *arguments: sampled_pass(key, 8, *arguments))
        # One product of matrices forward, two backward: a third is left.
        assert few_flops < 0.4 * all_flops
        assert few_bytes < 0.7 * all_bytes


def test_what_stands_in_a_masked_row_reaches_nothing():
    """Not even NaN, in values or in gradients."""
    data = full_batch(ORACLE.inputs, ORACLE.targets)
    clean = data._replace(mask=data.mask.at[3].set(False))
    dirty = clean._replace(
        inputs=clean.inputs.at[3].set(jnp.nan), targets=clean.targets.at[3].set(jnp.nan)
    )
    phi, psi = ORACLE.model.init(jax.random.key(0))

    def value(phi, psi, batch):
        return ORACLE.model.log_likelihood(phi, psi, batch).sum()

    both_ways = jax.jit(jax.value_and_grad(value, argnums=(0, 1)))
    both = [both_ways(phi, psi, batch) for batch in (clean, dirty)]
    for a, b in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_array_equal(a, b)
    short = jax.tree.map(lambda leaf: jnp.delete(leaf, 3, axis=0) if leaf.ndim else leaf, data)
    unpadded = both_ways(phi, psi, short)
    for a, b in zip(jax.tree.leaves(both[1]), jax.tree.leaves(unpadded), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * float(jnp.abs(b).max()))
