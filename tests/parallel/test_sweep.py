"""Runs over processes: spread, of one thread each, and the same as in one process."""

import os
import threading

import jax
import jax.numpy as jnp
import joblib
import numpy as np
import pytest
from reproduction.run import reproduce
from reproduction.tests.test_run import read

import partialbayes as pb
from tests.oracles import conjugate

ORACLE = conjugate()
DATA = (ORACLE.inputs, ORACLE.targets)


def ask_where():
    """A function within one is sent whole: its process need not import this file, and JAX with it."""

    def where_it_ran(task):
        return os.getpid(), os.environ.get("XLA_FLAGS"), os.environ.get("NPROC")

    return where_it_ran


where_it_ran = ask_where()


def build(variance):
    return pb.ohsmc(ORACLE.model, num_particles=8, kernel=pb.kernels.random_walk(variance))


def test_work_is_spread_over_processes_of_one_thread(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=1")
    found = dict(pb.parallel.sweep(where_it_ran, [1, 2, 3], n_jobs=2))
    assert set(found) == {1, 2, 3}
    for process, flags, threads in found.values():
        assert process != os.getpid()
        assert flags.endswith("device_count=1 --xla_cpu_multi_thread_eigen=false")
        assert threads == "1"
    assert os.environ["XLA_FLAGS"] == "--xla_force_host_platform_device_count=1"
    assert "NPROC" not in os.environ


def test_processes_are_not_shared_with_others_that_use_joblib(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=1")

    def theirs():
        calls = [joblib.delayed(where_it_ran)(task) for task in range(3)]
        return {found[1:] for found in joblib.Parallel(n_jobs=2)(calls)}

    def ours():
        return dict(pb.parallel.sweep(where_it_ran, [1, 2, 3], n_jobs=2)).values()

    flags = os.environ["XLA_FLAGS"]
    assert theirs() == {(flags, None)}
    first = ours()
    assert {found[1:] for found in first} == {(f"{flags} --xla_cpu_multi_thread_eigen=false", "1")}
    assert {found[0] for found in first} & {found[0] for found in ours()}  # kept for the next sweep
    assert theirs() == {(flags, None)}


def test_one_job_stays_in_this_process():
    assert [found[0] for _, found in pb.parallel.sweep(where_it_ran, [1, 2], n_jobs=1)] == [
        os.getpid()
    ] * 2
    assert list(pb.parallel.sweep(where_it_ran, [])) == []


def test_another_backend_has_its_own_jobs_and_keeps_its_environment(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    with joblib.parallel_config("threading", n_jobs=2):
        found = dict(pb.parallel.sweep(where_it_ran, [1, 2, 3]))
    assert set(found.values()) == {(os.getpid(), None, None)}


def test_a_function_that_cannot_be_sent():
    lock = threading.Lock()
    with joblib.parallel_config("multiprocessing", n_jobs=2):
        found = pb.parallel.sweep(lambda task: (lock, task), [1, 2])
        with pytest.raises(TypeError, match=r"function cannot be sent to other processes .*lock"):
            next(found)


def test_jobs_that_make_no_sense():
    with pytest.raises(ValueError, match="jobs must be"):
        pb.parallel.sweep(where_it_ran, [1], n_jobs=0)
    with pytest.raises(ValueError, match="checkpoint is for one program"):
        pb.fit_many(
            build(0.1), DATA, epochs=1, repeats=2, n_jobs=2, run=pb.Run(checkpoint="run.safetensors")
        )


def same_runs_by_two_programs():
    settings = {"epochs": 2, "batch_size": 8, "validation": [DATA] * 3, "key": 4}
    settings |= {"hyperparameters": jnp.array([0.01, 0.1, 1.0])}
    with jax.debug_key_reuse(False):  # a false alarm on a loop under vmap
        together = pb.fit_many(build, DATA, **settings)
        apart = pb.fit_many(build, DATA, **settings, n_jobs=2)
    assert len(apart) == 3
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_allclose(one.history.metrics["loss"], other.history.metrics["loss"], rtol=1e-4)
        assert one.history.best_step == other.history.best_step


@pytest.mark.slow
def test_many_runs_by_two_processes():
    same_runs_by_two_programs()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Port 8787 is already in use")
def test_a_dask_cluster_of_two_workers(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    )
    few = {"methods": ("MAP", "OHSMC"), "quick": True, "progress": False, "repeats": 2}
    with cluster, distributed.Client(cluster) as client, joblib.parallel_config("dask"):
        workers = set(client.run(os.getpid).values())
        found = dict(pb.parallel.sweep(where_it_ran, range(8)))
        same_runs_by_two_programs()
        spread = reproduce("moons", out=tmp_path / "spread", **few)
    assert len(workers) == 2
    assert {process for process, *_ in found.values()} == workers
    assert all("multi_thread_eigen" not in (flags or "") for _, flags, _ in found.values())
    alone = reproduce("moons", out=tmp_path / "alone", jobs=1, **few)

    def scores(folder):
        rows = [row for row in read(folder) if row["metric"] != "seconds"]
        return {(row["method"], row["repeat"], row["metric"]): float(row["value"]) for row in rows}

    assert scores(spread) == pytest.approx(scores(alone), rel=1e-4)
