"""Chunks of particles and rows: the same results, in less memory."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.feynman_kac._gradients import joint_gradient, one_pass
from partialbayes.model._batch import full_batch, split_rows
from partialbayes.resampling import subsample
from partialbayes.training._memory import bytes_of_a_step

MODEL = pb.partial_bnn(
    pb.mlp([2, 12, 6, 1]),
    "layers/1/*",
    pb.gaussian(variance=pb.learned(0.5)),
    pb.priors.normal(scale=pb.learned(1.0)),
)
INPUTS = jax.random.normal(jax.random.key(0), (17, 2))
TARGETS = INPUTS[:, 0] - INPUTS[:, 1]
BATCH = full_batch(INPUTS, TARGETS)._replace(scale=jnp.asarray(3.0), mask=jnp.arange(17) < 16)
PSI = MODEL.init(jax.random.key(1)).psi
VALUES = MODEL.sample_prior(jax.random.key(2), PSI, 11)
CHUNKS = [(4, None), (None, 5), (4, 5)]


@partial(jax.jit, static_argnums=0)
def both_passes(model):
    log_likelihoods, gradient = one_pass(model, VALUES, PSI, BATCH)
    of_psi = gradient(jax.nn.softmax(log_likelihoods))
    return log_likelihoods, of_psi, joint_gradient(model, VALUES, PSI, BATCH)


def assert_close(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * float(jnp.abs(b).max()))


@pytest.mark.parametrize("chunks", CHUNKS)
def test_weights_and_gradients_are_the_same(chunks):
    assert_close(
        both_passes(pb.model.with_chunks(MODEL, particles=chunks[0], rows=chunks[1])), both_passes(MODEL)
    )


def test_a_whole_run_is_the_same():
    def train(model):
        return pb.fit(
            pb.ohsmc(
                model, num_particles=11, optimizer=optax.sgd(0.001), kernel=pb.kernels.random_walk(0.01)
            ),
            (INPUTS, TARGETS),
            epochs=2,
            batch_size=9,
            validation=(INPUTS, TARGETS),
        )

    plain, chunked = train(MODEL), train(pb.model.with_chunks(MODEL, particles=4, rows=5))
    np.testing.assert_allclose(chunked.history.validation_nlpd, plain.history.validation_nlpd, rtol=1e-4)
    assert_close(chunked.posterior.psi, plain.posterior.psi)


def test_pieces_keep_every_row_once():
    cut = split_rows(BATCH, 5)
    assert cut.mask.shape == (4, 5)
    assert int(cut.mask.sum()) == 16
    np.testing.assert_array_equal(cut.inputs.reshape(-1, 2)[:17], INPUTS)


def test_the_layers_before_the_particles_run_once():
    model = pb.model.with_chunks(MODEL, particles=2)
    jaxpr = jax.make_jaxpr(lambda psi: one_pass(model, VALUES[:10], psi, BATCH)[0])(PSI)
    products = [
        str(e.invars[1].aval.shape) for e in jaxpr.jaxpr.eqns if e.primitive.name == "dot_general"
    ]
    assert products == ["(2, 12)"]  # the first layer stands outside the loop over chunks


def test_memory_grows_with_the_chunk_and_not_with_the_particles():
    shapes = jax.eval_shape(lambda: BATCH)
    small, large = (
        bytes_of_a_step(pb.model.with_chunks(MODEL, particles=64), num, shapes) for num in (512, 2048)
    )
    plain = bytes_of_a_step(MODEL, 2048, shapes)
    assert plain > 2.5 * large
    # What is left to grow is the particles themselves.
    assert large - small < 1.5 * 4 * (2048 - 512) * 4 * MODEL.split.dim


def test_a_budget_chooses_the_chunks():
    settings = {"num_particles": 512}
    free = pb.training.with_memory_budget(MODEL, (INPUTS, TARGETS), gigabytes=1.0, **settings)
    assert free.chunks.particles is None
    needed = bytes_of_a_step(MODEL, 512, jax.eval_shape(lambda: BATCH))
    tight = pb.training.with_memory_budget(
        MODEL, (INPUTS, TARGETS), gigabytes=0.75 * needed / 1e9, **settings
    )
    assert 1 <= tight.chunks.particles < 512
    with pytest.raises(ValueError, match=r"one particle and one row at a time"):
        pb.training.with_memory_budget(MODEL, (INPUTS[:2], TARGETS[:2]), gigabytes=1e-9, **settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"particles": 0}, "particles of chunks"), ({"rows": 2.5}, "rows")],
)
def test_wrong_chunks_are_named(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        pb.model.with_chunks(MODEL, **arguments)


def test_thinned_particles_keep_the_mixture_on_average():
    log_weights = jnp.log(jnp.array([[0.1, 0.2, 0.1], [0.0, 0.3, 0.3]]))
    values = jnp.arange(6.0).reshape(2, 3, 1)
    keys = jax.random.split(jax.random.key(0), 4000)
    cloud = pb.types.Particles(values, log_weights)
    draws = jax.jit(jax.vmap(lambda key: subsample(key, cloud, 2)))(keys)
    assert draws.values.shape == (4000, 2, 2, 1)
    np.testing.assert_allclose(jnp.exp(draws.log_weights[0]).sum(axis=1), [0.4, 0.6], rtol=1e-6)
    shares = (
        jnp.exp(draws.log_weights)[..., None] * jax.nn.one_hot(draws.values[..., 0].astype(int), 6)
    ).sum((1, 2))
    error = np.asarray(shares.mean(axis=0) - jnp.exp(log_weights).ravel())
    assert np.abs(error).max() < 5 * float(shares.std(axis=0).max()) / np.sqrt(4000)
    assert float(shares[:, 3].max()) == 0.0  # no weight, never drawn


def test_validation_on_fewer_rows_and_particles():
    trained = pb.fit(
        pb.ohsmc(MODEL, num_particles=11, kernel=pb.kernels.random_walk(0.01)),
        (INPUTS, TARGETS),
        epochs=2,
        validation=pb.Validation((INPUTS, TARGETS), rows=6, particles=4),
    )
    assert np.isfinite(trained.history.validation_nlpd).all()
    assert trained.posterior.particles.values.shape[0] == 11
    with pytest.raises(ValueError, match="rows of validation is 18, but its data have only 17 rows"):
        pb.fit(
            pb.map_estimate(MODEL),
            (INPUTS, TARGETS),
            epochs=1,
            validation=pb.Validation((INPUTS, TARGETS), rows=18),
        )
    with pytest.raises(ValueError, match="validation has no data"):
        pb.fit(
            pb.map_estimate(MODEL), (INPUTS, TARGETS), epochs=1, validation=pb.Validation(None, rows=3)
        )


def test_matrix_products_in_bfloat16():
    network = pb.mlp([2, 12, 6, 1])
    half = pb.networks.bfloat16_matmuls(network)
    params = network.init(jax.random.key(0))
    products = [str(line) for line in str(jax.make_jaxpr(half.apply)(params, INPUTS)).splitlines()]
    assert sum("dot_general" in line for line in products) == 3
    exact, rough = network.apply(params, INPUTS), half.apply(params, INPUTS)
    assert rough.dtype == exact.dtype
    gap = float(jnp.abs(rough - exact).max() / jnp.abs(exact).max())
    assert 1e-6 < gap < 0.02  # the product was rounded, and only that

    def loss(apply, params):
        return jnp.square(apply(params, INPUTS)).sum()

    ours, theirs = (jax.grad(lambda p, f=net.apply: loss(f, p))(params) for net in (half, network))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=0.05 * float(jnp.abs(b).max()))


def test_the_compilation_cache_is_used_and_switched_off_again(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    with pb.io.compilation_cache(tmp_path / "programs"):
        jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(jnp.ones((3, 3))).block_until_ready()
    assert any((tmp_path / "programs").iterdir())
    assert jax.config.jax_compilation_cache_dir == before
