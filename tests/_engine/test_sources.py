"""Streams: memory maps, functions and iterables in place of arrays."""

import jax
import numpy as np
import pytest

import partialbayes as pb
from partialbayes._engine.sources import read_ahead
from partialbayes._engine.streams import Stream, salt, stream_key
from tests.oracles import conjugate

ORACLE = conjugate()
X, Y = np.asarray(ORACLE.inputs), np.asarray(ORACLE.targets)
ALGORITHM = pb.ohsmc(ORACLE.model, num_particles=16, kernel=pb.kernels.random_walk(0.01))
SETTINGS = {"epochs": 3, "validation": (X, Y)}


def batches(count, begin=0, **settings):
    source = read_ahead(pb.training.data_source(**settings), ORACLE.model, begin)
    return [next(source) for _ in range(count)]


def in_order(epoch):
    return ((X[i : i + 8], Y[i : i + 8]) for i in range(0, 30, 8))


def test_memory_map_uses_every_row_once_an_epoch(tmp_path):
    for name, array in (("x", X), ("y", Y)):
        np.save(tmp_path / f"{name}.npy", array)
    maps = tuple(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
    epochs = batches(8, source=maps, batch_size=8)
    orders = []
    for epoch in (epochs[:4], epochs[4:]):
        seen = np.concatenate([np.asarray(batch.targets)[np.asarray(batch.mask)] for batch in epoch])
        np.testing.assert_array_equal(np.sort(seen), np.sort(Y))
        orders.append(seen)
        assert {batch.mask.shape for batch in epoch} == {(8,)}
        np.testing.assert_allclose([b.scale * b.mask.sum() for b in epoch], 30.0, rtol=1e-6)
    assert not np.array_equal(*orders)


def test_training_from_a_stream_equals_training_by_hand():
    trained = pb.fit(ALGORITHM, pb.training.data_source(in_order, batch_size=8, num_rows=30), **SETTINGS)
    key = salt(jax.random.key(0))
    state = ALGORITHM.init(stream_key(key, Stream.INIT))
    step = jax.jit(ALGORITHM.step)
    losses = []
    for index, batch in enumerate(batches(12, source=in_order, batch_size=8, num_rows=30)):
        state, info = step(stream_key(key, Stream.STEP, index), state, batch)
        losses.append(info["loss"])
    np.testing.assert_allclose(trained.history.metrics["loss"], losses, rtol=1e-5)


def test_resumes_in_the_middle_of_an_epoch(tmp_path):
    data = pb.training.data_source((X, Y), batch_size=8)
    straight = pb.fit(ALGORITHM, data, **SETTINGS)
    saved = pb.training.Checkpoints(tmp_path / "run.safetensors", every_steps=1)

    def stop(progress):
        if progress.begin >= 5:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        pb.fit(ALGORITHM, data, **SETTINGS, run=pb.Run(checkpoint=saved, callbacks=[stop]))
    resumed = pb.fit(ALGORITHM, data, **SETTINGS, run=pb.Run(checkpoint=saved, resume=True))
    np.testing.assert_array_equal(straight.history.metrics["loss"], resumed.history.metrics["loss"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": in_order}, "num_rows is needed"),
        ({"source": iter([(X, Y)]), "num_rows": 30}, "used up after one epoch; pass a function"),
        ({"source": (X, Y), "num_rows": 31}, "num_rows is 31, but the arrays of source have 30 rows"),
        ({"source": in_order, "num_rows": 100}, "epoch 1 of the stream has only 4 batches; 13 are"),
        ({"source": in_order, "num_rows": 16}, "epoch 1 of the stream has more than 2 batches; 2 are"),
        ({"source": [(X, Y)], "num_rows": 8}, "batch 1 of epoch 1 has 30 rows, more than batch_size=8"),
        ({"source": [(X[:8], Y[:7])], "num_rows": 8}, "batch 1 of epoch 1 has 8 rows of inputs but 7"),
    ],
)
def test_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        batches(20, **{"batch_size": 8} | settings)


def test_second_stage_needs_arrays():
    staged = pb.two_stage(pb.map_estimate(ORACLE.model), pb.samplers.hmc())
    with pytest.raises(ValueError, match="needs all the data at once"):
        pb.fit(staged, pb.training.data_source((X, Y), batch_size=8), epochs=1)
