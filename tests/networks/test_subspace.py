"""Coordinates in a few directions of weight space, and the directions of a run's path."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import partialbayes as pb
from partialbayes.types import Particles, Posterior, Psi

NETWORK = pb.mlp([2, 3, 1])
CENTER = NETWORK.init(jax.random.key(0))
FLAT, UNRAVEL = ravel_pytree(CENTER)
X = jax.random.normal(jax.random.key(1), (4, 2))
DIRECTIONS = np.random.default_rng(0).normal(size=(2, FLAT.size))


def test_weights_move_along_the_directions():
    network = pb.networks.subspace(NETWORK, DIRECTIONS, center=CENTER)
    params = network.init(jax.random.key(5))
    np.testing.assert_allclose(network.apply(params, X), NETWORK.apply(CENTER, X), rtol=1e-6)
    there = {"coordinates": jnp.asarray([0.5, -2.0]), "network": params["network"]}
    wanted = NETWORK.apply(UNRAVEL(FLAT + jnp.asarray([0.5, -2.0]) @ DIRECTIONS), X)
    np.testing.assert_allclose(network.apply(there, X), wanted, rtol=1e-4)
    fresh = pb.networks.subspace(NETWORK, DIRECTIONS).init(jax.random.key(5))["network"]
    np.testing.assert_array_equal(
        ravel_pytree(fresh)[0], ravel_pytree(NETWORK.init(jax.random.key(5)))[0]
    )


def test_integers_stay_where_they_are():
    params = {"w": jnp.ones(2), "n": jnp.asarray(3)}
    network = pb.from_params(params, lambda p, x: x @ p["w"] * p["n"])
    along = pb.networks.subspace(network, np.ones((1, 2)))
    assert (
        float(along.apply({"coordinates": jnp.ones(1), "network": params}, jnp.ones((1, 2)))[0]) == 12.0
    )


def test_directions_are_those_of_the_path():
    """A path along one line and a little across: the line, with the spread of the path along it."""
    model = pb.partial_bnn(NETWORK, "layers/1/*", pb.gaussian())
    line = np.random.default_rng(1).normal(size=FLAT.size)
    line /= np.linalg.norm(line)
    steps = np.array([-1.0, 0.0, 1.0, 2.0])
    members = [model.split.flatten(UNRAVEL(FLAT + jnp.asarray(step * line))) for step in steps]
    values = jnp.stack([phi for phi, _ in members])[:, None, :]
    psi = Psi(jax.tree.map(lambda *leaves: jnp.stack(leaves), *(rest for _, rest in members)), (), ())
    posterior = Posterior(psi, Particles(values, jnp.full((4, 1), -np.log(4.0))))
    path = pb.networks.path_directions(model, posterior, 1)
    np.testing.assert_allclose(ravel_pytree(path.center)[0], FLAT + 0.5 * line, atol=1e-5)
    np.testing.assert_allclose(np.abs(path.directions[0] @ line), steps.std(ddof=1), rtol=1e-4)
    np.testing.assert_allclose(path.shares, 1.0, rtol=1e-4)
    with pytest.raises(ValueError, match="num_directions is 4, but the posterior has 4 members"):
        pb.networks.path_directions(model, posterior, 4)


def test_saved_and_loaded(tmp_path):
    network = pb.networks.subspace(NETWORK, DIRECTIONS, center=CENTER)
    model = pb.partial_bnn(network, "coordinates", pb.gaussian())
    algorithm = pb.ohsmc(model, num_particles=3)
    posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))
    pb.save(tmp_path / "saved", model, posterior)
    loaded = pb.load(tmp_path / "saved")
    before, after = (
        pb.predict(m, p, X).mean for m, p in ((model, posterior), (loaded.model, loaded.posterior))
    )
    np.testing.assert_allclose(before, after, rtol=1e-6)


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"directions have shape \(2, 3\); for the 13"):
        pb.networks.subspace(NETWORK, np.ones((2, 3)))
    with pytest.raises(ValueError, match="center does not look like"):
        pb.networks.subspace(NETWORK, DIRECTIONS, center={"w": jnp.ones(3)})
