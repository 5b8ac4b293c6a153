"""A process forked after the first computation: it says why it cannot go on, rather than hang."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORK = """
    import os, signal, warnings
    warnings.simplefilter("ignore")
    import numpy as np, jax, partialbayes as pb
    model = pb.partial_bnn(pb.mlp([1, 3, 1]), "layers/0/*", pb.gaussian())
    data = (np.ones((4, 1)), np.ones(4))
    algorithm = pb.ohsmc(model, num_particles=3)
    posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))

    def attempt(act):
        try:
            act()
        except RuntimeError as error:
            return "get_context('spawn')" in str(error)
        return False

    def in_a_fork(*acts):
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # where it hangs
            os._exit(0 if all(map(attempt, acts)) else 1)
        return os.waitpid(child, 0)[1]

    pb.predict(model, posterior, data[0])
    estimator = pb.PartialBNNRegressor(num_particles=1, max_iter=1, n_folds=2, hidden_layer_sizes=(2,))
    table = np.random.default_rng(0).normal(size=(8, 1)), np.arange(8.0)
    estimator.fit(*table)
    print(in_a_fork(
        lambda: pb.predict(model, posterior, data[0]),
        lambda: pb.fit(algorithm, data, epochs=1),
        lambda: pb.online.start(algorithm, data),
        lambda: pb.load("folder"),
        lambda: pb.save("folder", model, posterior),
        lambda: pb.partial_bnn(pb.mlp([1, 2, 1]), "layers/0/*", pb.gaussian()),
        lambda: estimator.fit(*table),
        lambda: estimator.partial_fit(*table),
        lambda: estimator.predict(table[0]),
        lambda: estimator.save("folder"),
        lambda: estimator.oof_predictive_.mean,
    ))
"""


def test_a_fork_is_refused_in_words():
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", textwrap.dedent(FORK)]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert shown.stdout.strip() == "0", shown.stderr[-2000:]
