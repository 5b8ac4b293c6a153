"""Staging: the same function of φ, with what φ does not reach computed once."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import partialbayes as pb
from partialbayes._utils.jaxprs import partially_evaluate
from partialbayes.model._batch import full_batch


class Net(nnx.Module):
    def __init__(self, rngs):
        self.trunk = nnx.Linear(2, 300, rngs=rngs)
        self.head = nnx.Linear(300, 4, rngs=rngs)
        self.last = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(jax.nn.relu(self.head(jax.nn.gelu(self.trunk(x)))))


X = jax.random.normal(jax.random.key(0), (50, 2))
BATCH = full_batch(X, (X[:, 0] > 0).astype(jnp.int32))
MODEL = pb.partial_bnn(pb.from_nnx(lambda rngs: Net(rngs)), "last/*", pb.bernoulli())
PHI, PSI = MODEL.init(jax.random.key(1))


def test_same_values_gradients_and_maps():
    def plain(phi):
        return MODEL.log_likelihood(phi, PSI, BATCH)

    staged = partially_evaluate(plain, PHI)
    np.testing.assert_allclose(staged(PHI + 0.1), plain(PHI + 0.1), rtol=1e-6)
    gradient = jax.grad(lambda phi: staged(phi).sum())(PHI)
    np.testing.assert_allclose(gradient, jax.grad(lambda phi: plain(phi).sum())(PHI), rtol=1e-5)
    cloud = PHI[None, :] + jnp.arange(3.0)[:, None]
    np.testing.assert_allclose(jax.vmap(staged)(cloud), jax.vmap(plain)(cloud), rtol=1e-5)


def test_the_loop_does_not_run_the_trunk():
    """Inside a loop over φ, staged, only the last layer's work is left."""

    def flops(transform):
        def run(phi, psi, batch):
            function = transform(lambda phi: MODEL.log_likelihood(phi, psi, batch).sum())
            return jax.lax.fori_loop(0, 10, lambda _, phi: phi + jax.grad(function)(phi), phi)

        text = jax.jit(run).lower(PHI, PSI, BATCH).as_text()
        loop = text[text.index("stablehlo.while") :]
        return loop.count("stablehlo.dot_general")

    inside = flops(lambda function: partially_evaluate(function, PHI))
    assert inside < flops(lambda function: function)
    # One product forward and one back, both of the last layer.
    assert inside == 2


def test_whole_trees_and_constant_results():
    staged = partially_evaluate(
        lambda tree: {"sum": tree["a"] + 1.0, "constant": jnp.ones(3)}, {"a": jnp.zeros(2)}
    )
    result = staged({"a": jnp.full(2, 5.0)})
    np.testing.assert_array_equal(result["sum"], [6.0, 6.0])
    np.testing.assert_array_equal(result["constant"], np.ones(3))
