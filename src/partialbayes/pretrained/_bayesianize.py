"""Make a trained network Bayesian: a prior centered on its weights, as wide as held-out rows allow.

The chosen width is the largest whose held-out log-density is within one standard error of the best. The
layers before the random weights run once per row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from partialbayes import networks
from partialbayes._engine.departure import compare, score, worse
from partialbayes._engine.sources import data_source
from partialbayes._utils.checks import (
    as_key,
    require_instance,
    require_positive,
    require_positive_int,
    require_probability,
)
from partialbayes._utils.paths import named_leaves
from partialbayes.algorithms._combinators import at_weights
from partialbayes.errors import DepartureWarning
from partialbayes.likelihoods import bernoulli, categorical, gaussian
from partialbayes.metrics import auroc
from partialbayes.model._batch import as_batch
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.model._trunk import split_trunk
from partialbayes.networks._factors import product_weights
from partialbayes.parameters import learned
from partialbayes.pretrained._choice import calibrated, log_densities, train_at, widest_of_the_best
from partialbayes.pretrained._result import Bayesianized, scores_of
from partialbayes.pretrained._rows import Rows, divide_rows
from partialbayes.pretrained._strangeness import Watcher, strangeness
from partialbayes.priors import centered_on
from partialbayes.samplers import adapted, hmc, laplace
from partialbayes.subsets._select import Selection, output_layer
from partialbayes.training._second_stage import second_stage
from partialbayes.types import Algorithm, Likelihood, Model, Network, Posterior, Report, Sampler, Seed

WIDTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
_LARGEST_FACTORED = 2000  # random weights whose full covariance is cheap


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
    """Make part of a trained network random, and compare its predictions with the original ones.

    Args:
        network: The trained network, from any adapter.
        data: A pair ``(inputs, targets)``, usually the training data of the network.
        validation: A pair of rows that the network was not trained on. One half chooses the width of the
            prior and calibrates, the other half is for the comparison. By default a share of ``data`` is
            held out. If the network was trained on those rows, its scores are too good.
        stochastic: The random weights: "head" for the layer that the network defines last; "low_rank" or
            "rank_one" for factors added to its kernels; or globs, a predicate or a `Subset`.
        likelihood: The distribution of the targets. Defaults to a categorical one (Bernoulli for a
            single output) for integers and a Gaussian one for other numbers, with a parameter that is
            calibrated.
        freeze: The deterministic weights that are not trained. Defaults to all of them.
        width: The standard deviation of the prior. By default it is chosen from ``widths``.
        widths: The widths to try, in units of the root mean square of the random weights.
        sampler: A sampler of φ that uses all the data at once. If the outputs are linear in at most
            2,000 random weights, the default is Laplace's approximation, corrected by HMC. Otherwise it
            is HMC with an adapted step size.
        train: A function ``model -> algorithm``, such as ``lambda model: pb.ohsmc(model)``, to train
            with for each width. By default φ is only sampled, and nothing is trained.
        epochs: Number of epochs of ``train``.
        batch_size: Batch size of ``train``.
        outside: Out-of-distribution inputs, to report how well the posterior detects them.
        cache: A folder in which to store features as memory maps. ``train`` then reads them batch by
            batch, so they need not fit in memory.
        rank: The rank of "low_rank" factors.
        share: The share of ``data`` to hold out if there is no ``validation``.
        rows: Number of inputs that go through the trunk at a time.
        key: A ``jax.random.key``, or an integer seed.

    Returns:
        The model, its posterior, and the comparison with the original network.

    Warns:
        DepartureWarning: The original network predicts better.

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
    key_rows, key_posterior = jax.random.split(key)
    train_rows, choice, check = divide_rows(key_rows, data, validation, share)

    original = network._replace(pretrained=True)
    network, chosen = _random_part(original, stochastic, rank, train_rows[0])
    own = likelihood is None
    likelihood = _likelihood_for(network, choice) if likelihood is None else likelihood
    model = partial_bnn(network, chosen, likelihood, centered_on(network, learned(1.0)), freeze=freeze)
    trunk = split_trunk(model, train_rows[0])
    head = trunk.head

    def features(inputs: PyTree, name: str) -> tuple[Any, ...]:
        return tuple(trunk.features(inputs, rows, None if cache is None else Path(cache) / name))

    training, choosing, checking = (
        (features(part[0], name), part[1])
        for part, name in ((train_rows, "train"), (choice, "choice"), (check, "check"))
    )

    start = at_weights(head)
    tried = (width,) if width is not None else _widths(start, widths)
    sampler = _default_sampler(head, start, training[0]) if sampler is None else sampler

    def at(width: float) -> tuple[Posterior, Report]:
        # All widths use the same random numbers, so that they can be compared.
        begin = _with_width(start, width)
        if train is None:
            return second_stage(sampler, head, begin, training, key=key_posterior)
        source = training if cache is None else data_source(training, batch_size=batch_size or rows)
        trained = train_at(begin.psi, train, head, source, choosing, epochs, batch_size, key_posterior)
        return trained, None

    found = [at(one) for one in tried]
    held = as_batch(head, choosing, "validation")
    densities = [log_densities(head, posterior, held) for posterior, _ in found]
    best = widest_of_the_best(densities)
    posterior, report = found[best]
    posterior, temperature = calibrated(head, posterior, held) if own else (posterior, 1.0)

    rest = as_batch(head, checking, "validation")
    away = None if outside is None else features(outside, "outside")
    watcher = Watcher(original, likelihood, trunk, train_rows[0], rows)
    strange = strangeness(trunk, posterior, watcher, train_rows, choice[0])
    after = scores_of(head, posterior, checking, away)
    if away is not None:
        after["auroc_strangeness"] = float(auroc(strange(check[0], checking[0]), strange(outside, away)))
    result = Bayesianized(
        model=model,
        posterior=posterior,
        trunk=trunk,
        width=float(tried[best]),
        widths={float(one): -float(values.mean()) for one, values in zip(tried, densities, strict=True)},
        temperature=temperature,
        before=scores_of(head, start, checking, away),
        after=after,
        departure=compare(
            head, score(head, start, rest), score(head, posterior, rest), rest, held_out=True
        ),
        report=report,
        uncertainty=strange,
    )
    _warn(result)
    return result


def _likelihood_for(network: Network, rows: Rows) -> Likelihood:
    """Return a likelihood for the type of the targets, with a parameter to calibrate."""
    inputs, targets = rows
    params = network.init(jax.random.key(0))
    first = jax.tree.map(lambda leaf: jnp.asarray(leaf[:256]), inputs)
    outputs = network.apply(params, first)
    if not isinstance(outputs, jax.Array):
        raise ValueError(
            "the network's output is not a single array; pass likelihood=, or choose one output, as "
            "from_torch(module, output=...) does."
        )
    if np.issubdtype(targets.dtype, np.integer) or targets.dtype == bool:
        single = outputs.ndim == 1 or outputs.shape[-1] == 1
        if not single and np.all(outputs >= 0.0) and np.allclose(outputs.sum(-1), 1.0, atol=1e-3):
            raise ValueError(
                "the outputs are probabilities already, but logits are needed; leave out the final "
                "softmax, or pass likelihood=."
            )
        return bernoulli(learned(1.0)) if single else categorical(learned(1.0))
    residuals = np.asarray(outputs).reshape(len(outputs), -1) - targets[:256].reshape(len(outputs), -1)
    return gaussian(learned(float(np.mean(np.square(residuals)))))


def _random_part(
    network: Network, stochastic: Selection, rank: int, inputs: PyTree
) -> tuple[Network, Selection]:
    """Return the network, with factors if requested, and the selection of its random weights."""
    weights = jax.eval_shape(network.init, jax.random.key(0))
    if stochastic == "head" and "head" not in dict(named_leaves(weights)):
        return network, output_layer()
    if stochastic not in ("low_rank", "rank_one"):
        return network, stochastic
    few = jax.tree.map(lambda leaf: jnp.asarray(leaf[:2]), inputs)
    kernels = product_weights(network, few)
    if stochastic == "low_rank":
        return networks.low_rank(network, kernels, rank, inputs=few), "factors/**/output"
    return networks.rank_one(network, kernels, inputs=few), "factors/**"


def _default_sampler(head: Model, start: Posterior, features: Sequence[Any]) -> Sampler:
    """Return Laplace's approximation corrected by HMC if the outputs are linear in φ, else HMC."""
    if head.split.dim <= _LARGEST_FACTORED and _is_linear(head, start, features):
        return laplace(num_particles=100, num_moves=10)
    return hmc(
        step_size=adapted(),
        num_leapfrog_steps=10,
        num_chains=2,
        num_warmup=200,
        num_draws=200,
        num_particles=100,
    )


def _is_linear(head: Model, start: Posterior, features: Sequence[Any]) -> bool:
    """Return whether the outputs change additively under two changes of φ."""
    few = tuple(jnp.asarray(one[:8]) for one in features)
    phi = start.particles.values[0]
    first, second = jax.random.normal(jax.random.key(0), (2, *phi.shape), phi.dtype)

    def outputs(change: Any) -> list[Any]:
        return jax.tree.leaves(head.outputs(phi + change, start.psi, few))

    parts = zip(*(outputs(c) for c in (0.0 * phi, first, second, first + second)), strict=True)
    return all(np.allclose(a + b, c + none, rtol=1e-3, atol=1e-3) for none, a, b, c in parts)


def _widths(start: Posterior, widths: Sequence[float]) -> tuple[float, ...]:
    """Multiply the widths by the root mean square of the random weights."""
    size = float(jnp.sqrt(jnp.mean(jnp.square(start.particles.values[0])))) or 1.0
    return tuple(size * float(number) for number in widths)


def _with_width(start: Posterior, width: float) -> Posterior:
    """Set the width of the prior in the ψ of a posterior."""
    prior = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.log(width)), start.psi.prior)
    return start._replace(psi=start.psi._replace(prior=prior))


def _warn(result: Bayesianized) -> None:
    found = result.departure
    if found.is_worse:
        warnings.warn(worse(found), DepartureWarning, stacklevel=3)
        return
    if "accuracy" in result.after and result.after["accuracy"] < result.before["accuracy"] - 0.01:
        warnings.warn(
            f"the accuracy fell from {result.before['accuracy']:.4f} to {result.after['accuracy']:.4f}; "
            "a smaller width keeps the predictions closer to those of the original network.",
            DepartureWarning,
            stacklevel=3,
        )
