"""What is compiled can be compiled for other machines: lowered for CUDA and TPU, here on the CPU."""

import jax
import jax.export
import jax.numpy as jnp
import pytest

import partialbayes as pb
from partialbayes import online
from partialbayes._engine.compiled import (
    Plan,
    Program,
    Runs,
    compiled_finish,
    compiled_run,
    compiled_start,
    start,
)
from partialbayes._engine.sources import Given, Replayed, Shuffled
from partialbayes.estimators import _crossfit
from partialbayes.estimators._recipe import Recipe
from partialbayes.model._batch import full_batch
from partialbayes.prediction import _mixture as mixture
from tests.algorithms.test_contract import ALGORITHMS
from tests.oracles import conjugate

ORACLE = conjugate()
ROWS = full_batch(ORACLE.inputs, ORACLE.targets)
PLAN = Plan(6, 3, until=pb.training.Settled())
ELSEWHERE = ("cuda", "tpu")


def lowered(algorithm, draw, runs=None):
    """The names of the platforms that a run of this algorithm was lowered for."""
    program = Program(algorithm, PLAN, draw, runs)
    key = jax.random.key(0) if runs is None else jax.random.split(jax.random.key(0), 2)
    own = (None, key, ROWS, ROWS)
    carry = jax.eval_shape(lambda: start(program, *own))
    exported = jax.export.export(compiled_run, platforms=ELSEWHERE)(program, carry, *own, 0, 3)
    return exported.platforms


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_loop_of_every_algorithm(name):
    assert lowered(ALGORITHMS[name](ORACLE.model), Shuffled(3)) == ELSEWHERE


def test_streams_windows_and_many_runs():
    algorithm = pb.ohsmc(ORACLE.model, num_particles=4)
    for draw in (Given(), Replayed(8)):
        assert lowered(algorithm, draw) == ELSEWHERE
    with jax.debug_key_reuse(False):  # a false alarm on a loop under vmap
        assert lowered(algorithm, Shuffled(3), Runs(False, False)) == ELSEWHERE


SAMPLERS = {
    "adapted": pb.samplers.hmc(
        step_size=pb.samplers.adapted(), num_leapfrog_steps=2, num_warmup=2, num_draws=2, num_particles=2
    ),
    "hmc": pb.samplers.hmc(num_leapfrog_steps=2, num_warmup=2, num_draws=2, num_particles=2),
    "importance_sampling": pb.samplers.importance_sampling(num_particles=4),
    "laplace": pb.samplers.laplace(num_particles=4),
    "laplace, moved": pb.samplers.laplace(num_particles=4, num_moves=2),
    "mclmc": pb.samplers.mclmc(num_warmup=100, num_draws=4, num_particles=2),
    "nuts": pb.samplers.nuts(num_warmup=2, num_draws=2, num_particles=2),
    "tempered_smc": pb.samplers.tempered_smc(num_particles=4, max_steps=2),
    "tempered_smc, chains": pb.samplers.tempered_smc(num_particles=4, waste_free=2, max_steps=2),
    "continue_training": pb.training.continue_training(pb.map_estimate(ORACLE.model), num_steps=2),
}


def test_no_sampler_is_left_out():
    assert set(pb.samplers.__all__) <= set(SAMPLERS)


@pytest.mark.parametrize("name", SAMPLERS)
def test_second_stages(name):
    algorithm = pb.two_stage(pb.map_estimate(ORACLE.model), SAMPLERS[name])
    program = Program(algorithm, PLAN, Shuffled(3))
    posterior = jax.eval_shape(lambda: algorithm.posterior(algorithm.init(jax.random.key(0))))
    with jax.debug_key_reuse(False):  # a false alarm on BlackJAX's tuning
        exported = jax.export.export(compiled_finish, platforms=ELSEWHERE)(
            program, None, jax.random.key(0), ROWS, posterior
        )
    assert exported.platforms == ELSEWHERE


def test_the_first_state_and_an_update_online():
    algorithm = pb.ohsmc(ORACLE.model, num_particles=4)
    program, key = Program(algorithm, PLAN, Shuffled(3)), jax.random.key(0)
    exported = jax.export.export(compiled_start, platforms=ELSEWHERE)(program, None, key, ROWS, ROWS)
    assert exported.platforms == ELSEWHERE
    state = jax.eval_shape(algorithm.init, key)
    exported = jax.export.export(online._update, platforms=ELSEWHERE)(
        algorithm, 2, 3, state, ROWS, ROWS, jnp.int32(0), key
    )
    assert exported.platforms == ELSEWHERE


@pytest.mark.parametrize("name", ["moments", "log_density", "cdf", "quantile", "sample", "even_sample"])
def test_predictions(name):
    algorithm = pb.ohsmc(ORACLE.model, num_particles=4)
    posterior = jax.eval_shape(lambda: algorithm.posterior(algorithm.init(jax.random.key(0))))
    chunks, key = pb.types.Chunks(), jax.random.key(0)
    arguments = {
        "log_density": (posterior, ROWS, chunks),
        "cdf": (posterior, ROWS.inputs, ROWS.targets, chunks),
        "quantile": (posterior, ROWS.inputs, jnp.array([0.1, 0.9]), chunks),
        "sample": (posterior, ROWS.inputs, key, 5, chunks),
        "even_sample": (posterior, ROWS.inputs, key, 5, chunks),
    }.get(name, (posterior, ROWS.inputs, chunks))
    exported = jax.export.export(getattr(mixture, name), platforms=ELSEWHERE)(ORACLE.model, *arguments)
    assert exported.platforms == ELSEWHERE


@pytest.mark.parametrize("is_classifier", [False, True])
def test_the_groups_of_an_estimator(is_classifier):
    recipe = Recipe((2, 8, 2), is_classifier, (0, 1), 4, 0, 2, 4, 0.005, 0.01)
    algorithm, count = _crossfit.build(recipe), recipe.num_groups
    keys = jax.random.split(jax.random.key(0), count)
    states = jax.eval_shape(jax.vmap(algorithm.init), keys)
    targets = jnp.zeros(20, jnp.int32) if is_classifier else jnp.zeros(20)
    drawn = (jnp.zeros((count, 15), jnp.int32), jnp.full(count, 15), None)
    numbers = (jnp.int32(0), jnp.int32(2), jnp.int32(4)), (jnp.float32(0.01), jnp.float32(0.1))
    exported = jax.export.export(_crossfit._run, platforms=ELSEWHERE)(
        algorithm, states, keys[0], *numbers, (jnp.zeros((20, 2)), targets), drawn, jnp.int32(0), 6
    )
    assert exported.platforms == ELSEWHERE


def test_what_cannot_be_lowered_elsewhere_is_noticed():
    """A step that asks for something of the CPU alone fails here, not on somebody's GPU."""
    algorithm = pb.map_estimate(ORACLE.model)

    def step(key, state, batch):
        state, info = algorithm.step(key, state, batch)
        values = jax.lax.linalg.schur(jnp.eye(2))[0]  # JAX has it for the CPU alone
        return state, info | {"loss": info["loss"] + 0.0 * values.sum()}

    with pytest.raises(Exception, match=r"not found for platform|not implemented"):
        lowered(algorithm._replace(step=step), Shuffled(3))
