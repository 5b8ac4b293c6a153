"""A trained network in one call: part of its weights random, around the values they have.

The prior is centered on the trained weights. Its width is the widest whose predictions on held-out rows
are as good as the best found, to within a standard error: among priors that the data cannot tell apart,
the one that doubts most far from them. Everything before the random weights runs once for each row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from partialbayes import metrics, networks
from partialbayes._engine.departure import compare, score, worse
from partialbayes._engine.sources import DataSource, data_source
from partialbayes._utils.checks import (
    as_key,
    num_rows,
    require_instance,
    require_positive,
    require_positive_int,
    require_probability,
)
from partialbayes.algorithms._combinators import at_weights
from partialbayes.errors import DepartureWarning
from partialbayes.likelihoods import bernoulli, categorical, gaussian
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.model._trunk import Trunk, split_trunk
from partialbayes.parameters import learned
from partialbayes.prediction import _mixture as mixture
from partialbayes.prediction._mixture import rows_to_score
from partialbayes.prediction._predict import predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.priors import centered_on
from partialbayes.samplers import adapted, hmc
from partialbayes.subsets._select import Selection, output_layer
from partialbayes.training._fit import fit
from partialbayes.training._second_stage import second_stage
from partialbayes.types import (
    Algorithm,
    Batch,
    Departure,
    Likelihood,
    Model,
    Network,
    Params,
    Posterior,
    PRNGKey,
    Psi,
    Report,
    Sampler,
    Seed,
)

__all__ = ["Bayesianized", "bayesianize"]

WIDTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
_TEMPERATURES = np.geomspace(0.25, 4.0, 33)


@dataclass(frozen=True, eq=False)
class Bayesianized:
    """What `bayesianize` returns.

    Attributes:
        model: The whole network as a model, for `predict`, `save` or more training.
        posterior: Its posterior.
        trunk: The model cut before its random weights; what `predict` here runs.
        width: The prior's standard deviation that was chosen.
        widths: The NLPD of the rows to choose by, for each width tried.
        temperature: What the likelihood's own parameter (a temperature, a noise variance) was
            multiplied by to fit the held-out rows; 1 where it has none.
        before: Scores of the network as it was, on rows that nothing was chosen by.
        after: The same of the posterior.
        departure: The comparison of both, with its error.
        report: What the sampler reports; None if there was none.

    Example:
        >>> import partialbayes as pb
        >>> sorted(pb.pretrained.Bayesianized.__dataclass_fields__)[:3]  # of pb.bayesianize(...)
        ['after', 'before', 'departure']
    """

    model: Model
    posterior: Posterior
    trunk: Trunk
    width: float
    widths: dict[float, float]
    temperature: float
    before: dict[str, float]
    after: dict[str, float]
    departure: Departure
    report: Report

    def predict(self, inputs: PyTree) -> Predictive:
        """Return the predictive mixture at new inputs; the trunk runs once, not once per particle."""
        return predict(self.trunk.head, self.posterior, self.trunk.features(inputs))

    def __str__(self) -> str:
        """The comparison as a table."""
        names = [name for name in self.after if name in self.before] + [
            name for name in self.after if name not in self.before
        ]
        wide = max(map(len, names))
        rows = [f"{'':<{wide}}  {'as it was':>10}  {'now':>10}"]
        for name in names:
            old = f"{self.before[name]:>10.4f}" if name in self.before else f"{'–':>10}"
            rows.append(f"{name:<{wide}}  {old}  {self.after[name]:>10.4f}")
        return "\n".join(rows)


def bayesianize(
    network: Network,
    data: tuple[PyTree, Any],
    *,
    validation: tuple[PyTree, Any] | None = None,
    stochastic: Selection = "head",
    likelihood: Likelihood | None = None,
    freeze: Selection | None = "**",
    width: float | None = None,
    widths: Sequence[float] = WIDTHS,
    sampler: Sampler | None = None,
    train: Callable[[Model], Algorithm] | None = None,
    epochs: int = 10,
    batch_size: int | None = None,
    outside: PyTree = None,
    cache: str | Path | None = None,
    rank: int = 4,
    share: float = 0.2,
    rows: int = 256,
    key: Seed = 0,
) -> Bayesianized:
    """Make part of a trained network random, and say what that did to its predictions.

    Args:
        network: The trained network, from any adapter.
        data: ``(inputs, targets)``, usually what it was trained on.
        validation: Rows that the network was not trained on. Half of them choose the prior's width and
            calibrate; the other half are for the comparison. By default a share of ``data`` is held out,
            which flatters a network that was trained on them: pass others where you have them.
        stochastic: Which weights are random: "head" for the layer that the network defines last;
            "low_rank" or "rank_one" for factors added to its kernels; or a glob, several, a predicate, a
            `Subset`.
        likelihood: How targets are distributed; by default categorical (or Bernoulli, for one output)
            for whole numbers, Gaussian for others, both with what calibrates them.
        freeze: Which of the other weights stay as they are; all by default.
        width: The prior's standard deviation; by default it is found.
        widths: Those to try, in units of the random weights' root mean square.
        sampler: How φ is sampled, all the data at once; HMC of tuned step size by default.
        train: ``model -> algorithm`` to train by, such as ``lambda model: pb.ohsmc(model)``, at the
            width found; by default φ is only sampled, and nothing is trained.
        epochs: Of ``train``.
        batch_size: Of ``train``.
        outside: Inputs from elsewhere, to report how well the posterior tells them apart.
        cache: A folder to keep features in, as memory maps. With ``train`` and ``width`` nothing is
            sampled, and the features are read batch by batch: they need not fit into memory.
        rank: Of "low_rank".
        share: Of ``data`` to hold out where there is no ``validation``.
        rows: Rows of inputs that go through the trunk at a time.
        key: A ``jax.random.key`` or a whole number to make one from.

    Returns:
        Model, posterior, and the comparison with the network as it was. A `DepartureWarning` tells
        where that was better.

    Raises:
        ValueError: ``stochastic`` or ``freeze`` matches no weight, the targets do not fit, or the
            outputs of a row depend on the others.

    Example:
        >>> import jax.numpy as jnp, numpy as np, partialbayes as pb
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(200, 2))
        >>> y = x[:, 0] + 0.1 * rng.normal(size=200)
        >>> weights = {"trunk": jnp.eye(2), "head": jnp.array([[1.0], [0.0]])}
        >>> network = pb.from_params(weights, lambda p, x: x @ p["trunk"] @ p["head"])
        >>> fast = pb.samplers.laplace(num_particles=50)
        >>> result = pb.bayesianize(network, (x, y), stochastic="head", sampler=fast)
        >>> sorted(result.before)
        ['coverage', 'crps', 'mae', 'nlpd', 'r2', 'rmse', 'width']
    """
    require_instance("network", network, Network, "wrap yours by from_torch, from_keras or from_nnx.")
    require_positive_int("epochs", epochs, "for example epochs=10.")
    require_probability("share", share, "for example share=0.2.")
    if width is not None:
        require_positive("width", width)
    for number in widths:
        require_positive("every entry of widths", number)
    key = as_key(key)
    key_rows, key_sample, key_train = jax.random.split(key, 3)
    train_rows, choice, check = _divide_rows(key_rows, data, validation, share)

    network, chosen = _random_part(network._replace(pretrained=True), stochastic, rank)
    own = likelihood is None
    likelihood = _likelihood_for(network, choice) if likelihood is None else likelihood
    model = partial_bnn(network, chosen, likelihood, centered_on(network, learned(1.0)), freeze=freeze)
    trunk = split_trunk(model, train_rows[0])
    features = _Features(trunk, cache, rows)
    training, choosing, checking = (
        (features(part[0], name), part[1])
        for part, name in ((train_rows, "train"), (choice, "choice"), (check, "check"))
    )

    start = at_weights(trunk.head)
    base = _root_mean_square(start.particles.values[0])
    tried = (width,) if width is not None else tuple(float(base * number) for number in widths)
    held = as_batch(trunk.head, choosing, "validation")
    sampler = _default_sampler() if sampler is None else sampler
    found: list[tuple[Posterior, Report]] = [(_with_width(start, one), None) for one in tried]
    if train is None or width is None:
        # The same randomness for each width: they differ by nothing else.
        found = [
            second_stage(sampler, trunk.head, one, training, key=jax.random.fold_in(key_sample, 0))
            for one, _ in found
        ]
    densities = [_log_densities(trunk.head, posterior, held) for posterior, _ in found]
    best = _widest_of_the_best(densities)
    posterior, report = found[best]
    if train is not None:
        rows_to_train = (
            training if cache is None else data_source(training, batch_size=batch_size or rows)
        )
        posterior = _train(
            train, trunk.head, posterior.psi, rows_to_train, choosing, epochs, batch_size, key_train
        )
    posterior, temperature = _calibrated(trunk.head, posterior, held) if own else (posterior, 1.0)

    rest = as_batch(trunk.head, checking, "validation")
    away = None if outside is None else features(outside, "outside")
    departure = compare(
        trunk.head,
        score(trunk.head, start, rest),
        score(trunk.head, posterior, rest),
        rest,
        held_out=True,
    )
    result = Bayesianized(
        model=model,
        posterior=posterior,
        trunk=trunk,
        width=float(tried[best]),
        widths={float(one): -float(values.mean()) for one, values in zip(tried, densities, strict=True)},
        temperature=temperature,
        before=_scores(trunk.head, start, checking, away),
        after=_scores(trunk.head, posterior, checking, away, particles=True),
        departure=departure,
        report=report,
    )
    _warn(result)
    return result


class _Features:
    """The features of several sets of rows, in memory or in a folder of each."""

    def __init__(self, trunk: Trunk, cache: str | Path | None, rows: int) -> None:
        self.trunk, self.rows = trunk, rows
        self.cache = None if cache is None else Path(cache)

    def __call__(self, inputs: PyTree, name: str) -> tuple[Any, ...]:
        folder = None if self.cache is None else self.cache / name
        return tuple(self.trunk.features(inputs, self.rows, folder))


def _random_part(network: Network, stochastic: Selection, rank: int) -> tuple[Network, Selection]:
    """The network, with factors added where those are asked for, and which weights are random."""
    if stochastic == "head" and "head" not in _weights(network):
        return network, output_layer()
    if stochastic in ("low_rank", "rank_one"):
        build = getattr(networks, str(stochastic), None)
        if build is None:
            raise ValueError(
                f"stochastic={stochastic!r} needs networks.{stochastic}, which is not here."
            )
        kernels = [path for path, leaf in _weights(network).items() if len(leaf.shape) > 1]
        if stochastic == "low_rank":
            return build(network, kernels, rank)._replace(pretrained=True), "factors/**/output"
        return build(network, kernels)._replace(pretrained=True), "factors/**"
    return network, stochastic


def _weights(network: Network) -> dict[str, Any]:
    """The shapes of the weights by path."""
    params = jax.eval_shape(network.init, jax.random.key(0))
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(keys, simple=True, separator="/"): leaf for keys, leaf in leaves}


def _divide_rows(
    key: PRNGKey, data: Any, validation: Any, share: float
) -> tuple[tuple[PyTree, Any], ...]:
    """Rows to train on, to choose by, and to compare on."""
    seed = np.asarray(jax.random.key_data(key)).ravel().tolist()
    generator = np.random.default_rng(seed)

    def take(pair: Any, places: Any) -> tuple[PyTree, Any]:
        return jax.tree.map(lambda leaf: np.asarray(leaf[places]), pair[0]), np.asarray(pair[1])[places]

    for name, pair in (("data", data), ("validation", validation)):
        if pair is not None and (not isinstance(pair, tuple | list) or len(pair) != 2):
            raise ValueError(f"{name} must be a pair (inputs, targets), not {type(pair).__name__}.")
    if validation is None:
        total = num_rows("data", data[0])
        order = generator.permutation(total)
        held = max(2, round(share * total))
        if total - held < 1:
            raise ValueError(f"data has {total} rows, too few to hold some out; pass validation=.")
        kept, held_out = take(data, np.sort(order[held:])), take(data, order[:held])
    else:
        kept, held_out = (
            (data[0], np.asarray(data[1])),
            take(validation, generator.permutation(num_rows("validation", validation[0]))),
        )
    half = (len(held_out[1]) + 1) // 2
    return kept, take(held_out, slice(0, half)), take(held_out, slice(half, None))


def _likelihood_for(network: Network, rows: tuple[PyTree, Any]) -> Likelihood:
    """What the targets look like, with a parameter to calibrate by."""
    inputs, targets = rows
    params = network.init(jax.random.key(0))
    first = jax.tree.map(lambda leaf: jnp.asarray(leaf[:256]), inputs)
    outputs = network.apply(params, first)
    if not isinstance(outputs, jax.Array):
        raise ValueError("likelihood is needed: the network's output is not one array.")
    if np.issubdtype(targets.dtype, np.integer) or targets.dtype == bool:
        single = outputs.ndim == 1 or outputs.shape[-1] == 1
        return bernoulli(learned(1.0)) if single else categorical(learned(1.0))
    residuals = np.asarray(outputs).reshape(len(outputs), -1) - targets[:256].reshape(len(outputs), -1)
    return gaussian(learned(float(np.mean(np.square(residuals)))))


def _default_sampler() -> Sampler:
    return hmc(
        step_size=adapted(),
        num_leapfrog_steps=10,
        num_chains=2,
        num_warmup=200,
        num_draws=200,
        num_particles=100,
    )


def _root_mean_square(phi: Float[Array, " dim"]) -> float:
    size = float(jnp.sqrt(jnp.mean(jnp.square(phi))))
    return size if size > 0.0 else 1.0


def _with_width(start: Posterior, width: float) -> Posterior:
    """The posterior at the weights, with another width of the prior in its ψ."""
    prior = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.log(width)), start.psi.prior)
    return start._replace(psi=start.psi._replace(prior=prior))


def _log_densities(model: Model, posterior: Posterior, rows: Batch) -> Float[np.ndarray, " example"]:
    chunks = model.chunks._replace(rows=rows_to_score(model, posterior.particles, rows.mask.shape[0]))
    return np.asarray(mixture.log_density(model, posterior, rows, chunks))


def _widest_of_the_best(densities: Sequence[Float[np.ndarray, " example"]]) -> int:
    """The last whose mean is within a standard error of the highest, both from the same rows."""
    best = int(np.argmax([values.mean() for values in densities]))

    def is_as_good(values: Float[np.ndarray, " example"]) -> bool:
        gap = densities[best] - values
        return bool(gap.mean() <= gap.std() / np.sqrt(len(gap)))

    return max(place for place, values in enumerate(densities) if is_as_good(values))


def _calibrated(model: Model, posterior: Posterior, rows: Batch) -> tuple[Posterior, float]:
    """The posterior with the likelihood's one scalar parameter, if it has one, fitted to the rows."""
    leaves = jax.tree.leaves(posterior.psi.likelihood)
    if len(leaves) != 1 or leaves[0].ndim:
        return posterior, 1.0

    def at(factor: float) -> Posterior:
        shifted = jax.tree.map(
            lambda leaf: leaf + jnp.log(factor).astype(leaf.dtype), posterior.psi.likelihood
        )
        return posterior._replace(psi=posterior.psi._replace(likelihood=shifted))

    scores = [_log_densities(model, at(factor), rows).mean() for factor in _TEMPERATURES]
    factor = float(_TEMPERATURES[int(np.argmax(scores))])
    return at(factor), factor


def _train(
    train: Callable[[Model], Algorithm],
    head: Model,
    psi: Psi,
    data: Any,
    validation: Any,
    epochs: int,
    batch_size: int | None,
    key: PRNGKey,
) -> Posterior:
    """Training with the width and the likelihood's parameters as they are, from the weights."""

    def whole(trained: Psi) -> Psi:
        return psi._replace(network=trained.network)

    def init(key: PRNGKey) -> Params:
        phi, start = head.init(key)
        return Params(phi, Psi(start.network, (), ()))

    likelihood, prior = head.likelihood, head.prior
    fixed = head._replace(
        init=init,
        log_likelihood=lambda phi, own, batch: head.log_likelihood(phi, whole(own), batch),
        outputs=lambda phi, own, inputs: head.outputs(phi, whole(own), inputs),
        parameters=lambda phi, own, inputs: head.parameters(phi, whole(own), inputs),
        likelihood=likelihood._replace(
            init=tuple,
            parameters=lambda outputs, _, latent: likelihood.parameters(outputs, psi.likelihood, latent),
            values=lambda _, latent: likelihood.values(psi.likelihood, latent),
        ),
        prior=prior._replace(
            init=tuple,
            sample=lambda key, _, num: prior.sample(key, psi.prior, num),
            log_density=lambda phi, _: prior.log_density(phi, psi.prior),
            moments=lambda _: prior.moments(psi.prior),
        ),
    )
    trained = fit(
        train(fixed),
        data,
        epochs=epochs,
        batch_size=None if isinstance(data, DataSource) else batch_size,
        validation=validation,
        key=key,
    ).posterior
    if trained.is_ensemble:
        raise ValueError("train must give an algorithm with one ψ; ensembles have several.")
    return trained._replace(psi=whole(trained.psi))


def _scores(
    model: Model, posterior: Posterior, rows: Any, outside: Any, particles: bool = False
) -> dict[str, float]:
    predictive = predict(model, posterior, rows[0])
    scores = {
        name: value
        for name, value in metrics.evaluate(predictive, rows[1]).items()
        if not name.endswith("_over_particles")
    }
    if outside is None:
        return scores
    away = predict(model, posterior, outside)
    if model.likelihood.is_classification:
        names = {"entropy": "auroc_entropy"} | (
            {"mutual_information": "auroc_mutual_information"} if particles else {}
        )
    else:
        names = {"epistemic_variance": "auroc_epistemic_variance"} if particles else {}
    for attribute, name in names.items():
        inside, strange = (
            np.asarray(getattr(one, attribute)).reshape(len(one.mean), -1).sum(axis=1)
            for one in (predictive, away)
        )
        scores[name] = float(metrics.auroc(inside, strange))
    return scores


def _warn(result: Bayesianized) -> None:
    found = result.departure
    if found.is_worse:
        warnings.warn(worse(found), DepartureWarning, stacklevel=3)
        return
    if "accuracy" in result.after and result.after["accuracy"] < result.before["accuracy"] - 0.01:
        warnings.warn(
            f"the accuracy fell from {result.before['accuracy']:.4f} to {result.after['accuracy']:.4f}; "
            "a smaller width keeps the predictions nearer to those of the network as it was.",
            DepartureWarning,
            stacklevel=3,
        )
