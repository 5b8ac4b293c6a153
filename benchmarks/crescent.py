"""The crescent: ψ̂ of each trainer against the maximiser of the evidence, on the same data.

Run as ``PYTHONPATH=src:. python benchmarks/crescent.py``; the settings are the paper's. A word
after it runs the methods whose names contain it.
"""

from __future__ import annotations

import sys
import time
from functools import partial

import jax
import numpy as np
import optax
from tests.oracles import crescent

import partialbayes as pb

RATE = optax.exponential_decay(0.1, transition_steps=10, decay_rate=0.96)
METROPOLIS = pb.kernels.random_walk_metropolis(0.001, num_steps=10)


def trainers(model: pb.Model) -> dict[str, tuple[pb.Algorithm, int | None, int]]:
    """Algorithm, batch size and epochs of each method."""
    common = {"num_particles": 1000, "optimizer": optax.adam(RATE)}
    brute_force = partial(
        pb.algorithms.monte_carlo, model, num_samples=10_000, optimizer=optax.adam(RATE)
    )
    return {
        "SMC, all data": (
            pb.smc(model, kernel=METROPOLIS, resample=pb.stratified, **common),
            None,
            1000,
        ),
        "SMC, adapted HMC": (pb.smc(model, **common), None, 1000),
        "SGSMC": (pb.sgsmc(model, kernel=METROPOLIS, resample=pb.stratified, **common), 10, 200),
        "OHSMC": (pb.ohsmc(model, kernel=pb.random_walk(0.001), **common), 10, 200),
        "OHSMC, forgetting": (pb.ohsmc(model, kernel=pb.forgetting(), **common), 10, 200),
        "Monte Carlo, the paper's bound": (
            brute_force(objective=pb.algorithms.expected_log_likelihood),
            None,
            1000,
        ),
        "Monte Carlo, the evidence": (
            brute_force(objective=pb.algorithms.log_expected_likelihood),
            None,
            1000,
        ),
    }


def main(num_repeats: int = 3, only: str = "") -> None:
    print("| method | data | ψ̂ by quadrature | ψ̂ | difference | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for seed in range(num_repeats):
        oracle = crescent(seed=seed)
        best = oracle.best_psi()
        for name, (algorithm, batch_size, epochs) in trainers(oracle.model).items():
            if only not in name:
                continue
            before = time.perf_counter()
            trained = pb.fit(
                algorithm,
                (oracle.inputs, oracle.targets),
                epochs=epochs,
                batch_size=batch_size,
                key=seed,
                progress=False,
            )
            found = float(np.asarray(jax.block_until_ready(trained.posterior.psi.network["psi"])))
            seconds = time.perf_counter() - before
            print(
                f"| {name} | {seed} | {best:.3f} | {found:.3f} | {found - best:+.3f} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(only=sys.argv[1] if len(sys.argv) > 1 else "")
