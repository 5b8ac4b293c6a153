"""What is compiled can be compiled for other machines: lowered for CUDA and TPU, here on the CPU."""

import jax
import jax.export
import jax.numpy as jnp
import pytest

import partialbayes as pb
from partialbayes._engine.compiled import Plan, Program, Runs, compiled_finish, compiled_run, start
from partialbayes._engine.sources import Given, Replayed, Shuffled
from partialbayes.model._batch import full_batch
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


@pytest.mark.parametrize(
    "sampler",
    [
        pb.samplers.laplace(num_particles=4),
        pb.samplers.hmc(num_leapfrog_steps=2, num_warmup=2, num_draws=2, num_particles=2),
        pb.samplers.tempered_smc(num_particles=4, max_steps=2),
    ],
    ids=["laplace", "hmc", "tempered_smc"],
)
def test_second_stages(sampler):
    algorithm = pb.two_stage(pb.map_estimate(ORACLE.model), sampler)
    program = Program(algorithm, PLAN, Shuffled(3))
    posterior = jax.eval_shape(lambda: algorithm.posterior(algorithm.init(jax.random.key(0))))
    exported = jax.export.export(compiled_finish, platforms=ELSEWHERE)(
        program, None, jax.random.key(0), ROWS, posterior
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
