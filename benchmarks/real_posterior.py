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
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.faceoff import read, split

HERE = Path(__file__).parent
REFERENCE = HERE / "real_posterior_nuts.json"
WIDTHS = (13, 10, 1)
NOISE_VARIANCE = 0.1
LEVELS = (np.arange(60) + 0.5) / 60


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


def reference(folder: Path, num_chains: int, num_warmup: int, num_draws: int, kept: Path) -> None:
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
        kept.write_text(json.dumps(summary) + "\n")
        np.save(kept.with_suffix(".npy"), draws)
        figures = {name: value for name, value in summary.items() if name != "quantiles"}
        print({n: v if np.ndim(v) == 0 else (min(v), max(v)) for n, v in figures.items()}, flush=True)


def summarize(draws: np.ndarray) -> dict[str, object]:
    """Of outputs (chain, draw, row): quantiles, and how well their means are known."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    flat = draws.reshape(-1, draws.shape[-1]).astype(np.float64)
    return {
        "quantiles": np.quantile(flat, LEVELS, axis=0).T.round(4).tolist(),
        "mean": flat.mean(axis=0).round(4).tolist(),
        "deviation": flat.std(axis=0).round(4).tolist(),
        "r_hat": np.round(split_gelman_rubin(draws), 4).tolist(),
        "ess": np.round(effective_sample_size(draws)).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["reference"])
    parser.add_argument("--data", default=os.environ.get("FACEOFF_DATA"), required=False)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=REFERENCE)
    arguments = parser.parse_args()
    folder = Path(arguments.data)
    reference(folder, arguments.chains, arguments.warmup, arguments.draws, arguments.out)


if __name__ == "__main__":
    main()
