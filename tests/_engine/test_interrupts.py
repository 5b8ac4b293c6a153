"""Ctrl-C: noted while JAX compiles, raised after; a loop of fits ends."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes._engine.interrupts import Interrupts, uninterrupted
from tests.recorders import scripted

ONE = (jnp.ones((1, 1)), jnp.zeros(1))


@pytest.fixture(autouse=True)
def _as_in_a_terminal():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def strike():
    os.kill(os.getpid(), signal.SIGINT)


def test_while_a_step_is_traced_it_waits_however_often_it_is_pressed(tmp_path):
    algorithm = scripted(jnp.ones(9))

    def step(key, state, batch):
        strike()
        strike()
        return algorithm.step(key, state, batch)

    run = pb.Run(checkpoint=tmp_path / "run.safetensors")
    with pytest.raises(pb.errors.TrainingInterrupted, match="after 0 of 9 steps") as caught:
        pb.fit(algorithm._replace(step=step), ONE, epochs=9, run=run)
    assert caught.value.fit.interrupted
    assert run.checkpoint.exists()
    with pytest.raises(pb.errors.TrainingInterrupted) as caught:
        pb.fit_many(algorithm._replace(step=step), ONE, epochs=9, repeats=2)
    assert len(caught.value.fit) == 2


def test_a_loop_of_fits_ends():
    done = []

    def interrupt(progress):
        strike()

    def loop():
        for _ in range(3):
            pb.fit(scripted(jnp.ones(9)), ONE, epochs=9, run=pb.Run(callbacks=[interrupt]))
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert not done


def test_in_a_callback_that_does_not_end_the_second_one_raises():
    def stuck(progress):
        strike()
        strike()
        raise AssertionError("the second one ought to have raised")

    with pytest.raises(KeyboardInterrupt):
        pb.fit(scripted(jnp.ones(9)), ONE, epochs=9, run=pb.Run(callbacks=[stuck]))


def test_the_second_stage_is_finished_first():
    ended = []

    def stage(key, model, posterior, batch):
        strike()
        ended.append(1)
        return posterior, None

    with pytest.raises(pb.errors.TrainingInterrupted) as caught:
        pb.fit(pb.two_stage(scripted(jnp.ones(2)), stage), ONE, epochs=2)
    assert ended
    assert caught.value.fit.reports == (None,)


def test_a_block_is_computed_to_its_end():
    reached = False

    def work():
        nonlocal reached
        with uninterrupted():
            strike()
            reached = True

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with Interrupts() as interrupts:
        strike()
    assert interrupts.noted


def test_what_was_noted_outside_ends_the_run_inside_and_is_raised_once():
    with uninterrupted():
        strike()
        with Interrupts() as inner:
            assert inner.noted
        with Interrupts() as another:
            assert not another.noted


@pytest.mark.parametrize("before", ["a step", "anything"])
def test_an_estimator_finishes_what_it_computes_and_keeps_what_it_has(monkeypatch, before):
    from partialbayes.estimators import _crossfit as crossfit

    x = np.linspace(-1.0, 1.0, 40)[:, None]
    model = pb.PartialBNNRegressor((4,), num_particles=2, n_folds=2, max_iter=60, random_state=0)
    name = "_run" if before == "a step" else "_start"
    real = getattr(crossfit, name)

    def struck(*arguments):
        strike()
        return real(*arguments)

    monkeypatch.setattr(crossfit, name, struck)
    if before == "a step":
        with pytest.raises(pb.errors.TrainingInterrupted):
            model.fit(x, x[:, 0])
        assert model.interrupted_
        assert len(model.history_.metrics["loss"]) > 0
        assert np.isfinite(model.predict(x)).all()
    else:
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, x[:, 0])
        assert not hasattr(model, "posterior_")


def test_the_command_line_leaves_at_once_with_a_sentence():
    root = Path(__file__).parents[2]
    script = (
        "import os, signal, sys, partialbayes.__main__ as command, partialbayes.cli._main as inside\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "inside.main = lambda: (os.kill(os.getpid(), 2), print('went on'))\n"
        "sys.exit(command.main())"
    )
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (130, "", "partialbayes: interrupted\n")


COMPILING = """
    import signal
    import partialbayes as pb
    from tests.oracles import conjugate

    oracle = conjugate()
    data = (oracle.inputs, oracle.targets)
    algorithm = pb.ensemble(pb.ohsmc(oracle.model, num_particles=64), 3)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    print("started", flush=True)
    pb.fit(algorithm, data, epochs=100_000, batch_size=5, validation=data)
"""


@pytest.mark.slow
def test_ctrl_c_at_any_moment_of_compiling_is_a_keyboard_interrupt_and_nothing_worse():
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # compile each time
    rng = np.random.default_rng(0)
    for _ in range(20):
        command = [sys.executable, "-c", textwrap.dedent(COMPILING)]
        run = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        run.stdout.readline()
        time.sleep(rng.uniform(0.0, 4.0))
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=600)
        assert "TrainingInterrupted: interrupted after" in errors or errors.endswith(
            "KeyboardInterrupt\n"
        ), errors
        assert run.returncode in (130, -signal.SIGINT, 1)
