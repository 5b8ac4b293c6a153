"""Whose predictions are those of the posterior? Every method beside NUTS on one real network.

The table is boston (455 training rows of its first standard split, 51 test rows, all columns and the
target in units of the training rows' standard deviations); the network has one hidden layer of ten
tanh units, all of its 151 weights random with a standard normal prior, noise of variance 0.1. There is
no ψ to learn, so every method aims at the same law, and none sees a test target.

``python benchmarks/real_posterior.py reference`` runs NumPyro's NUTS on the log density written out
below, without this library, and keeps what it says of the test rows in ``real_posterior_nuts.json``:
quantiles of the network's output, split R-hat and effective sample size of its mean. ``run`` appends
one line of JSON per method to ``real_posterior.jsonl`` and leaves out what is there; ``report`` writes
``docs/real_posterior.md``. The data folder is named by ``--data`` or the variable FACEOFF_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import partialbayes as pb
from benchmarks.faceoff import read, split

HERE = Path(__file__).parent
REFERENCE = HERE / "real_posterior_nuts.json"
RESULTS = HERE / "real_posterior.jsonl"
PAGE = HERE.parent / "docs" / "real_posterior.md"
WIDTHS = (13, 10, 1)
NOISE_VARIANCE = 0.1
LEVELS = (np.arange(60) + 0.5) / 60
SETTLED = 1.05  # R-hat of a test row below which the chains agree on it


def load(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training inputs and targets, and test inputs, in units of the training rows."""
    inputs, targets = read(folder, "boston")
    train, test = split(folder, "boston", 0, targets)
    mean, std = inputs[train].mean(axis=0), inputs[train].std(axis=0)
    scaled = (targets[train] - targets[train].mean()) / targets[train].std()
    inputs = (inputs - mean) / std
    return inputs[train], scaled, inputs[test]


def network(weights: jax.Array, inputs: jax.Array) -> jax.Array:
    """The network written out, on one vector of weights."""
    features, hidden, _ = WIDTHS
    first, rest = weights[: features * hidden], weights[features * hidden :]
    bias, second, last = rest[:hidden], rest[hidden : 2 * hidden], rest[2 * hidden]
    return jnp.tanh(inputs @ first.reshape(features, hidden) + bias) @ second + last


def reference(folder: Path, num_chains: int, num_warmup: int, num_draws: int) -> None:
    """Run the chains in blocks and keep a summary after each, so that it can be stopped at any time."""
    from numpyro.infer import MCMC, NUTS

    inputs, targets, new = (jnp.asarray(part, jnp.float32) for part in load(folder))
    dim = WIDTHS[0] * WIDTHS[1] + 2 * WIDTHS[1] + 1

    def potential(weights):
        misfit = jnp.sum(jnp.square(targets - network(weights, inputs)))
        return 0.5 * misfit / NOISE_VARIANCE + 0.5 * jnp.sum(jnp.square(weights))

    block = 250
    start = 0.5 * jax.random.normal(jax.random.key(0), (num_chains, dim))
    chains = MCMC(
        NUTS(potential_fn=potential, max_tree_depth=9),
        num_warmup=num_warmup,
        num_samples=block,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    outputs = jax.jit(jax.vmap(jax.vmap(lambda weights: network(weights, new))))
    blocks, divergences, lengths, begin = [], 0, [], time.process_time()
    for index in range(num_draws // block):
        extra = ("diverging", "num_steps")
        chains.run(jax.random.key(1 + index), init_params=start, extra_fields=extra)
        chains.post_warmup_state = chains.last_state
        blocks.append(np.asarray(outputs(chains.get_samples(group_by_chain=True))))
        extras = chains.get_extra_fields()
        divergences += int(extras["diverging"].sum())
        lengths.append(float(extras["num_steps"].mean()))
        spent = time.process_time() - begin
        draws = np.concatenate(blocks, axis=1)
        summary = summarize(draws) | {
            "chains": num_chains,
            "warmup": num_warmup,
            "draws": draws.shape[1],
            "divergences": divergences,
            "leapfrog_steps": round(float(np.mean(lengths)), 1),
            "processor_seconds": round(spent),
        }
        REFERENCE.write_text(json.dumps(summary) + "\n")
        figures = {name: value for name, value in summary.items() if name != "quantiles"}
        print({n: v if np.ndim(v) == 0 else (min(v), max(v)) for n, v in figures.items()}, flush=True)


def summarize(draws: np.ndarray) -> dict[str, object]:
    """Of outputs (chain, draw, row): quantiles, and how well their means are known."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    flat = draws.reshape(-1, draws.shape[-1]).astype(np.float64)
    halves = [
        np.quantile(half.reshape(-1, draws.shape[-1]), LEVELS, axis=0)
        for half in np.array_split(draws.astype(np.float64), 2)
    ]
    equal = np.full(len(LEVELS), 1.0 / len(LEVELS))
    return {
        "quantiles": np.quantile(flat, LEVELS, axis=0).T.round(4).tolist(),
        "mean": flat.mean(axis=0).round(4).tolist(),
        "deviation": flat.std(axis=0).round(4).tolist(),
        "r_hat": np.round(split_gelman_rubin(draws), 4).tolist(),
        "ess": np.round(effective_sample_size(draws)).tolist(),
        "halves": round(float(total_variation(halves[0], equal, halves[1], equal).mean()), 4),
    }


STEPS = 2000
BATCH = 46  # ten batches an epoch


def methods() -> dict[str, Callable[[pb.types.Model], pb.types.Algorithm]]:
    """Every method at its defaults, but for what depends on how long is trained."""
    ways, samplers, kernels = pb.algorithms, pb.samplers, pb.kernels
    late = {"num_warmup": STEPS // 2, "every": 10}

    def second(sampler: pb.types.Sampler, first=pb.map_estimate):
        return lambda model: pb.two_stage(first(model), sampler)

    return {
        "OHSMC, `transport` (default)": pb.ohsmc,
        "VB, full rank": ways.full_rank_vb,
        "VB, mean field": ways.mean_field_vb,
        "MAP": pb.map_estimate,
        "Deep ensemble of 5": lambda model: pb.ensemble(pb.map_estimate(model), 5),
        "MAP, then Laplace": second(samplers.laplace()),
        "SGHMC": lambda model: ways.sghmc(model, **late),
        "SGLD": lambda model: ways.sgld(model, **late),
        "SWAG": lambda model: ways.swag(model, **late),
        "SVGD": ways.svgd,
        "OHSMC, `affine_langevin`": lambda model: pb.ohsmc(model, kernel=kernels.affine_langevin()),
        "OHSMC, `random_walk(0.01)`": lambda model: pb.ohsmc(
            model, num_particles=1000, kernel=kernels.random_walk(0.01)
        ),
        "OHSMC, `forgetting`": lambda model: pb.ohsmc(
            model, num_particles=1000, kernel=kernels.forgetting()
        ),
        "Extended Kalman": ways.ekf,
        "Particle gradient": ways.particle_gradient_descent,
        "OHSMC, then MCLMC": second(samplers.mclmc(), pb.ohsmc),
        "OHSMC, then HMC": second(samplers.hmc(), pb.ohsmc),
        "OHSMC, then `tempered_smc` (`refine`)": second(samplers.tempered_smc(), pb.ohsmc),
        "Ensemble of 5 OHSMC": lambda model: pb.ensemble(pb.ohsmc(model), 5),
    }


def run(folder: Path, only: str) -> None:
    """Append a line for every method that has none yet."""
    inputs, targets, new = load(folder)
    known = json.loads(REFERENCE.read_text())
    widths = list(WIDTHS)
    model = pb.partial_bnn(pb.mlp(widths, activation=jnp.tanh), "**", pb.gaussian(NOISE_VARIANCE))
    psi = model.init(jax.random.key(0)).psi
    done = (
        [json.loads(line)["method"] for line in RESULTS.read_text().splitlines()]
        if RESULTS.exists()
        else []
    )
    for name, build in methods().items():
        if name in done or only.lower() not in name.lower():
            continue
        begin = time.process_time()
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            try:
                epochs = STEPS // (len(targets) // BATCH + 1)
                trained = pb.fit(build(model), (inputs, targets), epochs=epochs, batch_size=BATCH)
            except (pb.errors.TrainingDivergedError, pb.errors.StalledError) as error:
                line = {"method": name, "failed": type(error).__name__}
            else:
                values, log_weights = trained.posterior.particles
                outputs = jax.vmap(lambda phi: model.outputs(phi, psi, jnp.asarray(new, float))[:, 0])(
                    values.reshape(-1, values.shape[-1])
                )
                weights = np.exp(np.asarray(log_weights, float)).ravel()
                scores = compare(np.asarray(outputs, float), weights / weights.sum(), known)
                line = {"method": name, **scores}
        line["processor_seconds"] = round(time.process_time() - begin, 1)
        line["warned"] = sorted({one.category.__name__ for one in raised})
        with RESULTS.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)


def compare(outputs: np.ndarray, weights: np.ndarray, known: dict) -> dict[str, float]:
    """Of outputs (draw, row) with weights: how far their laws are from those of NUTS, over the rows."""
    mean = weights @ outputs
    deviation = np.sqrt(weights @ np.square(outputs - mean))
    theirs = np.asarray(known["deviation"])
    atoms = np.asarray(known["quantiles"]).T
    distances = total_variation(outputs, weights, atoms, np.full(len(atoms), 1.0 / len(atoms)))
    settled = np.asarray(known["r_hat"]) < SETTLED
    return {
        "total_variation": float(distances.mean().round(4)),
        "settled": float(distances[settled].mean().round(4)),
        "largest": float(distances.max().round(4)),
        "mean": float(np.sqrt(np.mean(np.square((mean - np.asarray(known["mean"])) / theirs))).round(3)),
        "spread": float(np.exp(np.mean(np.log(np.maximum(deviation, 1e-6) / theirs))).round(3)),
    }


def total_variation(first, first_weights, second, second_weights) -> np.ndarray:
    """Between the predictive laws, noise included, of each row."""
    noise = NOISE_VARIANCE**0.5
    distances = []
    for row in range(first.shape[1]):
        a, b = first[:, row], second[:, row]
        grid = np.linspace(min(a.min(), b.min()) - 5 * noise, max(a.max(), b.max()) + 5 * noise, 400)
        densities = [
            weights @ np.exp(-0.5 * np.square((grid[None] - places[:, None]) / noise))
            for places, weights in ((a, first_weights), (b, second_weights))
        ]
        step = (grid[1] - grid[0]) / (noise * np.sqrt(2 * np.pi))
        distances.append(0.5 * step * np.abs(densities[0] - densities[1]).sum())
    return np.asarray(distances)


HEAD = """# One real posterior

Written by `benchmarks/real_posterior.py`. All 151 weights of a network of one hidden layer (ten tanh
units) are random, with a standard normal prior and noise of variance 0.1, on the boston table: 455
training rows, 51 test rows, everything in units of the training rows' standard deviations. There is no ψ,
so every method aims at one law. NumPyro's NUTS says what that law predicts: {chains} chains of {draws}
draws after {warmup} of warm-up, {leapfrog_steps:.0f} leapfrog steps each, {divergences} divergences,
{minutes:.0f} minutes of processor time. Of the mean *output* at the test rows (weights cannot be compared: hidden
units can be permuted and their signs flipped), split R-hat is {median_r_hat:.3f} in the median and {worst_r_hat:.2f} at
worst, the effective sample size {median_ess:.0f} and {worst_ess:.0f}. On {unsettled} of {rows} test rows R-hat is above {settled_at},
and the reference is uncertain there: perhaps the chains are in modes of the function that they rarely
leave. The worst R-hat was 1.25 after 250 draws and 1.24 after 1500, so more draws of the same chains
hardly help. The two halves of the chains are {halves:.3f} apart in total variation: smaller differences
mean nothing.

Methods train for {steps} steps of {batch} rows at their defaults, except for the rates and warm-up of
SGHMC, SGLD and SWAG; samplers then see all rows. One run each.
Methods without a line have not been run yet: `python benchmarks/real_posterior.py run` appends them.

- distance: total variation between the predictive laws, noise included; mean over the test rows.
- settled rows: its mean over the rows on which the chains agree (R-hat below {settled_at}).
- worst row: the largest of these distances.
- mean: root mean square difference of the mean outputs, in standard deviations of NUTS; 0 is right.
- spread: standard deviation of the output over that of NUTS, geometric mean; 1 is right.

| method | distance | settled rows | worst row | mean | spread | processor seconds | warned |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
"""  # noqa: E501


def report() -> None:
    """Write the page, methods sorted by distance."""
    known = json.loads(REFERENCE.read_text())
    head = HEAD.format(
        **known,
        minutes=known["processor_seconds"] / 60,
        median_r_hat=np.median(known["r_hat"]),
        worst_r_hat=max(known["r_hat"]),
        median_ess=np.median(known["ess"]),
        worst_ess=min(known["ess"]),
        unsettled=sum(value >= SETTLED for value in known["r_hat"]),
        rows=len(known["r_hat"]),
        settled_at=SETTLED,
        steps=STEPS,
        batch=BATCH,
    )
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    rows = []
    for line in sorted(lines, key=lambda line: line.get("total_variation", 9.0)):
        if "failed" in line:
            figures = f"{line['failed']} | | | | "
        else:
            figures = (
                f"{line['total_variation']:.3f} | {line['settled']:.3f} | {line['largest']:.3f} | "
                f"{line['mean']:.2f} | {line['spread']:.2f}"
            )
        warned = ", ".join(f"`{name}`" for name in line["warned"])
        rows.append(f"| {line['method']} | {figures} | {line['processor_seconds']:.0f} | {warned} |")
    PAGE.write_text(head + "\n".join(rows) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["reference", "run", "report"])
    parser.add_argument("--data", type=Path, default=os.environ.get("FACEOFF_DATA", "."))
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--only", default="", help="part of the name of the methods to run")
    arguments = parser.parse_args()
    if arguments.what == "reference":
        reference(arguments.data, arguments.chains, arguments.warmup, arguments.draws)
    elif arguments.what == "run":
        run(arguments.data, arguments.only)
    else:
        report()


if __name__ == "__main__":
    main()
