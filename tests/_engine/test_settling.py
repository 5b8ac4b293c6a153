"""A run without validation data ends when the loss and the cloud have settled, and no earlier."""

import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes._engine import host
from partialbayes._engine.settling import check, nothing_seen
from tests.recorders import scripted

ONE = (jnp.ones((1, 1)), jnp.zeros(1))
UNTIL = pb.training.Settled(tolerance=0.01, window=4)
PSI = scripted(jnp.ones(1)).model.init
CLOUD = jnp.array([[-1.0], [1.0], [0.0]])


def evaluations(losses, means, spreads=None):
    """After how many evaluations a run with these losses and clouds has settled; None for never."""
    spreads = np.ones(len(losses)) if spreads is None else spreads
    memory = None
    for number, (loss, mean, spread) in enumerate(zip(losses, means, spreads, strict=True), start=1):
        particles = pb.types.Particles(mean + spread * CLOUD, jnp.zeros(3))
        posterior = pb.types.Posterior(None, particles)
        memory = nothing_seen(posterior) if memory is None else memory
        memory, settled = check(UNTIL, memory, jnp.asarray(loss, jnp.float32), posterior)
        if settled:
            return number
    return None


def test_still_from_the_start():
    assert evaluations(np.zeros(8), np.zeros(8)) == 8


def test_each_of_the_three_must_be_still():
    still, moving = np.zeros(20), np.arange(20.0)
    assert evaluations(still + 0.001 * moving, still) == 8
    assert evaluations(-0.1 * moving, still) is None
    assert evaluations(still, 0.2 * moving) is None
    assert evaluations(still, still, 1.0 + 0.2 * moving) is None


def test_noise_about_a_level_is_settled_and_a_fall_then_a_level_is_found():
    noise = np.random.default_rng(0).normal(size=40)
    assert evaluations(noise, np.zeros(40)) is not None
    falling = np.concatenate([np.linspace(5.0, 0.0, 12), np.zeros(12)])
    assert evaluations(falling, np.zeros(24)) == 20


def test_a_cloud_that_wanders_has_settled_and_one_that_drifts_has_not():
    walks = np.random.default_rng(1).normal(size=(40, 30)).cumsum(axis=0)

    def settled(means):
        memory = None
        for mean in means:
            particles = pb.types.Particles(jnp.asarray(mean[None], jnp.float32), jnp.zeros(1))
            posterior = pb.types.Posterior(None, particles)
            memory = nothing_seen(posterior) if memory is None else memory
            until = UNTIL._replace(window=20)
            memory, has_settled = check(until, memory, jnp.zeros(()), posterior)
        return bool(has_settled)

    assert settled(walks)
    assert not settled(walks + 3.0 * np.arange(40)[:, None])


def test_a_run_ends_at_the_same_step_however_it_is_cut(monkeypatch):
    values = jnp.concatenate([jnp.linspace(5.0, 1.0, 8), jnp.ones(50)])
    run = pb.Run(until=UNTIL)
    whole = pb.fit(scripted(values), ONE, epochs=58, run=run)
    assert whole.end == "settled"
    assert len(whole.history.metrics["loss"]) == whole.history.best_step == 16
    monkeypatch.setattr(host, "_SECONDS_PER_PIECE", 0.0)
    assert pb.fit(scripted(values), ONE, epochs=58, run=run).history.best_step == 16
    assert pb.fit(scripted(values), ONE, epochs=14, run=run).end == "epochs"


def test_settings_that_make_no_sense():
    for settings in ({"window": 0}, {"tolerance": -1.0}, {"drift": 0.0}):
        with pytest.raises(ValueError, match="must be"):
            pb.fit(
                scripted(jnp.ones(2)), ONE, epochs=2, run=pb.Run(until=pb.training.Settled(**settings))
            )
