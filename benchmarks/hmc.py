"""The second stage on the two-moons network: 3000 draws × 100 leapfrog steps, one chain and four.

"again" is a second run, without compilation; "cpu" its processor seconds, which a busy machine
hardly changes. Run: python benchmarks/hmc.py [--draws 3000]
"""

import argparse
import time

import jax
import jax.numpy as jnp
from sklearn.datasets import make_moons

import partialbayes as pb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=3000, help="draws of each chain, a third kept")
    draws = parser.parse_args().draws
    x, y = make_moons(100, noise=0.3, random_state=0)
    model = pb.partial_bnn(pb.mlp([2, 100, 20, 5, 1]), "layers/2/**", pb.bernoulli())
    trained = pb.fit(pb.map_estimate(model), (x, y), epochs=100, batch_size=20)

    lengths = {"num_warmup": draws * 2 // 3, "num_draws": draws - draws * 2 // 3}
    samplers = {
        "hmc, 1 chain": pb.samplers.hmc(num_chains=1, num_particles=100, **lengths),
        "hmc, 4 chains": pb.samplers.hmc(num_chains=4, num_particles=100, **lengths),
        "hmc, 16 chains": pb.samplers.hmc(num_chains=16, num_particles=100, **lengths),
        "hmc adapted, 4 chains": pb.samplers.hmc(step_size=pb.samplers.adapted(), num_leapfrog_steps=10),
        "nuts, 4 chains": pb.samplers.nuts(),
    }
    columns = ("seconds", "again", "cpu", "max R-hat", "min ESS", "acceptance")
    print(f"{'':24}" + "".join(f"{column:>12}" for column in columns))
    for name, sampler in samplers.items():
        seconds = []
        for key in range(2):  # the first time compiles
            before, processor = time.perf_counter(), time.process_time()
            posterior, report = pb.training.second_stage(
                sampler, model, trained.posterior, (x, y), key=key
            )
            jax.block_until_ready(posterior)
            seconds.append(time.perf_counter() - before)
            processor = time.process_time() - processor
        shown = (*seconds, processor, jnp.max(report.r_hat), jnp.min(report.ess))
        shown = (*shown, jnp.mean(report.acceptance))
        print(f"{name:24}" + "".join(f"{float(value):12.2f}" for value in shown), flush=True)


if __name__ == "__main__":
    main()
