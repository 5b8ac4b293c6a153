"""Checks on four devices, for `test_mesh`: a process has its number of devices from its start.

Run with the names of checks; prints one line of JSON, what went wrong under the name of each check.
"""

import contextlib
import json
import sys
import tempfile
import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks import scaling
from reproduction.networks.cnn import cnn

import partialbayes as pb
from partialbayes.model._batch import full_batch
from partialbayes.parallel._sharding import constrain, put_on_mesh, shard_rows, use_mesh

X = np.random.default_rng(0).normal(size=(90, 3)).astype(np.float32)
Y = np.sin(X.sum(axis=1))
MODEL = pb.partial_bnn(pb.mlp([3, 16, 8, 1]), "layers/1/*", pb.gaussian(0.5))

METROPOLIS = pb.kernels.random_walk_metropolis(0.01, num_steps=2)
# Not Hamiltonian: along its trajectories a last digit grows to more than 1e-5.
TEMPERED = dict(num_particles=64, temperatures=(0.1, 0.4, 1.0), kernel=METROPOLIS)


def close(one, many):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(a).max(initial=0.0)))


def same_fit(algorithm, *meshes, data=(X, Y), batch_size=20, **settings):
    settings = dict(epochs=2, batch_size=batch_size) | settings
    one = pb.fit(algorithm, data, **settings)
    for mesh in meshes:
        many = pb.fit(algorithm, data, run=pb.Run(mesh=mesh), **settings)
        assert one.history.best_step == many.history.best_step
        close((one.posterior, one.history.metrics), (many.posterior, many.history.metrics))
        close(one.reports, many.reports)
    return many


def ohsmc():
    algorithm = pb.ohsmc(MODEL, num_particles=64, kernel=pb.kernels.random_walk(0.01))
    fit = same_fit(algorithm, pb.parallel.mesh(2, 2), validation=(X[:31], Y[:31]))
    cloud = fit.posterior.particles
    assert cloud.values.sharding.shard_shape(cloud.values.shape)[0] == 32
    assert cloud.log_weights.sharding.is_fully_replicated
    assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(fit.posterior.psi))


def map_estimate():
    # 90 rows in batches of 18, which four do not divide: two rows are made up.
    same_fit(pb.map_estimate(MODEL), pb.parallel.mesh(1, 4))


def variational():
    same_fit(pb.algorithms.mean_field_vb(MODEL, num_samples=20), pb.parallel.mesh(4, 1))


def divided_psi():
    """In parts during training, and what one device gives."""
    mesh = pb.parallel.mesh(particle=2, psi=2)
    seen = []

    def look(progress):
        for leaf in jax.tree.leaves(progress.current().psi.network):
            seen.append((leaf.shape, leaf.size // leaf.addressable_shards[0].data.size))

    algorithm = pb.ohsmc(MODEL, num_particles=64, kernel=pb.kernels.random_walk(0.01))
    same_fit(algorithm, mesh)
    pb.fit(algorithm, (X, Y), epochs=1, batch_size=20, run=pb.Run(mesh=mesh, callbacks=[look]))
    assert seen
    for shape, parts in seen:
        assert parts == (2 if any(size % 2 == 0 for size in shape) else 1), (shape, parts)


def compiled_step(algorithm, size, mesh):
    """The text of one step, compiled for a mesh."""
    x = jnp.ones((size.rows, 3))
    state = put_on_mesh(mesh, algorithm.init(jax.random.key(0)))
    batch = shard_rows(mesh, full_batch(x, x[:, 0]))

    def step(key, state, batch):
        state, info = algorithm.step(key, state, batch)
        return constrain(state), info

    with use_mesh(mesh):
        return jax.jit(step).lower(jax.random.key(1), state, batch).compile().as_text()


def size_of(num_particles, width=16, rows=40, **settings):
    """OHSMC on a network of this width, and its size: the second of three layers is stochastic."""
    model = pb.partial_bnn(pb.mlp([3, width, 8, 1]), "layers/1/*", pb.gaussian(0.5))
    size = scaling.Size(num_particles, 8 * width + 8, 4 * width, 9, rows, width, 4, 9)
    assert model.split.dim == size.dim
    return pb.ohsmc(
        model, num_particles=num_particles, kernel=pb.kernels.random_walk(0.01), **settings
    ), size


def collectives():
    for particle, data, num_particles, width in ((2, 2, 256, 16), (4, 1, 512, 64)):
        algorithm, size = size_of(num_particles, width)
        found = scaling.collectives(compiled_step(algorithm, size, pb.parallel.mesh(particle, data)))
        expected = scaling.sent_bytes(size, particle, data)
        assert sum(found.values()) == sum(expected.values()), (particle, data, found, expected)


def islands():
    resample = pb.resampling.islands(4)
    same_fit(
        pb.ohsmc(MODEL, num_particles=64, resample=resample, kernel=pb.kernels.random_walk(0.01)),
        pb.parallel.mesh(2, 2),
    )
    algorithm, size = size_of(512, resample=resample)
    program = compiled_step(algorithm, size, pb.parallel.mesh(4))
    # The same as without, and particles are gathered in the branch of the exchange alone.
    found = scaling.collectives(program)
    assert sum(found.values()) == sum(scaling.sent_bytes(size, 4, 1).values()), found
    (gather,) = [
        line for line in program.splitlines() if "f32[512,136]" in line and " all-gather(" in line
    ]
    assert "branch_1_fun" in gather, gather


def chunks():
    model = pb.model.with_chunks(MODEL, particles=8, rows=10)
    same_fit(
        pb.ohsmc(model, num_particles=64, kernel=pb.kernels.random_walk(0.01)),
        pb.parallel.mesh(4, 1),
        pb.parallel.mesh(2, 2),
    )


def other_meshes():
    algorithm = pb.ohsmc(MODEL, num_particles=64, kernel=pb.kernels.forgetting("diagonal"))
    same_fit(
        algorithm,
        pb.parallel.mesh(4),
        jax.make_mesh((4,), ("particle",)),
        jax.make_mesh((2,), ("data",)),
    )


def sgsmc():
    algorithm = pb.sgsmc(MODEL, num_particles=64, kernel=METROPOLIS)
    same_fit(algorithm, pb.parallel.mesh(2, 2), epochs=1)


def ensemble():
    same_fit(
        pb.ensemble(pb.ohsmc(MODEL, num_particles=16, kernel=pb.kernels.random_walk(0.01)), 3),
        pb.parallel.mesh(2, 2),
    )


def trajectory():
    # Seven particles a member, which two devices do not divide.
    path = pb.algorithms.trajectory(pb.ohsmc(MODEL, num_particles=20), 3, every=2)
    same_fit(path, pb.parallel.mesh(2, 2))


def particles_with_rows_of_their_own():
    members = pb.algorithms.particle_ensemble(MODEL, num_particles=8, rows_per_particle=4)
    same_fit(pb.algorithms.averaged(members, particles=True), pb.parallel.mesh(2, 2))


def second_stage():
    stage = pb.samplers.tempered_smc(**TEMPERED)
    same_fit(pb.two_stage(pb.map_estimate(MODEL), stage), pb.parallel.mesh(2, 2), epochs=1)


def streamed():
    data = pb.training.data_source((X, Y), batch_size=20)
    same_fit(
        pb.ohsmc(MODEL, num_particles=64, kernel=pb.kernels.random_walk(0.01)),
        pb.parallel.mesh(2, 2),
        data=data,
    )


def convolution():
    images = np.random.default_rng(1).normal(size=(24, 8, 8, 1)).astype(np.float32)
    labels = np.arange(24) % 3
    model = pb.partial_bnn(cnn((8, 8, 1), (4, 6), 10, 3), "layers/0/*", pb.categorical())
    same_fit(
        pb.ohsmc(model, num_particles=8, kernel=pb.kernels.random_walk(0.01)),
        pb.parallel.mesh(2, 2),
        data=(images, labels),
        batch_size=8,
    )


def refine_and_predict():
    trained = pb.fit(
        pb.ohsmc(MODEL, num_particles=64, kernel=pb.kernels.random_walk(0.01)),
        (X, Y),
        epochs=1,
    )
    one = pb.refine(MODEL, trained.posterior, (X, Y), **TEMPERED)
    many = pb.refine(MODEL, trained.posterior, (X, Y), mesh=pb.parallel.mesh(2, 2), **TEMPERED)
    close(one, many)
    for mesh in (pb.parallel.mesh(4), pb.parallel.mesh(2, 2), pb.parallel.mesh(data=2)):
        predicted = [pb.predict(MODEL, one.posterior, X, mesh=given) for given in (None, mesh)]
        close(*([p.mean, p.variance, p.quantile(0.9), p.log_density(Y)] for p in predicted))


def resumed():
    algorithm = pb.ohsmc(MODEL, num_particles=64, kernel=pb.kernels.random_walk(0.01))
    whole_run = pb.fit(algorithm, (X, Y), epochs=4, batch_size=20)

    def stop(progress):
        if progress.begin + 1 >= 8:
            raise InterruptedError

    with tempfile.TemporaryDirectory() as folder:
        settings = dict(epochs=4, batch_size=20)
        checkpoint = pb.training.Checkpoints(Path(folder) / "run", every_steps=1)
        run = pb.Run(checkpoint=checkpoint, resume=True)
        four = run._replace(mesh=pb.parallel.mesh(4), callbacks=[stop])
        with contextlib.suppress(InterruptedError):
            pb.fit(algorithm, (X, Y), run=four, **settings)
        rest = pb.fit(algorithm, (X, Y), run=run, **settings)
    close(whole_run.posterior, rest.posterior)


def errors():
    message = refusal(lambda: pb.parallel.mesh(particle=8))
    mentions(message, "needs 8 devices", "only 4")
    algorithm = pb.ohsmc(MODEL, num_particles=62, kernel=pb.kernels.random_walk(0.01))
    message = refusal(lambda: pb.fit(algorithm, (X, Y), epochs=1, run=pb.Run(mesh=pb.parallel.mesh(4))))
    mentions(message, "num_particles is 62", "num_particles=64")
    message = refusal(
        lambda: pb.fit(algorithm, (X, Y), epochs=1, run=pb.Run(mesh=jax.make_mesh((2,), ("model",))))
    )
    mentions(message, "'model'", "'particle'")


def mentions(message, *words):
    assert all(word in message for word in words), message


def refusal(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("nothing was refused")


if __name__ == "__main__":
    wrong = {}
    for name in sys.argv[1:]:
        try:
            globals()[name]()
            wrong[name] = ""
        except Exception:
            wrong[name] = traceback.format_exc()
    print(json.dumps(wrong))
