"""The convolution made for CPUs is XLA's: values and derivatives of every kind, however it is mapped."""

import sys

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import partialbayes as pb
from partialbayes.algorithms._ekf import linearize
from partialbayes.feynman_kac._gradients import one_pass
from partialbayes.model._batch import full_batch
from partialbayes.samplers._laplace import exact_hessian, gauss_newton
from reproduction.networks import conv_relu_pool as convolution
from reproduction.networks.cnn import cnn
from reproduction.networks.conv_relu_pool import by_xla, conv_relu_pool

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Three images of the largest kind here, so that several chunks and a rest occur."""
    monkeypatch.setattr(convolution, "_CHUNK_BYTES", 9 * 4 * 6 * 7 * 5 * 3)


def draw(rows=8, height=6, width=7, channels=5, outputs=3, dtype=np.float32, lead=()):
    shapes = (rows, height, width, channels), (3, 3, channels, outputs), (outputs,)
    return [jnp.asarray(RNG.normal(size=(*lead, *shape)), dtype) for shape in shapes]


def require_close(found, expected, tolerance=2e-5):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(
            ours, theirs, rtol=tolerance, atol=tolerance * (1e-6 + float(jnp.abs(theirs).max()))
        )


def both(function, *arguments, tolerance=2e-5):
    """The same function of either convolution, compiled."""
    found, expected = (
        jax.jit(lambda *args, layer=layer: function(layer, *args))(*arguments)
        for layer in (conv_relu_pool, by_xla)
    )
    require_close(found, expected, tolerance)


def score(layer):
    return lambda *arguments: jnp.sin(layer(*arguments)).sum()


def value_and_gradients(layer, *arguments):
    return layer(*arguments), jax.grad(score(layer), (0, 1, 2))(*arguments)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    st.integers(1, 9), st.integers(2, 7), st.integers(2, 7), st.integers(1, 6), st.integers(1, 4),
    st.booleans(),
)  # fmt: skip
def test_values_and_gradients(rows, height, width, channels, outputs, double):
    with jax.enable_x64(double):
        dtype = np.float64 if double else np.float32
        arguments = draw(rows, height, width, channels, outputs, dtype)
        both(value_and_gradients, *arguments, tolerance=1e-12 if double else 2e-5)


@pytest.mark.parametrize("channels", [1, 5], ids=["few channels", "many"])
@pytest.mark.parametrize(
    "axes",
    [(0, None, None), (None, 0, 0), (0, 0, 0), (None, None, 0)],
    ids=["images", "kernels", "both", "biases"],
)
def test_mapped_over_particles(axes, channels):
    """Gradients of a map and maps of a gradient."""
    alone, stacked = draw(channels=channels), draw(channels=channels, lead=(4,))
    arguments = [s if axis == 0 else a for a, s, axis in zip(alone, stacked, axes, strict=True)]

    def everything(layer, *arguments):
        mapped = jax.vmap(layer, axes)
        each = jax.vmap(jax.grad(score(layer), (0, 1, 2)), axes)
        return value_and_gradients(mapped, *arguments), each(*arguments)

    both(everything, *arguments)


def test_mapped_twice():
    """Runs of particles: every run has its own kernel, every particle its own images."""
    images = draw(lead=(2, 3))[0]
    kernels, biases = draw(lead=(2,))[1:]

    def mapped(layer, *arguments):
        of_runs = jax.vmap(jax.vmap(layer, (0, None, None)))
        return value_and_gradients(of_runs, *arguments)

    both(mapped, images, kernels, biases)


@pytest.mark.parametrize("channels", [1, 5], ids=["few channels", "many"])
def test_derivatives_of_second_order_and_forward_mode(channels):
    images, kernel, bias = draw(rows=4, channels=channels)
    step = jnp.asarray(RNG.normal(size=kernel.shape), kernel.dtype)

    def everything(layer, images, kernel, bias):
        def slope(images, kernel, bias):
            gradients = jax.grad(score(layer), (0, 1, 2))(images, kernel, bias)
            return sum(jnp.square(leaf).sum() for leaf in gradients)

        return (
            jax.jvp(layer, (images, kernel, bias), (images, step, bias)),
            jax.jacfwd(score(layer), 2)(images, kernel, bias),
            jax.jacfwd(lambda kernel: layer(images, kernel, bias).sum(axis=0))(kernel),
            jax.hessian(score(layer), 2)(images, kernel, bias),
            jax.jvp(lambda k: jax.grad(score(layer), 1)(images, k, bias), (kernel,), (step,)),
            jax.grad(slope, (0, 1, 2))(images, kernel, bias),
        )

    both(everything, images, kernel, bias, tolerance=1e-4)


def test_without_compilation_and_in_mixed_precision():
    images, kernel, bias = draw()
    require_close(conv_relu_pool(images, kernel, bias), by_xla(images, kernel, bias))
    half = conv_relu_pool(images.astype(jnp.bfloat16), kernel, bias)
    assert half.dtype == kernel.dtype


def test_nan_is_not_hidden():
    for channels in (1, 5):
        images, kernel, bias = draw(channels=channels)
        pooled = conv_relu_pool(images.at[3].set(jnp.nan), kernel, bias)
        np.testing.assert_array_equal(jnp.isnan(pooled).all(axis=(1, 2, 3)), jnp.arange(8) == 3)


def forms(jaxpr):
    """What is left out of each form in a program, and its first operand's number of rows."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "conv_relu_pool_form":
            found.append((equation.params["output"], equation.invars[0].aval.shape[0]))
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                found += forms(inner)
    return found


NETWORK = cnn((4, 4, 1), (4, 2), 4, 3)
IMAGES = jnp.asarray(RNG.normal(size=(6, 4, 4, 1)), np.float32)
BATCH = full_batch(IMAGES, jnp.asarray([0, 1, 2, 0, 1, 2]))


def test_one_product_for_all_particles_and_no_gradient_that_nobody_needs():
    """With the first convolution stochastic ψ needs the kernel's gradient of the second alone."""
    model = pb.partial_bnn(NETWORK, "layers/0/**", pb.categorical())
    psi = model.init(jax.random.key(0)).psi
    values = model.sample_prior(jax.random.key(1), psi, 4)

    def gradient(values, psi):
        log_likelihoods, pullback = one_pass(model, values, psi, BATCH)
        return pullback(jax.nn.softmax(log_likelihoods))

    program = jax.make_jaxpr(gradient)(values, psi)
    assert forms(program.jaxpr) == [("kernel", 4 * 6)]
    # The test can fail: with a gradient in φ as well there is more to do.
    program = jax.make_jaxpr(jax.grad(lambda phi: model.log_likelihood(phi, psi, BATCH).sum()))(
        values[0]
    )
    assert sorted(forms(program.jaxpr)) == [("images", 6), ("kernel", 6)]


def test_memory():
    """The gradient of a kernel that many particles share, in what it needs besides its arguments."""
    images, kernel, bias = draw(rows=200, height=14, width=14, channels=16, outputs=32)

    def needed(layer):
        def gradient(images, kernel, bias):
            return jax.grad(lambda kernel: score(layer)(images, kernel, bias))(kernel)

        compiled = jax.jit(gradient).lower(images, kernel, bias).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert needed(conv_relu_pool) < 0.5 * needed(by_xla)


def test_what_the_kalman_filter_and_laplace_differentiate(monkeypatch):
    """Jacobian of the outputs, Gauss–Newton and Hessian products, staged as they are there."""

    def results(layer):
        monkeypatch.setattr(sys.modules["reproduction.networks.cnn"], "conv_relu_pool", layer)
        model = pb.partial_bnn(NETWORK, ["layers/0/bias", "layers/1/kernel"], pb.categorical())

        @jax.jit
        def derivatives(phi, psi):
            return (
                linearize(model, psi, BATCH, phi),
                gauss_newton(model, psi, BATCH, phi)(phi),
                exact_hessian(model, psi, BATCH, phi)(phi),
            )

        return derivatives(*model.init(jax.random.key(0)))

    require_close(results(conv_relu_pool), results(by_xla), tolerance=1e-4)


def test_other_devices_use_their_own_convolution(monkeypatch):
    def operations():
        return str(jax.make_jaxpr(lambda *arguments: conv_relu_pool(*arguments))(*draw()))

    assert "conv_relu_pool" in operations()
    with monkeypatch.context() as patched:
        patched.setattr(jax, "default_backend", lambda: "gpu")
        assert "conv_relu_pool" not in operations()
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert "conv_relu_pool" not in operations()
