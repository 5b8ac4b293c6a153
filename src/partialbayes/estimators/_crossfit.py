"""Cross-fitted groups of members: what the estimators train by default.

K folds and one or two views of the columns (periodic features; these and piecewise-linear ones) make
K or 2 K groups, each with a ψ of its own and M members (`table_mlp`, `shared_ensemble`). All train at
once in one program. A group never sees its fold, so every row has a prediction by members that do not
know it. All train to the end of a schedule: nothing is chosen by a fold. What the training rows make
too narrow, the noise, is corrected by three numbers of each view, found on the out-of-fold predictions
of all rows, and so is the weight of the views in the mixture.
"""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from partialbayes._engine.settings import Run
from partialbayes._utils.warn import warn
from partialbayes.algorithms import ensemble, shared_ensemble
from partialbayes.callbacks import Progress
from partialbayes.likelihoods import bernoulli, calibrated, categorical, student_t
from partialbayes.model._batch import padded_size
from partialbayes.model._partial_bnn import partial_bnn
from partialbayes.networks import table_mlp
from partialbayes.parameters import learned
from partialbayes.prediction._calibrate import find_numbers, log_densities
from partialbayes.prediction._components import components
from partialbayes.types import Algorithm, Batch, Model, Particles, Posterior, PRNGKey

_RANDOM = ("layers/*/input_factor", "layers/*/output_factor", "layers/*/bias", "head/*")
_WARM_UP = 20  # steps over which the rate rises
_LAST_RATE = 0.01  # at the end, as a share of the highest
_MOST_WAVES = 480  # periodic features of all columns together; wide tables get fewer each
_LEAST_FREEDOM = 2.1  # of Student's t, so that there is a variance
# All groups together spread more than the one whose out-of-fold rows the numbers were found on.
_NARROWER = 0.9
_PIECES = 20  # a run is divided into, for the bar, Ctrl-C and budgets in seconds


class Recipe(NamedTuple):
    """All that decides the program of a table, besides its rows.

    Attributes:
        sizes: Columns, hidden widths, outputs (classes, or twice the targets).
        is_classifier: Whether targets are classes.
        numeric: The columns with periodic features, and bins.
        num_bins: Of each of them, in the second view; 0 if there is but one view.
        num_particles: M, members of a group.
        num_folds: K.
        learning_rate: Highest rate of Adam.
        weight_decay: Decoupled decay of kernels, as a share of the rate.
    """

    sizes: tuple[int, ...]
    is_classifier: bool
    numeric: tuple[int, ...]
    num_bins: int
    num_particles: int
    num_folds: int
    learning_rate: float
    weight_decay: float

    @property
    def num_views(self) -> int:
        """One, or two where there are bins."""
        return 2 if self.num_bins else 1

    @property
    def num_groups(self) -> int:
        """Every view of every fold: group g has fold g mod K and view g div K."""
        return self.num_folds * self.num_views


class Schedule(NamedTuple):
    """How long to train.

    Attributes:
        num_steps: Steps; None where the seconds decide.
        batch_size: Rows of each member in a step.
        seconds: To spend at most on steps; None for no bound.
    """

    num_steps: int | None
    batch_size: int
    seconds: float | None


class Folds(NamedTuple):
    """Which rows each group trains on, and which it does not see.

    Attributes:
        of_row: The fold of each row, -1 where nothing is held out.
        train: Rows of each group, padded.
        counts: How many of them count.
    """

    of_row: Int[np.ndarray, " row"]
    train: Int[np.ndarray, "group place"]
    counts: Int[np.ndarray, " group"]


def schedule_for(rows: int, effort: str | float, is_classifier: bool) -> Schedule:
    """Steps and batches by the size of the table."""
    if rows < 250:
        steps, batch = 1500, 16
    elif rows < 1000:
        steps, batch = 2500, 16
    elif rows < 3000:
        steps, batch = 4000, 16
    else:
        # About as many passes through the rows, up to what a few minutes allow.
        steps, batch = int(min(5000 + rows / 3, 16000)), 32
    if is_classifier:
        steps = steps // 2
    if isinstance(effort, str):
        factors = {"fast": 0.3, "default": 1.0, "best": 3.0}
        if effort not in factors:
            raise ValueError(
                f'effort must be "fast", "default", "best" or a number of seconds, not {effort!r}.'
            )
        return Schedule(max(int(steps * factors[effort]), 100), batch, None)
    seconds = float(effort)
    if not seconds > 0.0:
        raise ValueError(f"effort in seconds must be positive, not {effort!r}.")
    return Schedule(None, batch, seconds)


def numeric_columns(inputs: Any) -> tuple[int, ...]:
    """The columns with more than two values; none if there are so many that each would get too few."""
    chosen = [column for column in range(inputs.shape[1]) if len(np.unique(inputs[:, column])) > 2]
    return tuple(chosen) if 4 * len(chosen) <= _MOST_WAVES else ()


def bins_for(rows: int, columns: int, is_classifier: bool) -> int:
    """Bins of each column by the size of the table; 0 where they would learn rows by heart."""
    bins = min(16, rows // (20 if is_classifier else 60), 192 // max(columns, 1))
    return bins if bins > 2 else 0


def make_folds(
    inputs: Any, targets: Any, num_folds: int, groups: Any, is_classifier: bool, seed: int
) -> Folds:
    """Divide the rows; equal rows, or rows of one of the ``groups``, stay together.

    Classes are spread evenly over the folds.
    """
    rows = len(inputs)
    if groups is None:
        groups = np.unique(inputs, axis=0, return_inverse=True)[1].reshape(-1)
    else:
        groups = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1)
    count = int(groups.max()) + 1
    random = np.random.default_rng(seed)
    first = np.zeros(count, int)
    first[groups[::-1]] = np.arange(rows)[::-1]
    kind = targets[first] if is_classifier else np.zeros(count)
    order = np.lexsort((random.random(count), kind))
    of_group = np.empty(count, int)
    of_group[order] = np.arange(count) % num_folds
    of_row = of_group[groups]
    held_out = [of_row == fold for fold in range(num_folds)]
    if count < num_folds or min(np.sum(~mask) for mask in held_out) < 2:
        of_row = np.full(rows, -1)
        held_out = [np.zeros(rows, bool)] * num_folds
    train = [np.flatnonzero(~mask) for mask in held_out]
    counts = np.array([len(places) for places in train])
    width = padded_size(int(counts.max()))
    padded = np.stack([np.resize(places, width) for places in train])
    return Folds(of_row, padded, counts)


@functools.lru_cache(maxsize=64)
def build(recipe: Recipe) -> Algorithm:
    """The method for one group; the same object for the same recipe, so that it is compiled once."""
    num_outputs = recipe.sizes[-1]
    if recipe.is_classifier:
        likelihood, start = bernoulli() if num_outputs == 1 else categorical(), None
    else:
        likelihood = student_t(learned(5.0), scale="predicted")
        start = [0.0] * (num_outputs // 2) + [0.5413] * (num_outputs // 2)  # a scale of one
    waves = int(np.clip(_MOST_WAVES // max(len(recipe.numeric), 1), 4, 16))
    network = table_mlp(
        recipe.sizes,
        recipe.numeric,
        num_bins=recipe.num_bins,
        num_frequencies=waves,
        initial_outputs=start,
    )
    model = partial_bnn(network, _RANDOM, calibrated(likelihood))
    decays = _decays(model)

    def optimizer(learning_rate: Any) -> optax.GradientTransformation:
        return optax.chain(
            optax.scale_by_adam(),
            _decayed(recipe.weight_decay, decays),
            optax.scale_by_learning_rate(learning_rate),
        )

    # The loop below sets the rate of every step; on a stream it stays at a fifth of the highest.
    injected = optax.inject_hyperparams(optimizer)(learning_rate=0.2 * recipe.learning_rate)
    return shared_ensemble(model, num_particles=recipe.num_particles, optimizer=injected)


def _decays(model: Model) -> Float[np.ndarray, " dim"]:
    """1 for the entries of φ that decay, kernels of the head, and 0 for the others."""
    pieces = [
        np.full(leaf.size, float(leaf.path == "head/kernel"))
        for leaf, mask in zip(model.split.leaves, model.split.masks, strict=True)
        if mask.any()
    ]
    return np.concatenate(pieces)


def _decayed(decay: float, of_phi: Any) -> optax.GradientTransformation:
    """Decoupled decay of the shared kernels and of the heads; factors, biases and noise are free."""

    def update(updates: Any, state: Any, params: Any) -> tuple[Any, Any]:
        phi, psi = params
        network = {
            name: updates.psi.network[name] + decay * leaf if name.endswith("kernel") else leaf_update
            for (name, leaf), leaf_update in zip(
                psi.network.items(), updates.psi.network.values(), strict=True
            )
        }
        moved = updates.phi + decay * jnp.asarray(of_phi, phi.dtype)[None] * phi
        return updates._replace(phi=moved, psi=updates.psi._replace(network=network)), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


@functools.lru_cache(maxsize=64)
def grouped(recipe: Recipe) -> Algorithm:
    """All groups as one method, for going on with new rows: every group then sees all of them."""
    algorithm = build(recipe)

    def restart(state: Any, posterior: Posterior) -> Any:
        assert algorithm.restart is not None
        return jax.vmap(algorithm.restart)(state, posterior)

    return ensemble(algorithm, recipe.num_groups)._replace(restart=restart)


class Trained(NamedTuple):
    """What training gives.

    Attributes:
        posterior: Of all groups, calibrated.
        out_of_fold: The same with the numbers that suit one group.
        nlpd: Of the rows out of fold, in units of training; NaN where nothing was held out.
        losses: Mean over groups, step by step.
        interrupted: Whether Ctrl-C ended it.
    """

    posterior: Posterior
    out_of_fold: Posterior
    nlpd: float
    losses: Float[np.ndarray, " step"]
    interrupted: bool


def train(
    recipe: Recipe,
    schedule: Schedule,
    inputs: Any,
    targets: Any,
    folds: Folds,
    weights: Any,
    key: PRNGKey,
    run: Run = Run(),  # noqa: B008
) -> Trained:
    """Train the groups and calibrate their mixture.

    Args:
        recipe: What to train.
        schedule: How long.
        inputs: Standardized rows.
        targets: In units of training, or class numbers.
        folds: From `make_folds`.
        weights: Of the rows; None if all are equal. A row is drawn in proportion to its weight.
        key: All the randomness.
        run: Whether to show a bar, and callbacks, as in `fit`.
    """
    algorithm = build(recipe)
    rows = len(inputs)
    size = padded_size(rows)
    inputs, targets = (
        np.concatenate([a, np.repeat(a[-1:], size - rows, axis=0)]) for a in (inputs, targets)
    )
    data = (jnp.asarray(inputs), jnp.asarray(targets))
    drawn = _draws(folds, weights, recipe.num_views)
    key_start, key_run = jax.random.split(key)
    edges = _edges(inputs, recipe) if recipe.num_bins else None
    states = _start(algorithm, recipe, key_start, edges)
    batch_size = schedule.batch_size * recipe.num_particles
    num_steps = 10**6 if schedule.num_steps is None else schedule.num_steps
    losses: list[Any] = []
    done, interrupted = 0, False
    bar = tqdm(total=schedule.num_steps, disable=not run.progress, desc="training")
    piece = 50 if schedule.num_steps is None else max(50, -(-num_steps // _PIECES))
    length = max(50, piece)
    timed_from = (0, 0.0)
    try:
        while done < num_steps:
            count = min(piece, num_steps - done)
            states, lost = _run(
                algorithm,
                states,
                key_run,
                done,
                count,
                num_steps,
                recipe.learning_rate,
                data,
                drawn,
                batch_size,
                length,
            )
            losses.append(np.asarray(lost)[:count])
            done += count
            bar.update(count)
            if run.callbacks:
                current = functools.partial(_posterior, algorithm, states)
                infos = {"loss": losses[-1]}
                seen = Progress(done - count, num_steps, infos, {}, done, current(), current)
                if any([callback(seen) is True for callback in run.callbacks]):
                    break
            if not np.isfinite(losses[-1]).all():
                warn(
                    "training diverged: a loss is not finite. Try a lower learning_rate, or look for "
                    "extreme values in the columns.",
                    ConvergenceWarning,
                )
                break
            if schedule.num_steps is None:
                num_steps, timed_from = _afforded(schedule, done, timed_from, num_steps)
                piece = max(50, min(length, num_steps - done))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        bar.close()
    posterior = _posterior(algorithm, states)
    posterior, out_of_fold, nlpd = _calibrated(algorithm.model, recipe, posterior, data, folds)
    all_losses = np.concatenate(losses) if losses else np.zeros(0)
    return Trained(posterior, out_of_fold, nlpd, all_losses, interrupted)


def _afforded(
    schedule: Schedule, done: int, timed_from: tuple[int, float], num_steps: int
) -> tuple[int, tuple[int, float]]:
    """The steps that the seconds allow, known after the second piece: the first one compiles."""
    now = time.monotonic()
    if timed_from[1] == 0.0:
        return num_steps, (done, now)
    if num_steps < 10**6:
        return num_steps, timed_from
    assert schedule.seconds is not None
    each = (now - timed_from[1]) / (done - timed_from[0])
    return int(np.clip(schedule.seconds / each, done + 50, 200_000)), timed_from


def _draws(folds: Folds, weights: Any, num_views: int) -> tuple[Array, Array, Array | None]:
    """The rows of each group, how many, and their cumulative weights where rows are weighted."""
    train, counts = (np.concatenate([part] * num_views) for part in (folds.train, folds.counts))
    if weights is None:
        return jnp.asarray(train), jnp.asarray(counts), None
    of_places = np.asarray(weights, float)[train] * (np.arange(train.shape[1]) < counts[:, None])
    total = np.cumsum(of_places, axis=1)
    return jnp.asarray(train), jnp.asarray(counts), jnp.asarray(total / total[:, -1:], jnp.float32)


def _edges(inputs: Any, recipe: Recipe) -> Float[np.ndarray, "column edge"]:
    """Quantiles of the columns, drawn in as the network does; values that occur often have one edge."""
    columns = inputs[:, np.asarray(recipe.numeric)].astype(float)
    columns = columns / np.sqrt(1.0 + np.square(columns / 3.0))
    edges = np.quantile(columns, np.linspace(0.0, 1.0, recipe.num_bins + 1), axis=0).T
    for row in edges:
        distinct = np.unique(row)
        row[:] = np.concatenate([distinct, np.full(len(row) - len(distinct), distinct[-1])])
    return edges.astype(np.float32)


@functools.partial(jax.jit, static_argnames=("algorithm", "recipe"))
def _start(algorithm: Algorithm, recipe: Recipe, key: PRNGKey, edges: Array | None) -> Any:
    states = jax.vmap(algorithm.init)(jax.random.split(key, recipe.num_groups))
    if edges is None:
        return states
    psi = states.members.psi
    network = dict(psi.network)
    network["embedding/edges"] = jnp.tile(edges[None], (recipe.num_groups, 1, 1))
    network["embedding/gate"] = jnp.repeat(jnp.array([0.0, 1.0]), recipe.num_folds)
    members = states.members._replace(psi=psi._replace(network=network))
    return states._replace(members=members, average=members)


@functools.partial(jax.jit, static_argnames=("algorithm",))
def _posterior(algorithm: Algorithm, states: Any) -> Posterior:
    psi, (values, log_weights) = jax.vmap(algorithm.posterior)(states)
    return Posterior(psi, Particles(values, log_weights - jnp.log(float(len(log_weights)))))


@functools.partial(
    jax.jit, static_argnames=("algorithm", "batch_size", "length"), donate_argnames=("states",)
)
def _run(
    algorithm: Algorithm,
    states: Any,
    key: PRNGKey,
    begin: Any,
    count: Any,
    num_steps: Any,
    rate: Any,
    data: tuple[Array, Array],
    drawn: tuple[Array, Array, Array | None],
    batch_size: int,
    length: int,
) -> tuple[Any, Float[Array, " length"]]:
    """``count`` steps of all groups from step ``begin`` on; their mean losses."""
    inputs, targets = data
    train, counts, cumulative = drawn
    num_groups = train.shape[0]
    mask, scale = jnp.ones((num_groups, batch_size), bool), jnp.ones(num_groups)

    def one(step: Array, carried: tuple[Any, Array]) -> tuple[Any, Array]:
        states, losses = carried
        key_step = jax.random.fold_in(key, begin + step)
        draws = jax.random.uniform(key_step, (num_groups, batch_size))
        if cumulative is None:
            places = jnp.minimum((draws * counts[:, None]).astype(jnp.int32), counts[:, None] - 1)
        else:
            places = jax.vmap(jnp.searchsorted)(cumulative, draws)
        rows = jnp.take_along_axis(train, places, axis=1)
        time = (begin + step + 1).astype(jnp.float32)
        falls = _LAST_RATE + (1.0 - _LAST_RATE) * 0.5 * (1.0 + jnp.cos(jnp.pi * time / num_steps))
        rates = jnp.full(num_groups, rate * jnp.minimum(1.0, time / _WARM_UP) * falls)
        optimizer = states.optimizer._replace(hyperparams={"learning_rate": rates})
        batch = Batch(inputs[rows], targets[rows], mask, scale)
        # The members need no randomness beyond their rows: one key serves all groups.
        states, info = jax.vmap(algorithm.step, in_axes=(None, 0, 0))(
            key_step, states._replace(optimizer=optimizer), batch
        )
        return states, losses.at[step].set(info["loss"].mean())

    return jax.lax.fori_loop(0, count, one, (states, jnp.zeros(length)))


def _calibrated(
    model: Model, recipe: Recipe, posterior: Posterior, data: tuple[Array, Array], folds: Folds
) -> tuple[Posterior, Posterior, float]:
    """The posterior with the numbers for all groups, with those for one, and the score of these."""
    base = posterior.psi.likelihood["base"]
    if isinstance(base, dict) and "degrees_of_freedom" in base:
        least = np.float32(np.log(_LEAST_FREEDOM))
        base = {**base, "degrees_of_freedom": jnp.maximum(base["degrees_of_freedom"], least)}
        likelihood = {**posterior.psi.likelihood, "base": base}
        posterior = posterior._replace(psi=posterior.psi._replace(likelihood=likelihood))
    if folds.of_row.max() < 0:
        return posterior, posterior, np.nan
    places, mask = _fold_places(folds)
    inputs, targets = (np.asarray(array)[places] for array in data)
    targets, mask = targets.reshape(-1, *targets.shape[2:]), mask.reshape(-1)
    views = _own_fold(model, recipe, posterior, inputs)
    count = recipe.num_particles
    log_weights = jnp.full((count, 1), -np.log(count), jnp.float32)
    found, densities = [], []
    for view in range(recipe.num_views):
        own = jax.tree.map(lambda leaf, view=view: leaf[view], views)
        numbers = find_numbers(model.likelihood, own, targets, log_weights, jnp.asarray(mask))
        density = log_densities(numbers, model.likelihood, own, targets, log_weights)
        found.append(numbers)
        densities.append(np.asarray(density, float)[mask])
    shares = _stack(np.stack(densities))
    with np.errstate(invalid="ignore"):  # of a run that diverged, which has been warned of
        mixed = np.logaddexp.reduce(np.stack(densities) + np.log(shares)[:, None], axis=0)
    nlpd = -float(mixed.mean())
    narrower = [_narrowed(numbers) for numbers in found]
    return (
        _with_numbers(posterior, recipe, narrower, shares),
        _with_numbers(posterior, recipe, found, shares),
        nlpd,
    )


def _stack(log_densities: Float[np.ndarray, "view row"]) -> Float[np.ndarray, " view"]:
    """Shares of the views in the mixture that make the rows most probable, by expectation-maximization.

    A row's worth of doubt keeps both in.
    """
    views, rows = log_densities.shape
    log_densities = np.nan_to_num(log_densities, nan=-1e6, posinf=1e6, neginf=-1e6)
    shares = np.full(views, 1.0 / views)
    for _ in range(200):
        joint = log_densities + np.log(shares)[:, None]
        owned = np.exp(joint - np.logaddexp.reduce(joint, axis=0)[None]).sum(axis=1)
        shares = (owned + 0.5) / (rows + 0.5 * views)
    return shares


def _narrowed(numbers: dict[str, float]) -> dict[str, float]:
    """For the mixture of all groups, which spreads more than the one the numbers were found on."""
    if "log_factor" not in numbers:
        return numbers
    factor = numbers["log_factor"] + float(np.log(_NARROWER))
    return {**numbers, "log_factor": factor, "floor": numbers["floor"] * _NARROWER}


def _with_numbers(
    posterior: Posterior, recipe: Recipe, numbers: list[dict[str, float]], shares: Any
) -> Posterior:
    """The posterior with the numbers and the share of each view in its groups."""
    folds, count = recipe.num_folds, recipe.num_particles
    each = {
        name: jnp.asarray(np.repeat([of_view[name] for of_view in numbers], folds), jnp.float32)
        for name in numbers[0]
    }
    likelihood = {**posterior.psi.likelihood, "calibration": each}
    logs = np.repeat(np.log(shares / (folds * count)), folds)[:, None] * np.ones(count)
    particles = Particles(posterior.particles.values, jnp.asarray(logs, jnp.float32))
    return Posterior(posterior.psi._replace(likelihood=likelihood), particles)


def _fold_places(folds: Folds) -> tuple[Int[np.ndarray, "fold place"], Bool[np.ndarray, "fold place"]]:
    """The rows of every fold, padded to one width, and which of them count."""
    held_out = [np.flatnonzero(folds.of_row == fold) for fold in range(len(folds.counts))]
    width = padded_size(max(map(len, held_out)))
    places = np.stack([np.resize(rows, width) for rows in held_out])
    mask = np.stack([np.arange(width) < len(rows) for rows in held_out])
    return places, mask


@functools.partial(jax.jit, static_argnames=("model", "recipe"))
def _own_fold(model: Model, recipe: Recipe, posterior: Posterior, inputs: Array) -> Any:
    """What the members of each group predict on its fold: views, members, all rows of all folds."""
    psi, (values, log_weights) = posterior
    repeated = jnp.concatenate([inputs] * recipe.num_views)

    def one(psi: Any, values: Array, log_weights: Array, inputs: Array) -> Any:
        return components(model, Posterior(psi, Particles(values, log_weights)), inputs, None)

    def arrange(leaf: Array) -> Array:
        _, members, places, *rest = leaf.shape
        parted = leaf.reshape(recipe.num_views, recipe.num_folds, members, places, *rest)
        return jnp.moveaxis(parted, 1, 2).reshape(recipe.num_views, members, -1, *rest)

    return jax.tree.map(arrange, jax.vmap(one)(psi, values, log_weights, repeated))
