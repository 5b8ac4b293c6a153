"""Compare candidate subsets of random weights under one budget.

All candidates run in the same two compiled programs. For that φ is as long as all the weights, and each
candidate is a mask m,

    weights = φ where m, ψ elsewhere.

The other coordinates of φ change neither predictions nor evidence. The price is that every layer runs
for every particle. Random parts that are not weights of the network (factors of products, coordinates
along the path of training) have their own programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from partialbayes._engine.epochs import num_batches
from partialbayes._engine.settings import Run
from partialbayes._utils.checks import as_key, num_rows, require_instance, require_positive_int
from partialbayes.algorithms import map_estimate, ohsmc, trajectory
from partialbayes.feynman_kac import Evidence
from partialbayes.kernels import random_walk
from partialbayes.likelihoods import bernoulli, categorical, gaussian
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.networks import low_rank, path_directions, rank_one, subspace
from partialbayes.networks._factors import product_weights
from partialbayes.parameters import learned
from partialbayes.prediction import _mixture as mixture
from partialbayes.priors import normal
from partialbayes.samplers import tempered_smc
from partialbayes.subsets._ranking import most_uncertain, most_variable_gradient
from partialbayes.subsets._select import Selection, Subset, as_subset, layer_names, where
from partialbayes.training._fit import fit
from partialbayes.training._fit_many import fit_many
from partialbayes.types import (
    Algorithm,
    Batch,
    Chunks,
    Kernel,
    Leaf,
    Likelihood,
    Model,
    Network,
    Posterior,
    PriorBuilder,
    PRNGKey,
    Seed,
)

BESIDE = ("rank one", "low rank", "subspace")
_DIRECTIONS = 5  # of the subspace, from twice as many snapshots in the second half of the MAP run


def advise(
    network: Network,
    data: Any,
    likelihood: Likelihood | None = None,
    *,
    candidates: Mapping[str, Selection] | None = None,
    top: Sequence[int] = (10,),
    beside: Sequence[str] = BESIDE,
    prior: PriorBuilder | None = None,
    validation: Any = None,
    epochs: int = 100,
    batch_size: int | None = None,
    num_particles: int = 100,
    kernel: Kernel | None = None,
    optimizer: optax.GradientTransformation | None = None,
    key: Seed = 0,
    progress: bool | None = None,
) -> SubsetComparison:
    """Compare subsets of random weights, and recommend the smallest one that predicts well.

    Each candidate is trained by OHSMC with the same settings. Then its particles are drawn again from
    the posterior of φ, as by `refine`, which also estimates the evidence. Validation rows are used only
    for the comparison. A MAP estimate is included as a baseline; gradients at it select the weights that
    single examples disagree about most, and those with the largest posterior variance.

    Besides subsets of the weights there are candidates that are new weights: factors of the matrix
    products (`rank_one`, and `low_rank` of rank one with only B random), with a prior of scale 0.1
    around the network, and coordinates along the principal directions of the path of the MAP estimate
    (`subspace`).

    The method is for networks of up to about ten thousand weights, because all layers run for all
    particles.

    Args:
        network: The network.
        data: A pair ``(inputs, targets)``.
        likelihood: The likelihood. By default chosen from the targets: normal with learned variance for
            floating-point numbers, Bernoulli or categorical for integers.
        candidates: Further subsets by name. Each layer, all biases and the ``top`` ones are always
            included.
        top: Numbers of single weights to try: those with the most variable gradient, and the most
            uncertain ones.
        beside: New weights to try: ``"rank one"``, ``"low rank"``, ``"subspace"``. The first two are
            left out if no weight enters a single product, the last if training has fewer than twenty
            steps.
        prior: Prior of every weight that may be random, with fixed scales; standard normal by default.
        validation: Validation rows, a pair like ``data``; by default 30 % of ``data``.
        epochs: Number of passes over the data for each candidate.
        batch_size: Number of rows per step; all rows by default.
        num_particles: Number J of particles, in training and when they are drawn again.
        kernel: Kernel of OHSMC; ``random_walk(0.01)`` by default.
        optimizer: Optax transformation for ψ; Adam at 0.01 by default.
        key: A ``jax.random.key``, or an integer seed.
        progress: Whether to show progress bars; by default only on a terminal.

    Returns:
        The comparison, which prints as a Markdown table, with the recommended candidate.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> x = np.linspace(-2.0, 2.0, 30)[:, None]
        >>> advice = pb.advise(pb.mlp([1, 3, 1]), (x, np.sin(x)), beside=[], epochs=2, num_particles=10)
        >>> len(advice.rows)  # two layers, the biases, and MAP
        4
    """
    require_instance("network", network, Network, "wrap yours by from_nnx, from_equinox or from_params.")
    require_positive_int("num_particles", num_particles, "for example num_particles=100.")
    key = as_key(key)
    key_rows, key_map, key_fit, key_exact = jax.random.split(key, 4)
    if likelihood is None:
        likelihood = _guess_likelihood(network, data)
    every = partial_bnn(network, where(lambda leaf: leaf.is_floating), likelihood, prior)
    if jax.tree.leaves(every.prior.init()):
        raise ValueError(
            "prior has learned scales, which advise does not support; use a fixed scale, for example "
            "normal(scale=0.5)."
        )
    train, held_out = _split_rows(every, data, validation, key_rows)
    num_leaves = len(every.split.leaves) - len(likelihood.latents)
    weights = [leaf for leaf in every.split.leaves[:num_leaves] if leaf.is_floating]
    for way in beside:
        if way not in BESIDE:
            raise ValueError(f"beside must name some of {', '.join(map(repr, BESIDE))}, not {way!r}.")
    for count in top:
        require_positive_int("every entry of top", count, "numbers of single weights to try.")
    tried = [
        _try_candidate(network, name, selection, weights)
        for name, selection in _selections(weights, candidates).items()
    ]

    begin = time.perf_counter()
    settings: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "run": Run(progress=progress),
    }
    steps = epochs * num_batches(num_rows("data", train), batch_size)
    walk = trajectory(
        map_estimate(every, optimizer=optimizer),
        2 * _DIRECTIONS,
        every=max(1, steps // (4 * _DIRECTIONS)),
    )
    path = fit(walk, train, key=key_map, **settings).posterior
    point = jax.tree.map(lambda leaf: leaf[0], path)  # the last step, followed by earlier snapshots
    point = point._replace(particles=point.particles._replace(log_weights=jnp.zeros(1)))
    params = every.split.merge(point.particles.values[0], point.psi.network)
    alone = -np.asarray(
        mixture.log_density(every, point, as_batch(every, held_out, "validation"), Chunks())
    )
    map_seconds = time.perf_counter() - begin

    for count in (count for count in top if count < sum(leaf.size for leaf in weights)):
        subset = most_variable_gradient(count, network, params, likelihood, train)
        tried.append(_try_candidate(network, f"top {count}", subset, weights))
        uncertain = most_uncertain(count, network, params, likelihood, train)
        tried.append(_try_candidate(network, f"uncertain {count}", uncertain, weights))
    masks = jnp.asarray(np.stack([mask for _, _, mask in tried]))
    build = _builder(network, likelihood, prior, num_particles, kernel, optimizer)
    begin = time.perf_counter()
    runs = fit_many(build, train, hyperparameters=masks, key=key_fit, **settings)
    share = (time.perf_counter() - begin) / len(tried)

    batches = as_batch(every, train, "data"), as_batch(every, held_out, "validation")
    posteriors = [run.posterior for run in runs]
    score = partial(_score, build, num_particles)
    score(key_exact, masks[0], posteriors[0], *batches)[1].block_until_ready()  # compiles
    unknown = jnp.asarray(jnp.nan)
    losses, evidences, seconds = [alone], [Evidence(unknown, unknown)], [map_seconds]
    for index, posterior in enumerate(posteriors):
        begin = time.perf_counter()
        key_one = jax.random.fold_in(key_exact, index)
        log_densities, *evidence = score(key_one, masks[index], posterior, *batches)
        losses.append(-np.asarray(log_densities))
        evidences.append(Evidence(*evidence))
        seconds.append(share + time.perf_counter() - begin)
    named = [(MAP, None, 0), *((name, subset, int(mask.sum())) for name, subset, mask in tried)]

    if steps < 4 * _DIRECTIONS:
        beside = [way for way in beside if way != "subspace"]
    new = _new_weights(beside, network, every, path, train)
    for index, (name, (changed, chosen, own_prior)) in enumerate(new.items()):
        begin = time.perf_counter()
        key_one, key_two = jax.random.split(jax.random.fold_in(key_fit, index))
        model = partial_bnn(changed, chosen, likelihood, own_prior)
        algorithm = ohsmc(model, num_particles=num_particles, kernel=kernel, optimizer=optimizer)
        posterior = fit(algorithm, train, key=key_one, **settings).posterior
        log_densities, *evidence = _score(
            partial(_ignore_mask, algorithm), num_particles, key_two, masks[0], posterior, *batches
        )
        losses.append(-np.asarray(log_densities))
        evidences.append(Evidence(*evidence))
        seconds.append(time.perf_counter() - begin)
        named.append((name, as_subset(chosen), model.split.dim))
    changed_networks = {name: changed for name, (changed, _, _) in new.items()}
    return recommend(named, np.stack(losses), evidences, seconds, changed_networks)


def _ignore_mask(algorithm: Algorithm, mask: Bool[Array, " weight"]) -> Algorithm:
    return algorithm


def _new_weights(
    ways: Sequence[str], network: Network, model: Model, path: Posterior, data: Any
) -> dict[str, tuple[Network, str, PriorBuilder]]:
    """Build networks with new weights by name, the pattern of random ones, and their prior."""
    inputs = jax.tree.map(lambda leaf: np.asarray(leaf)[:1], data[0])
    kernels = product_weights(network, inputs)
    found: dict[str, tuple[Network, str, PriorBuilder]] = {}
    if kernels and "rank one" in ways:
        changed = rank_one(network, kernels, inputs=inputs)
        found["rank one"] = changed, "factors/**", normal(scale=0.1)
    if kernels and "low rank" in ways:
        changed = low_rank(network, kernels, 1, inputs=inputs)
        found["low rank"] = changed, "factors/**/output", normal(scale=0.1)
    if "subspace" in ways:
        along = path_directions(model, path, _DIRECTIONS)
        changed = subspace(network, along.directions, center=along.center)
        found["subspace"] = changed, "coordinates", normal()
    return found


def _guess_likelihood(network: Network, data: Any) -> Likelihood:
    inputs, targets = data
    if np.issubdtype(np.asarray(targets).dtype, np.floating):
        return gaussian(learned(1.0))
    outputs = jax.eval_shape(
        lambda: network.apply(network.init(jax.random.key(0)), jnp.asarray(inputs, float))
    )
    return bernoulli() if outputs.shape[-1] == 1 else categorical()


def _split_rows(model: Model, data: Any, validation: Any, key: PRNGKey) -> tuple[Any, Any]:
    as_batch(model, data, "data")
    if validation is not None:
        as_batch(model, validation, "validation")
        return data, validation
    rows = num_rows("data", data)
    held_out = round(0.3 * rows)
    if not 1 < held_out < rows:
        raise ValueError(f"data has only {rows} rows, too few to set some aside; pass validation=.")
    order = np.asarray(jax.random.permutation(key, rows))

    def take_rows(chosen: Int[np.ndarray, " row"]) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], tuple(data))

    return take_rows(order[held_out:]), take_rows(order[:held_out])


Tried = tuple[str, Subset, Bool[np.ndarray, " weight"]]


def _selections(weights: Sequence[Leaf], given: Mapping[str, Selection] | None) -> dict[str, Selection]:
    """Collect each layer, the biases, and the user's subsets by name."""
    found: dict[str, Selection] = {
        name: _leaves(leaf for leaf in weights if leaf.layer == name) for name in layer_names(weights)
    }
    vectors = [leaf for leaf in weights if leaf.name in ("bias", "b")]
    if vectors:
        found["biases"] = _leaves(vectors)
    for name, selection in (given or {}).items():
        if name in found:
            raise ValueError(f"candidates: {name!r} is always included; use another name.")
        found[name] = selection
    return found


def _leaves(chosen: Iterable[Leaf]) -> Subset:
    names = {leaf.path for leaf in chosen}
    return where(lambda leaf: leaf.path in names)


def _try_candidate(network: Network, name: str, selection: Selection, weights: Sequence[Leaf]) -> Tried:
    try:
        split = partial_bnn(network, selection, gaussian()).split
    except (TypeError, ValueError) as error:
        raise type(error)(f"candidates[{name!r}]: {error}") from None
    masks = {leaf.path: mask for leaf, mask in zip(split.leaves, split.masks, strict=True)}
    return (
        name,
        as_subset(selection),
        np.concatenate(
            [np.ravel(np.transpose(masks[leaf.path], leaf.axes)) for leaf in weights]  # as in φ
        ),
    )


def _builder(
    network: Network,
    likelihood: Likelihood,
    prior: PriorBuilder | None,
    num_particles: int,
    kernel: Kernel | None,
    optimizer: optax.GradientTransformation | None,
) -> Callable[[Bool[Array, " weight"]], Algorithm]:
    """Build a function from a mask to OHSMC on a model with these weights random."""
    # Bound to the weights of the network, because a scale may depend on their layer.
    bound = partial_bnn(network, where(lambda leaf: leaf.is_floating), gaussian(), prior)

    def build(mask: Bool[Array, " weight"]) -> Algorithm:
        def init(key: PRNGKey) -> PyTree:
            weights = network.init(key)
            return {"phi": bound.split.flatten(weights)[0], "weights": weights}

        def apply(params: PyTree, inputs: PyTree) -> PyTree:
            own, rest = bound.split.flatten(params["weights"])
            merged = bound.split.merge(jnp.where(mask, params["phi"], own), rest)
            return network.apply(merged, inputs)

        model = partial_bnn(Network(init, apply), "phi", likelihood, lambda split: bound.prior)
        move = random_walk(0.01) if kernel is None else kernel
        return ohsmc(model, num_particles=num_particles, kernel=move, optimizer=optimizer)

    return build


@partial(jax.jit, static_argnames=("build", "num_particles"))
def _score(
    build: Callable[[Bool[Array, " weight"]], Algorithm],
    num_particles: int,
    key: PRNGKey,
    mask: Bool[Array, " weight"],
    posterior: Posterior,
    train: Batch,
    held_out: Batch,
) -> tuple[Float[Array, " example"], Float[Array, ""], Float[Array, ""]]:
    """Compute validation log-densities under newly drawn particles, and the evidence with its error.

    If tempering did not reach the posterior, the trained particles are used.
    """
    model = build(mask).model
    exact, report = tempered_smc(num_particles=num_particles)(key, model, posterior, train)
    reached = report.arrived
    particles = jax.tree.map(partial(jnp.where, reached), exact.particles, posterior.particles)
    log_densities = mixture.log_density(
        model, posterior._replace(particles=particles), held_out, Chunks()
    )
    return log_densities, report.log_evidence, report.standard_error


MAP = "none (MAP)"


class Candidate(NamedTuple):
    """The result of one candidate subset.

    Attributes:
        name: The name of the candidate.
        subset: The weights, to pass to `partial_bnn`; None if no weight was random.
        dim: Number of random weights.
        nlpd: Negative log predictive density of the validation rows; lower is better.
        standard_error: Standard error of ``nlpd`` over the validation rows.
        behind: Difference of ``nlpd`` from that of the best candidate.
        behind_error: Standard error of this difference, computed row by row.
        log_evidence: Log-evidence of the training rows at the trained ψ, from newly drawn particles; NaN
            for MAP, and if the posterior was not reached.
        evidence_error: Standard error of ``log_evidence``, from the ancestry of its run.
        seconds: Time in seconds: the share of training, and drawing the particles again.
        network: The network to use with ``subset``, if it is not the given one.
    """

    name: str
    subset: Subset | None
    dim: int
    nlpd: float
    standard_error: float
    behind: float
    behind_error: float
    log_evidence: float
    evidence_error: float
    seconds: float
    network: Network | None = None


class SubsetComparison(NamedTuple):
    """The result of `advise`; it prints as a Markdown table.

    Attributes:
        rows: Every candidate, best NLPD first, including MAP.
        recommended: The candidate with the fewest weights whose NLPD is within one standard error of the
            best, for differences row by row.
    """

    rows: tuple[Candidate, ...]
    recommended: Candidate

    def __str__(self) -> str:
        lines = [
            "| random weights | d | held-out NLPD | behind the best | log evidence | seconds |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        for row in self.rows:
            name = f"**{row.name}**" if row is self.recommended else row.name
            evidence = "–"
            if np.isfinite(row.log_evidence):
                evidence = f"{row.log_evidence:.1f} ± {row.evidence_error:.1f}"
            lines.append(
                f"| {name} | {row.dim} | {row.nlpd:.4f} ± {row.standard_error:.4f} "
                f"| {row.behind:+.4f} ± {row.behind_error:.4f} | {evidence} | {row.seconds:.1f} |"
            )
        fewest = f"{self.recommended.name}: the fewest weights within one standard error of the best."
        (alone,) = (row for row in self.rows if row.subset is None)
        if alone.behind <= alone.behind_error:
            fewest += " MAP, with no random weight at all, is within it too."
        return "\n".join([*lines, "", f"Recommended: {fewest}"])


def recommend(
    named: Sequence[tuple[str, Subset | None, int]],
    losses: Float[np.ndarray, "candidate example"],
    evidences: Sequence[Evidence],
    seconds: Sequence[float],
    networks: Mapping[str, Network] = MappingProxyType({}),
) -> SubsetComparison:
    """Rank the candidates by the negative log-densities of the validation rows."""
    nlpd = losses.mean(axis=1)
    random = np.array([subset is not None for _, subset, _ in named])
    usable = random & np.isfinite(nlpd)
    if not usable.any():
        raise RuntimeError(
            "no candidate gave a finite NLPD: training diverged for all of them. Scale inputs and "
            "targets, or pass an optimizer with a smaller learning rate."
        )
    best = int(np.argmin(np.where(usable, nlpd, np.inf)))
    gaps = losses - losses[best]
    root = np.sqrt(losses.shape[1])
    errors, gap_errors = losses.std(axis=1, ddof=1) / root, gaps.std(axis=1, ddof=1) / root
    rows = [
        Candidate(
            name,
            subset,
            dim,
            float(nlpd[index]),
            float(errors[index]),
            float(gaps[index].mean()),
            float(gap_errors[index]),
            float(evidences[index].log_evidence),
            float(evidences[index].standard_error),
            float(seconds[index]),
            networks.get(name),
        )
        for index, (name, subset, dim) in enumerate(named)
    ]
    good = [
        row for row, fine in zip(rows, usable, strict=True) if fine and row.behind <= row.behind_error
    ]
    recommended = min(good, key=lambda row: (row.dim, row.nlpd))
    ordered = sorted(rows, key=lambda row: (not np.isfinite(row.nlpd), row.nlpd))
    return SubsetComparison(tuple(ordered), recommended)
