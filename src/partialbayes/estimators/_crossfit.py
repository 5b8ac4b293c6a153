"""Cross-fitted groups of members: what the estimators train by default.

K folds and one or two views of the columns (periodic features; these and piecewise-linear ones) make
K or 2 K groups, each with a ψ of its own and M members (`table_mlp`, `shared_ensemble`). All train at
once in one program. Small tables have a third view, which is computed (`_kernel_view`). A group never
sees its fold, so every row has a prediction by members that do not know it. `_stacking` makes one
mixture of them.
"""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from partialbayes._engine.interrupts import Interrupts
from partialbayes._engine.settings import Run
from partialbayes._utils.warn import warn
from partialbayes.algorithms import ensemble, shared_ensemble
from partialbayes.callbacks import Progress
from partialbayes.errors import TrainingDivergedError
from partialbayes.estimators._folds import Folds, draws
from partialbayes.estimators._kernel_view import kernel_view
from partialbayes.estimators._recipe import MOST_WAVES, Recipe, Schedule
from partialbayes.estimators._stacking import Stacked, stack
from partialbayes.likelihoods import bernoulli, calibrated, categorical, student_t
from partialbayes.model._batch import padded_size
from partialbayes.model._partial_bnn import partial_bnn, with_chunks
from partialbayes.networks import table_mlp, with_kernel_machine
from partialbayes.networks._kernel_machine import draw_in
from partialbayes.parameters import learned
from partialbayes.types import Algorithm, Batch, Model, Particles, Posterior, PRNGKey

_RANDOM = ("layers/*/input_factor", "layers/*/output_factor", "layers/*/bias", "head/*")
_WARM_UP = 20  # steps over which the rate rises
_LAST_RATE = 0.01  # at the end, as a share of the highest
_PIECES = 20  # a run is divided into, for the bar, Ctrl-C and budgets in seconds
_LONGEST = 1000  # steps of a piece
_AT_ONCE = 1000  # members of one group, more than there are
_PARTS = 2  # of the groups, which may run at once; always as many, so that results are the same
_SNAPSHOTS = (0.15, 0.3, 0.6)  # shares of the steps, beside the end, among which the rows choose


@functools.lru_cache(maxsize=64)
def build(recipe: Recipe) -> Algorithm:
    """The method for one group; the same object for the same recipe, so that it is compiled once."""
    model = _model(
        recipe.sizes, recipe.is_classifier, recipe.numeric, recipe.num_bins, recipe.num_centers
    )
    decays = _decays(model)

    def optimizer(learning_rate: Any, weight_decay: Any) -> optax.GradientTransformation:
        return optax.chain(
            optax.scale_by_adam(),
            _decayed(weight_decay, decays),
            optax.scale_by_learning_rate(learning_rate),
        )

    # The loop below sets the rate of every step; on a stream it stays at a fifth of the highest.
    injected = optax.inject_hyperparams(optimizer)(
        learning_rate=0.2 * recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    return shared_ensemble(model, num_particles=recipe.num_particles, optimizer=injected)


@functools.lru_cache(maxsize=64)
def _model(
    sizes: tuple[int, ...],
    is_classifier: bool,
    numeric: tuple[int, ...],
    num_bins: int,
    num_centers: int,
) -> Model:
    """The model of a table; the same object whatever rate it is trained with."""
    num_outputs = sizes[-1]
    if is_classifier:
        likelihood, start = bernoulli() if num_outputs == 1 else categorical(), None
    else:
        likelihood = student_t(learned(5.0), scale="predicted")
        start = [0.0] * (num_outputs // 2) + [0.5413] * (num_outputs // 2)  # a scale of one
    waves = int(np.clip(MOST_WAVES // max(len(numeric), 1), 4, 16))
    network = table_mlp(sizes, numeric, num_bins=num_bins, num_frequencies=waves, initial_outputs=start)
    if not num_centers:
        return partial_bnn(network, _RANDOM, calibrated(likelihood))
    both = with_kernel_machine(network, sizes[0], num_centers, num_outputs)
    # One group after another, so that each computes only the part that its switch chooses.
    return with_chunks(partial_bnn(both, _RANDOM, calibrated(likelihood)), particles=_AT_ONCE)


def _decays(model: Model) -> Float[np.ndarray, " dim"]:
    """1 for the entries of φ that decay, kernels of the head, and 0 for the others."""
    pieces = [
        np.full(leaf.size, float(leaf.path == "head/kernel"))
        for leaf, mask in zip(model.split.leaves, model.split.masks, strict=True)
        if mask.any()
    ]
    return np.concatenate(pieces)


def _decayed(decay: Any, of_phi: Any) -> optax.GradientTransformation:
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
        stacked: The mixture of all groups.
        losses: Mean over groups, step by step.
        interrupted: Whether Ctrl-C ended it.
    """

    stacked: Stacked
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
    n_jobs: int = 2,
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
        n_jobs: 1 to train the two halves of the groups in turn, more to train them at once.
    """
    rate, decay = recipe.learning_rate, recipe.weight_decay
    whole = recipe._replace(learning_rate=1.0, weight_decay=0.0)  # one program for all of them
    recipe = whole._replace(num_centers=0)
    algorithm = build(recipe)
    rows = len(inputs)
    given = (inputs, targets)
    size = padded_size(rows)
    inputs, targets = (
        np.concatenate([a, np.repeat(a[-1:], size - rows, axis=0)]) for a in (inputs, targets)
    )
    data = jax.device_put((inputs, targets))
    drawn = draws(folds, weights, recipe.num_views)
    key_start, key_run = jax.random.split(key)
    edges = _edges(inputs, recipe) if recipe.num_bins else None
    parts = _start(algorithm, recipe, key_start, edges)
    drawn_parts = jax.device_put(_divide(drawn))
    batch_size = schedule.batch_size * recipe.num_particles
    num_steps = 10**6 if schedule.num_steps is None else schedule.num_steps
    losses: list[Any] = []
    snapshots: list[Posterior] = []
    done = 0
    bar = tqdm(total=schedule.num_steps, disable=not run.progress, desc="training")
    piece = 50 if schedule.num_steps is None else int(np.clip(-(-num_steps // _PIECES), 50, _LONGEST))
    timed_from = (0, 0.0)
    with Interrupts() as interrupts, bar:
        while done < num_steps and not interrupts.noted:
            count = min(piece, num_steps - done)
            with interrupts.computing():
                lost: list[Any] = []
                for number, of_part in enumerate(drawn_parts):
                    # A call returns before it has run, so two run at once unless one is waited for.
                    parts[number], loss = _run(
                        algorithm,
                        parts[number],
                        key_run,
                        (done, count, num_steps),
                        (rate, decay),
                        data,
                        of_part,
                        number,
                        batch_size,
                    )
                    lost.append(loss.block_until_ready() if n_jobs == 1 else loss)
                losses.append(np.mean([np.asarray(loss)[:count] for loss in lost], axis=0))
            done += count
            bar.update(count)
            if len(snapshots) < len(_SNAPSHOTS) and done >= _SNAPSHOTS[len(snapshots)] * num_steps:
                snapshots.append(_posterior(algorithm, parts))
            if run.callbacks:
                current = functools.partial(_posterior, algorithm, tuple(parts))
                infos = {"loss": losses[-1]}
                seen = Progress(done - count, num_steps, infos, {}, done, current(), current)
                if any([callback(seen) is True for callback in run.callbacks]):
                    break
            if not np.isfinite(losses[-1]).all():
                break
            if schedule.num_steps is None:
                num_steps, timed_from = _afforded(schedule, done, timed_from, num_steps)
        if interrupts.noted and done == 0:
            raise KeyboardInterrupt  # there is nothing to keep
        with interrupts.computing():
            snapshots = _sound(jax.device_get([*snapshots, _posterior(algorithm, parts)]), done)
            if whole.num_centers:
                machines = kernel_view(whole, *given, folds, len(snapshots))
                snapshots = [with_machines(*pair) for pair in zip(snapshots, machines, strict=True)]
            stacked = stack(build(whole).model, whole, snapshots, data, folds)
    all_losses = np.concatenate(losses) if losses else np.zeros(0)
    return Trained(stacked, all_losses, interrupts.noted)


def _sound(snapshots: list[Posterior], done: int) -> list[Posterior]:
    """The snapshots that hold no NaN and no infinity.

    Args:
        snapshots: In the order of the run.
        done: Steps so far.
    """
    leaves = [jax.tree.leaves((each.psi, each.particles.values)) for each in snapshots]
    sound = [
        each
        for each, own in zip(snapshots, leaves, strict=True)
        if all(np.isfinite(leaf).all() for leaf in own)
    ]
    remedy = "Try a lower learning_rate, or look for extreme values in the columns."
    if not sound:
        raise TrainingDivergedError(
            done, None, remedy, f"training diverged within {done} steps, before any weights were kept."
        )
    if len(sound) < len(snapshots):
        warn(f"training diverged; earlier weights are used. {remedy}", ConvergenceWarning)
    return sound


def with_machines(posterior: Posterior, machines: dict[str, Any]) -> Posterior:
    """The posterior of the networks, and behind it a group for each kernel machine.

    Args:
        posterior: That of the groups that were trained.
        machines: From `kernel_view`.
    """
    count = len(machines["switch"])

    def more(leaf: Any) -> Any:
        return np.concatenate([leaf, leaf[-count:]])  # what the switch leaves out

    psi, particles = jax.tree.map(more, (posterior.psi, posterior.particles))
    groups = len(particles.log_weights)
    network = dict(psi.network)
    for name, leaf in machines.items():
        before = np.zeros((groups - count, *leaf.shape[1:]), np.float32)
        network[f"kernel/{name}"] = np.concatenate([before, leaf])
    psi = psi._replace(network=dict(sorted(network.items())))
    log_weights = particles.log_weights + np.float32(np.log((groups - count) / groups))
    return Posterior(psi, particles._replace(log_weights=log_weights))


def without_machines(recipe: Recipe, posterior: Posterior) -> tuple[Recipe, Posterior]:
    """The recipe and the posterior of the groups that can be trained on.

    Args:
        recipe: What was trained.
        posterior: That of all groups.
    """
    kept = recipe.num_folds * recipe.num_trained_views
    psi, (values, log_weights) = jax.tree.map(lambda leaf: leaf[:kept], posterior)
    network = {name: leaf for name, leaf in psi.network.items() if not name.startswith("kernel/")}
    particles = Particles(values, log_weights - jax.nn.logsumexp(log_weights))
    return recipe._replace(num_centers=0), Posterior(psi._replace(network=network), particles)


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


def _edges(inputs: Any, recipe: Recipe) -> Float[np.ndarray, "column edge"]:
    """Quantiles of the columns, drawn in as the network does; values that occur often have one edge."""
    columns = draw_in(inputs[:, np.asarray(recipe.numeric)].astype(float))
    count = recipe.num_bins + 1
    edges = np.stack([spread_quantiles(column, count) for column in columns.T])
    return edges.astype(np.float32)


def spread_quantiles(values: Any, count: int) -> Float[np.ndarray, " count"]:
    """Quantiles of a column where no value weighs more than one bin; the last is repeated if need be.

    A column of many zeros then has its bins among the other values.
    """
    distinct, weights = np.unique(values, return_counts=True)
    if len(distinct) > count:
        for _ in range(20):
            weights = np.minimum(weights, weights.sum() / (count - 1))
        heights = np.cumsum(weights) - 0.5 * weights
        wanted = np.linspace(heights[0], heights[-1], count)
        distinct = np.unique(distinct[np.searchsorted(heights, wanted).clip(max=len(heights) - 1)])
    return np.concatenate([distinct, np.full(count - len(distinct), distinct[-1])])


# It runs once, so compiling it well would take longer than it saves.
@functools.partial(
    jax.jit,
    static_argnames=("algorithm", "recipe"),
    compiler_options={"xla_backend_optimization_level": 0},
)
def _start(algorithm: Algorithm, recipe: Recipe, key: PRNGKey, edges: Array | None) -> list[Any]:
    """The groups before the first step, in parts."""
    states = jax.vmap(algorithm.init)(jax.random.split(key, recipe.num_groups))
    if edges is None:
        return _divide(states)
    psi = states.members.psi
    network = dict(psi.network)
    network["embedding/edges"] = jnp.tile(edges[None], (recipe.num_groups, 1, 1))
    network["embedding/gate"] = jnp.repeat(jnp.array([0.0, 1.0]), recipe.num_folds)
    members = states.members._replace(psi=psi._replace(network=network))
    return _divide(states._replace(members=members, average=members))


def _divide(tree: Any) -> list[Any]:
    """The groups in parts; in one where they cannot be halved."""
    groups = jax.tree.leaves(tree)[0].shape[0]
    each = groups // _PARTS if groups % _PARTS == 0 else groups
    return [
        jax.tree.map(lambda leaf, begin=begin: leaf[begin : begin + each], tree)
        for begin in range(0, groups, each)
    ]


@functools.partial(jax.jit, static_argnames=("algorithm",))
def _posterior(algorithm: Algorithm, parts: Any) -> Posterior:
    states = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    psi, (values, log_weights) = jax.vmap(algorithm.posterior)(states)
    return Posterior(psi, Particles(values, log_weights - jnp.log(float(len(log_weights)))))


@functools.partial(jax.jit, static_argnames=("algorithm", "batch_size"), donate_argnames=("states",))
def _run(
    algorithm: Algorithm,
    states: Any,
    key: PRNGKey,
    steps: tuple[Any, Any, Any],
    rate_and_decay: tuple[Any, Any],
    data: tuple[Array, Array],
    drawn: tuple[Array, Array, Array | None],
    part: Any,
    batch_size: int,
) -> tuple[Any, Float[Array, " step"]]:
    """Some steps of the groups of one part; their mean losses.

    ``steps`` are the first, how many, and how many there are in the whole run.
    """
    begin, count, num_steps = steps
    inputs, targets = data
    train, counts, cumulative = drawn
    num_groups = train.shape[0]
    mask, scale = jnp.ones((num_groups, batch_size), bool), jnp.ones(num_groups)

    def one(step: Array, carried: tuple[Any, Array]) -> tuple[Any, Array]:
        states, losses = carried
        key_step = jax.random.fold_in(jax.random.fold_in(key, part), begin + step)
        draws = jax.random.uniform(key_step, (num_groups, batch_size))
        if cumulative is None:
            places = jnp.minimum((draws * counts[:, None]).astype(jnp.int32), counts[:, None] - 1)
        else:
            places = jax.vmap(jnp.searchsorted)(cumulative, draws)
        rows = jnp.take_along_axis(train, places, axis=1)
        time = (begin + step + 1).astype(jnp.float32)
        falls = _LAST_RATE + (1.0 - _LAST_RATE) * 0.5 * (1.0 + jnp.cos(jnp.pi * time / num_steps))
        rate, decay = rate_and_decay
        rates = jnp.full(num_groups, rate * jnp.minimum(1.0, time / _WARM_UP) * falls)
        optimizer = states.optimizer._replace(
            hyperparams={"learning_rate": rates, "weight_decay": jnp.full(num_groups, decay)}
        )
        batch = Batch(inputs[rows], targets[rows], mask, scale)
        # The members need no randomness beyond their rows: one key serves all groups.
        states, info = jax.vmap(algorithm.step, in_axes=(None, 0, 0))(
            key_step, states._replace(optimizer=optimizer), batch
        )
        return states, losses.at[step].set(info["loss"].mean())

    return jax.lax.fori_loop(0, count, one, (states, jnp.zeros(_LONGEST)))
