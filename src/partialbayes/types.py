"""The contracts of the library, each stated once.

Two letters run through everything: **phi** (φ) is the stochastic part of the weights, one flat
vector of ``dim`` numbers per particle; **psi** (ψ) is the deterministic rest, a pytree.
Weights of particles live in the log domain, normalized: ``logsumexp(log_weights) == 0``.

Example:
    >>> import jax, partialbayes as pb
    >>> from partialbayes.types import Chunks, Kernel, Likelihood, Moments, Prior
    >>> model = pb.partial_bnn(pb.mlp([1, 3, 1]), "layers/1/*", pb.gaussian())
    >>> model = pb.model.with_chunks(model, particles=100)
    >>> isinstance(model.likelihood, Likelihood), isinstance(model.prior, Prior), model.chunks
    (True, True, Chunks(particles=100, rows=None))
    >>> phi, psi = model.init(jax.random.key(0))  # Params; psi is a Psi
    >>> isinstance(model.prior_moments(psi), Moments), isinstance(pb.kernels.forgetting(), Kernel)
    (True, True)
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

__all__ = [
    "Algorithm",
    "AlgorithmFinish",
    "AlgorithmInit",
    "AlgorithmPosterior",
    "AlgorithmRestart",
    "AlgorithmStep",
    "Batch",
    "ChainReport",
    "Chunks",
    "Departure",
    "End",
    "Fit",
    "History",
    "ImportanceReport",
    "Info",
    "Kernel",
    "KernelInit",
    "KernelStep",
    "LaplaceReport",
    "Latent",
    "Leaf",
    "Likelihood",
    "LikelihoodDensity",
    "LikelihoodMoment",
    "LikelihoodParameters",
    "LikelihoodSample",
    "LogDensity",
    "Model",
    "ModelInit",
    "ModelLogLikelihood",
    "ModelOutputs",
    "Moments",
    "Moved",
    "Network",
    "NetworkApply",
    "NetworkInit",
    "ObservedDensity",
    "PRNGKey",
    "ParameterValues",
    "Params",
    "ParticleKernel",
    "Particles",
    "Phi",
    "Posterior",
    "Prior",
    "PriorBuilder",
    "PriorDensity",
    "PriorMoments",
    "PriorSample",
    "Psi",
    "Recipes",
    "Report",
    "Resampler",
    "Sampler",
    "Scalar",
    "Seed",
    "Slopes",
    "Split",
    "Target",
    "TargetCdf",
    "TargetCheck",
    "TemperingReport",
]

PRNGKey: TypeAlias = Key[Array, ""]
"""A typed key of ``jax.random``."""
Seed: TypeAlias = PRNGKey | int | np.integer
"""What a user may pass as ``key=``: a typed key, or a whole number to make one from."""
Phi: TypeAlias = Float[Array, " dim"]
"""The random weights of one particle."""
Scalar: TypeAlias = Float[Array, ""]
"""One number, as an array."""
Info: TypeAlias = dict[str, Scalar]
"""What a step reports: scalars by name. Every algorithm reports ``loss``, its objective per
data point; those with weighted particles add ``ess``, ``log_evidence_increment``, ``acceptance``,
``ancestors``."""
Report: TypeAlias = PyTree
"""What a second stage reports once, a NamedTuple of arrays such as `ChainReport`; None if nothing."""


@runtime_checkable
class LogDensity(Protocol):
    """A log-density of φ, up to a constant."""

    def __call__(self, phi: Phi, /) -> Scalar: ...


class Particles(NamedTuple):
    """A weighted cloud: Σ_j exp(log_weights[j]) δ(values[j]).

    In the posterior of an ensemble both arrays have one more, leading, member axis, and the
    weights are normalized over members and particles together.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> cloud = pb.types.Particles(jnp.zeros((4, 2)), jnp.full(4, -jnp.log(4.0)))
    """

    values: Float[Array, "*member particle dim"]
    log_weights: Float[Array, "*member particle"]


class Batch(NamedTuple):
    """Rows of data in a static shape.

    Attributes:
        inputs: Pytree of arrays with a leading example axis.
        targets: Pytree of arrays with a leading example axis.
        mask: True for the rows that count; the others are padding.
        scale: N / M, data-set size over the number of rows that count.
        forgotten: The share of what a method knows that these rows are to displace; M / N if None. In
            a stream new rows displace only those that leave the memory.

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> x = jnp.ones((8, 1))
        >>> half = pb.types.Batch(x, x, mask=jnp.arange(8) < 4, scale=jnp.asarray(2.0))  # 4 rows count
    """

    inputs: PyTree
    targets: PyTree
    mask: Bool[Array, " example"]
    scale: Scalar
    forgotten: Scalar | None = None

    @property
    def room(self) -> Scalar:
        """The share that is to be forgotten."""
        return 1.0 / self.scale if self.forgotten is None else self.forgotten


class Psi(NamedTuple):
    """The deterministic parameters ψ: one pytree, so that any Optax transformation applies.

    Attributes:
        network: The network's deterministic weights, by path.
        likelihood: Learned parameters of the likelihood (noise), empty if there are none.
        prior: Learned parameters of the prior (scale), empty if there are none.
    """

    network: dict[str, Array]
    likelihood: PyTree
    prior: PyTree


class Params(NamedTuple):
    """A point in the space of all parameters: where training starts."""

    phi: Phi
    psi: Psi


@runtime_checkable
class NetworkInit(Protocol):
    """How the weights of a network start."""

    def __call__(self, key: PRNGKey, /) -> PyTree: ...


@runtime_checkable
class NetworkApply(Protocol):
    """What a network computes."""

    def __call__(self, params: PyTree, inputs: PyTree, /) -> PyTree: ...


class Network(NamedTuple):
    """A network: how its weights start, and what it computes.

    Attributes:
        init: Makes the weights. A pretrained network returns its own.
        apply: Computes outputs from inputs, with a leading example axis on both.
        output_axis: Which axis of a kernel counts the units it feeds: the last one as in Flax, or
            the first as in Equinox. The product of the others is the fan-in.
        ordered: Whether dictionaries in the params are known to be in the order of definition. If
            not, layers in a dictionary cannot be chosen by position.
        recipe: How it was made, as JSON, for ready-made networks; see `recipes`.
        pretrained: Whether its weights are worth keeping: trainers then start around them, never from
            the prior, and `fit` says whether the result is worse than the network as it was.

    Example:
        >>> import jax, partialbayes as pb
        >>> def init(key):
        ...     return {"w": jax.random.normal(key, (2, 1))}
        >>> line = pb.types.Network(init, apply=lambda params, x: x @ params["w"])
        >>> pb.partial_bnn(line, "w", pb.gaussian()).split.dim
        2
    """

    init: NetworkInit
    apply: NetworkApply
    output_axis: int = -1
    ordered: bool = False
    recipe: str | None = None
    pretrained: bool = False

    def __repr__(self) -> str:
        return f"Network({_made_by(self.recipe)})"


class Latent(NamedTuple):
    """A parameter of the likelihood that is random: it follows the weights in φ.

    Attributes:
        name: What it is called, such as ``"variance"``.
        start: ``() ->`` where it starts, in the unconstrained coordinates it has in φ (a
            logarithm, say).
        prior: Its prior, in the same coordinates, flattened; a normal of scale one around
            the start if None.
    """

    name: str
    start: Callable[[], Array]
    prior: PriorBuilder | None


@runtime_checkable
class LikelihoodParameters(Protocol):
    """From what a network computes to the parameters of the distribution of the targets."""

    def __call__(self, outputs: PyTree, learned: PyTree, latent: dict[str, Array], /) -> PyTree:
        """Return the parameters.

        Args:
            outputs: What the network computes, one row per example.
            learned: What lives in ``psi.likelihood``.
            latent: What lives in φ, by name; empty for most likelihoods.
        """


@runtime_checkable
class LikelihoodDensity(Protocol):
    """The log-density of each example."""

    def __call__(self, parameters: PyTree, targets: PyTree, /) -> Float[Array, " example"]: ...


@runtime_checkable
class ObservedDensity(Protocol):
    """The log-density of the observed entries of each example, the others integrated out."""

    def __call__(
        self, parameters: PyTree, targets: PyTree, observed: Any, /
    ) -> Float[Array, " example"]:
        """Return it; ``observed`` is true for the entries that are there."""


@runtime_checkable
class LikelihoodMoment(Protocol):
    """A mean, a variance or class probabilities, of each example."""

    def __call__(self, parameters: PyTree, /) -> Float[Array, "example ..."]: ...


@runtime_checkable
class LikelihoodSample(Protocol):
    """Draws of targets."""

    def __call__(self, key: PRNGKey, parameters: PyTree, /) -> PyTree: ...


@runtime_checkable
class TargetCheck(Protocol):
    """A check of the targets that a user passes."""

    def __call__(self, outputs: Any, targets: Any, /) -> PyTree:
        """Return the targets in canonical form, or raise a ``ValueError`` that says what is wrong.

        Args:
            outputs: Shapes and dtypes of what the network computes.
            targets: What the user passed.
        """


@runtime_checkable
class TargetCdf(Protocol):
    """P(Y ≤ y) of each entry of the targets."""

    def __call__(self, parameters: PyTree, targets: Array, /) -> Float[Array, "example ..."]: ...


@runtime_checkable
class ParameterValues(Protocol):
    """The likelihood's own parameters by name, in their own units."""

    def __call__(self, learned: PyTree, latent: dict[str, Array], /) -> dict[str, Array]: ...


class Likelihood(NamedTuple):
    """p(y | outputs of the network), one value per example.

    ``parameters`` turns outputs, the learned part and the random part into the parameters of the
    distribution; the other functions take those, so training and prediction share one definition.

    Attributes:
        init: The start of what lives in ``psi.likelihood``.
        parameters: From outputs to the parameters of the distribution.
        log_density: The log-density of each example.
        mean: The mean of each entry; class probabilities for a classification.
        variance: The variance of each entry.
        sample: Draws of targets.
        check: The check of targets that a user passes.
        latents: The parameters that are random; they come last in φ.
        observed_log_density: The log-density where targets have gaps; None if the likelihood knows
            only whole rows.
        values: The likelihood's own parameters by name, in their own units.
        cdf: P(Y ≤ y) of each entry; None if it is not known, or if the targets are classes.
        probabilities: Class probabilities along the last axis; None unless the targets are classes.
        kind: What targets are: "real" numbers, "count" (whole numbers, and so are their quantiles) or
            "class" (labels).
        is_gaussian: Whether each entry is Gaussian, so that mean and variance say all.
        exact: The same with the density's own gradient, where that of ``log_density`` is another one for
            the sake of training; None where it is the density's. Samplers of φ go by it.
        recipe: How it was made, as JSON; None if it is the user's own.
    """

    init: Callable[[], PyTree]
    parameters: LikelihoodParameters
    log_density: LikelihoodDensity
    mean: LikelihoodMoment
    variance: LikelihoodMoment
    sample: LikelihoodSample
    check: TargetCheck
    latents: tuple[Latent, ...] = ()
    observed_log_density: ObservedDensity | None = None
    values: ParameterValues = lambda learned, latent: {}
    cdf: TargetCdf | None = None
    probabilities: LikelihoodMoment | None = None
    kind: Literal["real", "count", "class"] = "real"
    is_gaussian: bool = False
    exact: Likelihood | None = None
    recipe: str | None = None

    def __repr__(self) -> str:
        return f"Likelihood({_made_by(self.recipe)}, {_short(self)})"

    @property
    def is_classification(self) -> bool:
        """Whether the targets are labels of classes."""
        return self.kind == "class"


class Moments(NamedTuple):
    """Mean and variance of each coordinate of φ under the prior."""

    mean: Phi
    variance: Phi


@runtime_checkable
class PriorSample(Protocol):
    """Draws from a prior."""

    def __call__(self, key: PRNGKey, learned: PyTree, num: int, /) -> Float[Array, "num dim"]:
        """Return ``num`` draws of φ; ``learned`` is what lives in ``psi.prior``."""


@runtime_checkable
class PriorDensity(Protocol):
    """The log-density of a prior."""

    def __call__(self, phi: Phi, learned: PyTree, /) -> Scalar:
        """Return it at one φ; ``learned`` is what lives in ``psi.prior``."""


@runtime_checkable
class PriorMoments(Protocol):
    """Mean and variance of a prior."""

    def __call__(self, learned: PyTree, /) -> Moments:
        """Return them; ``learned`` is what lives in ``psi.prior``."""


class Prior(NamedTuple):
    """π(φ; learned), bound to the weights it is a prior of.

    Attributes:
        init: The start of what lives in ``psi.prior``.
        sample: Draws of φ.
        log_density: The log-density at one φ.
        moments: Mean and variance of each coordinate.
        normal: Whether π is Gaussian with independent coordinates, so that the moments say all.
    """

    init: Callable[[], PyTree]
    sample: PriorSample
    log_density: PriorDensity
    moments: PriorMoments
    normal: bool

    def __repr__(self) -> str:
        return f"Prior({'normal' if self.normal else 'not normal'})"


@runtime_checkable
class PriorBuilder(Protocol):
    """A prior before it is known which weights it is a prior of."""

    def __call__(self, split: Split, /) -> Prior: ...


class Chunks(NamedTuple):
    """How much of a cloud's work on a batch is done at a time; the results are the same.

    Attributes:
        particles: Particles at a time; all of them if None.
        rows: Rows of data at a time; all of them if None.
    """

    particles: int | None = None
    rows: int | None = None


class Recipes(NamedTuple):
    """How the parts of a model were made, each as JSON; None for the user's own."""

    network: str | None = None
    likelihood: str | None = None
    prior: str | None = None


@runtime_checkable
class ModelInit(Protocol):
    """Where training starts."""

    def __call__(self, key: PRNGKey, /) -> Params: ...


@runtime_checkable
class ModelLogLikelihood(Protocol):
    """The log-likelihood of a batch, row by row."""

    def __call__(self, phi: Phi, psi: Psi, batch: Batch, /) -> Float[Array, " example"]:
        """Return log p(y_i | φ; ψ) of each row, zero on masked ones."""


@runtime_checkable
class ModelOutputs(Protocol):
    """What a model computes at inputs."""

    def __call__(self, phi: Phi, psi: Psi, inputs: PyTree, /) -> PyTree: ...


class Model(NamedTuple):
    """A partial Bayesian network: everything a training method needs to know.

    Attributes:
        init: Where training starts.
        log_likelihood: The log-likelihood of each row of a batch, zero on masked rows.
        outputs: What the network computes.
        parameters: The parameters of the likelihood at inputs.
        likelihood: The likelihood, for means, variances, samples and checks.
        prior: The prior, bound to the split.
        split: What φ consists of: the stochastic weights, then the likelihood's latents.
            ``split.dim`` is its length.
        chunks: How much is done at a time, in training and in prediction; see `with_chunks`.
        recipes: How its network, likelihood and prior were made, None where that is not known;
            what `save` writes down.
        pretrained: Whether the weights that ``init`` gives are worth keeping; see `Network`.

    Example:
        >>> import jax, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> params = model.init(jax.random.key(0))
        >>> params.phi.shape, model.outputs(params.phi, params.psi, jax.numpy.ones((3, 1))).shape
        ((10,), (3, 1))
    """

    init: ModelInit
    log_likelihood: ModelLogLikelihood
    outputs: ModelOutputs
    parameters: ModelOutputs
    likelihood: Likelihood
    prior: Prior
    split: Split
    chunks: Chunks = Chunks()
    recipes: Recipes = Recipes()
    pretrained: bool = False

    def __repr__(self) -> str:
        total = sum(leaf.size for leaf in self.split.leaves)
        return f"Model({self.split.dim} of {total} weights random, {_short(self.likelihood)})"

    def _repr_html_(self) -> str:
        return _as_table("Model", self._told())

    def _told(self) -> dict[str, str]:
        total = sum(leaf.size for leaf in self.split.leaves)
        chosen = [
            leaf.path
            for leaf, mask in zip(self.split.leaves, self.split.masks, strict=True)
            if mask.any()
        ]
        return {
            "random weights": f"{self.split.dim} of {total}",
            "in": ", ".join(chosen[:4]) + (", …" if len(chosen) > 4 else ""),
            "targets": _short(self.likelihood),
        }

    def log_prior(self, phi: Phi, psi: Psi) -> Scalar:
        """Return log π(φ; ψ)."""
        return self.prior.log_density(phi, psi.prior)

    def sample_prior(self, key: PRNGKey, psi: Psi, num: int) -> Float[Array, "num dim"]:
        """Return ``num`` draws of φ from the prior at ψ."""
        return self.prior.sample(key, psi.prior, num)

    def prior_moments(self, psi: Psi) -> Moments:
        """Return mean and variance of each coordinate of φ under the prior at ψ."""
        return self.prior.moments(psi.prior)


class Slopes(NamedTuple):
    """Gradients in φ at each particle.

    Attributes:
        log_density: Of a target's ``log_density``.
        log_prior: Of log π(φ).
        log_potential: Of a target's ``log_potential``.
    """

    log_density: Float[Array, "particle dim"]
    log_prior: Float[Array, "particle dim"]
    log_potential: Float[Array, "particle dim"]


class Target(NamedTuple):
    """What a move may look at besides the particles.

    Attributes:
        log_density: The density the move is to leave invariant (SMC), or an estimate of the
            posterior from this batch (OHSMC), up to a constant. One particle.
        log_potential: What the particles are reweighted by right after the move. One particle.
        prior: Moments of the prior.
        fraction: M / N, the share of the data in this batch.
        forgotten: The share of what the particles know that a move which makes room for the batch is to
            forget; the same M / N if None.
        slopes: Gradients at the particles to be moved, where whoever asks for the move has them
            already, as `ohsmc` does for a kernel that uses the batch.
    """

    log_density: LogDensity
    log_potential: LogDensity
    prior: Moments
    fraction: Scalar
    forgotten: Scalar | None = None
    slopes: Slopes | None = None

    @property
    def room(self) -> Scalar:
        """The share that is to be forgotten."""
        return self.fraction if self.forgotten is None else self.forgotten


class Moved(NamedTuple):
    """What a move returns.

    Attributes:
        values: The new positions.
        log_correction: Importance correction to the log-weights; zero for most moves.
        acceptance: Mean acceptance probability; one where nothing is rejected.
        state: The move's own memory (a tuned scale, say), or ``()``.
    """

    values: Float[Array, "particle dim"]
    log_correction: Float[Array, " particle"]
    acceptance: Scalar
    state: PyTree


def _no_memory(dim: int, /) -> PyTree:
    return ()


def _any_number(dim: int, /) -> int:
    return 1


@runtime_checkable
class KernelInit(Protocol):
    """The memory a kernel starts with."""

    def __call__(self, dim: int, /) -> PyTree:
        """Return it, for a φ of ``dim`` weights."""


@runtime_checkable
class KernelStep(Protocol):
    """One move of the whole cloud."""

    def __call__(self, key: PRNGKey, particles: Particles, target: Target, state: PyTree, /) -> Moved:
        """Move the particles.

        Args:
            key: The randomness of this move.
            particles: The cloud, with its weights.
            target: What the move may look at.
            state: The kernel's memory.
        """


class Kernel(NamedTuple):
    """A Markov kernel on the whole cloud, with memory: what ``kernel=`` takes.

    Attributes:
        step: One move of the cloud.
        init: The memory it starts with; none by default.
        needs_normal_prior: Whether the move is right only where the prior is normal with
            independent coordinates. Whoever takes both checks it (`require_suitable`).
        needs_prior_variance: Whether the prior must have a variance.
        keeps_target: Whether particles drawn from the target stay so. OHSMC can do without;
            sequential Monte Carlo along a path cannot (`require_invariant`).
        needs_batches: Whether it forgets as much as comes in, which with all rows in one batch is
            everything.
        learn: ``(pools, prior) -> step``, of a kernel that learns from the cloud: the same move with
            what other particles say, the first of the pools to the first half of those that are moved,
            the second to the second half. None where the kernel learns nothing.
        batch_rate: Zero for a move after which the particles are reweighted by the batch. A move that
            takes the batch in by itself gives its rate, in units of M/N: one if what it knows of
            the other rows fades by (1 − M/N), a fifth if by (1 − M/(5 N)). `ohsmc` then neither
            weights nor resamples.
        fewest_particles: From the number of weights to how many particles it needs to be near the
            posterior; `ohsmc` warns below that.
    """

    step: KernelStep
    init: KernelInit = _no_memory
    needs_normal_prior: bool = False
    needs_prior_variance: bool = False
    keeps_target: bool = True
    needs_batches: bool = False
    learn: Callable[[tuple[Particles, Particles], Moments], KernelStep] | None = None
    batch_rate: float = 0.0
    fewest_particles: Callable[[int], int] = _any_number

    def __repr__(self) -> str:
        name = getattr(self.step, "__qualname__", "").partition(".")[0]
        return f"Kernel({name})"


class ParticleKernel(NamedTuple):
    """A Markov kernel on one particle, the log-density given at call time; see `from_mcmc`.

    The signatures are BlackJAX's, so that ``ParticleKernel(blackjax.nuts.init, step)`` is one, where
    ``step`` is ``blackjax.nuts.build_kernel()`` with its parameters filled in.

    Attributes:
        init: ``(phi, log_density) -> state``; ``state.position`` is where the particle is.
        step: ``(key, state, log_density) -> (state, info)``; ``info.acceptance_rate`` is read
            where there is one.
    """

    init: Callable[[Phi, LogDensity], Any]
    step: Callable[[PRNGKey, Any, LogDensity], tuple[Any, Any]]


@runtime_checkable
class Resampler(Protocol):
    """A scheme that draws a new cloud from a weighted one."""

    def __call__(
        self, key: PRNGKey, particles: Particles, /
    ) -> tuple[Particles, Int[Array, " particle"]]:
        """Return equally weighted (or still weighted) particles, and the index each one came from."""


class Posterior(NamedTuple):
    """What training returns: ψ and weighted samples of φ given the data.

    An ensemble has a leading member axis on every leaf, ``psi`` included.

    Example:
        >>> import jax, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.ohsmc(model, num_particles=20)
        >>> posterior = algorithm.posterior(algorithm.init(jax.random.key(0)))
        >>> posterior.particles.values.shape, sorted(posterior.psi.network)
        ((20, 10), ['layers/1/bias', 'layers/1/kernel'])
    """

    psi: Psi
    particles: Particles

    def __repr__(self) -> str:
        members = f"{self.num_members} members of " if self.is_ensemble else ""
        return (
            f"Posterior({members}{self.num_particles} particles of {self.particles.values.shape[-1]} "
            f"random weights, {sum(np.size(leaf) for leaf in self.psi.network.values())} others)"
        )

    def _repr_html_(self) -> str:
        return _as_table("Posterior", self._told())

    def _told(self) -> dict[str, str]:
        weights = np.exp(np.asarray(self.particles.log_weights, float)).ravel()
        ess = 1.0 / np.square(weights / weights.sum()).sum()
        members = {"members": str(self.num_members)} if self.is_ensemble else {}
        return {
            **members,
            "particles": str(self.num_particles),
            "effective sample size": f"{ess:.1f}",
            "random weights": str(self.particles.values.shape[-1]),
        }

    @property
    def is_ensemble(self) -> bool:
        """Whether there is a member axis."""
        return self.particles.log_weights.ndim > 1

    @property
    def num_members(self) -> int:
        """How many members the ensemble has; one where it is none."""
        return self.particles.log_weights.shape[0] if self.is_ensemble else 1

    @property
    def num_particles(self) -> int:
        """How many particles each member has."""
        return self.particles.log_weights.shape[-1]


class ChainReport(NamedTuple):
    """What `hmc` and `nuts` report.

    Attributes:
        r_hat: Split R-hat of each coordinate of φ; 1 where all halves of all chains agree.
        ess: Effective sample size of each coordinate.
        acceptance: Mean acceptance probability of each chain.
        divergences: How many draws diverged, over all chains.
        step_size: The step size of each chain.
        num_draws: How many draws of each chain were kept.
    """

    r_hat: Float[Array, "... dim"]
    ess: Float[Array, "... dim"]
    acceptance: Float[Array, "... chain"]
    divergences: Int[Array, "..."]
    step_size: Float[Array, "... chain"]
    num_draws: Int[Array, "..."]


class LaplaceReport(NamedTuple):
    """What `laplace` reports.

    Attributes:
        log_evidence: Laplace's approximation of log p(y; ψ).
        clipped: In how many directions the curvature was below the prior's, and taken for it.
        gradient_norm: Length of the gradient at the mode, in units of the prior.
        acceptance: Mean acceptance of the last of ``num_moves``; 1 without them.
    """

    log_evidence: Float[Array, "..."]
    clipped: Int[Array, "..."]
    gradient_norm: Float[Array, "..."]
    acceptance: Float[Array, "..."]


class ImportanceReport(NamedTuple):
    """What `importance_sampling` reports.

    Attributes:
        log_evidence: An estimate of log p(y; ψ).
        ess: Effective sample size of the weighted draws of the prior.
    """

    log_evidence: Float[Array, "..."]
    ess: Float[Array, "..."]


class TemperingReport(NamedTuple):
    """What `tempered_smc` reports. Steps that were not needed hold NaN.

    Attributes:
        log_evidence: An estimate of log p(y; ψ); NaN if the path stalled.
        standard_error: Its standard error, from the ancestry of this one run.
        temperatures: The exponent of the likelihood after each step; 1 at the posterior.
        ess: Effective sample size at each step.
        acceptance: Mean acceptance of the moves of each step.
        shortfall: By how much the best particle of the stage before is denser than the new ones on
            average, for each random weight.
    """

    log_evidence: Float[Array, "..."]
    standard_error: Float[Array, "..."]
    temperatures: Float[Array, "... step"]
    ess: Float[Array, "... step"]
    acceptance: Float[Array, "... step"]
    shortfall: Float[Array, "..."]

    @property
    def arrived(self) -> Bool[Array, "..."]:
        """Whether the path got to the posterior."""
        return jnp.isfinite(self.log_evidence)


@runtime_checkable
class Sampler(Protocol):
    """A second stage: new samples of φ given *all* the data, at the ψ of the posterior it is given.

    Pure, and compiled by whoever calls it. The posterior it sees has no member axis.
    """

    def __call__(
        self, key: PRNGKey, model: Model, posterior: Posterior, batch: Batch, /
    ) -> tuple[Posterior, Report]:
        """Return the new posterior and a report.

        Args:
            key: The randomness of the sampler.
            model: The model that was trained.
            posterior: What the stage before found; its ψ is kept.
            batch: All the training data.
        """


@runtime_checkable
class AlgorithmInit(Protocol):
    """The state an algorithm starts with."""

    def __call__(self, key: PRNGKey, /) -> Any: ...


@runtime_checkable
class AlgorithmStep(Protocol):
    """One step of training."""

    def __call__(self, key: PRNGKey, state: Any, batch: Batch, /) -> tuple[Any, Info]:
        """Return the state after a batch, and what the step has to report.

        Args:
            key: The randomness of this step.
            state: The state before it.
            batch: Rows of data; ``batch.scale`` is N/M.
        """


@runtime_checkable
class AlgorithmPosterior(Protocol):
    """What an algorithm has learned so far."""

    def __call__(self, state: Any, /) -> Posterior: ...


@runtime_checkable
class AlgorithmFinish(Protocol):
    """Second stages, run once after training."""

    def __call__(
        self, key: PRNGKey, posterior: Posterior, batch: Batch, /
    ) -> tuple[Posterior, tuple[Report, ...]]:
        """Return the final posterior and a report of each stage.

        Args:
            key: The randomness of the stages.
            posterior: The best posterior of training.
            batch: All the training data.
        """


@runtime_checkable
class AlgorithmRestart(Protocol):
    """How an algorithm continues from a posterior."""

    def __call__(self, state: Any, posterior: Posterior, /) -> Any:
        """Return the state with this posterior, of the same shapes, in it."""


class Algorithm(NamedTuple):
    """A training method: pure functions over explicit state.

    Attributes:
        model: The model it trains.
        init: The state it starts with.
        step: One step on a batch. Shapes, dtypes and weak types of the state do not change.
        posterior: What it has learned so far.
        finish: Second stages, run once after training with the best posterior and all the data; None
            if there is nothing left to do. See `two_stage`.
        restart: How it continues from a posterior; None if a posterior does not say where to
            continue. See `online.start`.
        wants: What a step must be given: "all rows" (`fit` refuses batches), "batches" (`fit` warns of
            all rows in one), or None for either.

    Example:
        >>> import jax, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> algorithm = pb.map_estimate(model)
        >>> state = algorithm.init(jax.random.key(0))
        >>> algorithm.posterior(state).particles.values.shape
        (1, 10)
    """

    model: Model
    init: AlgorithmInit
    step: AlgorithmStep
    posterior: AlgorithmPosterior
    finish: AlgorithmFinish | None = None
    restart: AlgorithmRestart | None = None
    wants: Literal["all rows", "batches"] | None = None

    def __repr__(self) -> str:
        name = getattr(self.step, "__qualname__", "").partition(".")[0]
        return f"Algorithm({name}, {self.model!r})"


BIAS_NAMES = ("bias", "b")
SCALE_NAMES = ("scale", "gamma")
WEIGHT_NAMES = ("kernel", "weight", "embedding", "w", *BIAS_NAMES, *SCALE_NAMES)


class Leaf(NamedTuple):
    """One array of the parameter tree, without its values.

    Attributes:
        path: The names on the way to it, joined by ``/``.
        shape: Its shape.
        dtype: Its dtype.
        position: Its place in the order in which the network defines its weights.
        fan_in: How many units feed each unit of a kernel; 1 for vectors and scalars.
        ordered: Whether that order is known; trained dictionaries come back sorted by name.

    Example:
        >>> import partialbayes as pb
        >>> chosen = pb.subsets.where(lambda leaf: leaf.name == "kernel" and leaf.fan_in > 10)
    """

    path: str
    shape: tuple[int, ...]
    dtype: Any
    position: int = 0
    fan_in: int = 1
    ordered: bool = True

    @property
    def size(self) -> int:
        """The number of weights in it."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def name(self) -> str:
        """The last name of the path: ``kernel``, ``bias`` and so on."""
        return self.path.rpartition("/")[2]

    @property
    def layer(self) -> str:
        """The path of the layer it belongs to."""
        parent, separator, name = self.path.rpartition("/")
        # A single array at the top, such as {"head": …}, is a layer of its own, unless its name
        # says that it is part of one.
        return parent if separator or name in WEIGHT_NAMES else name

    @property
    def is_floating(self) -> bool:
        """Whether it holds floating-point numbers."""
        return bool(jnp.issubdtype(self.dtype, jnp.floating))


@dataclass(frozen=True, eq=False)
class Split:
    """What φ and ψ consist of.

    Attributes:
        leaves: Every array of the parameter tree, in flattening order, then the likelihood's
            latents.
        masks: For each leaf, which of its weights are stochastic.
        dim: The length of φ.
        flatten: ``params -> (phi, psi)``; latents take their starting values.
        merge: ``(phi, psi) -> params``.
        latents: ``phi -> {name: array}``, the likelihood's random parameters.
        frozen: By path, the weights that are neither random nor trained: as the leaf, or flat where
            only part of it is frozen. Integers and the like are always among them.

    Example:
        >>> import partialbayes as pb
        >>> split = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian()).split
        >>> split.dim
        10
    """

    leaves: tuple[Leaf, ...]
    masks: tuple[Bool[np.ndarray, ...], ...]
    dim: int
    flatten: Callable[[PyTree], tuple[Array, dict[str, Array]]]
    merge: Callable[[Array, dict[str, Array]], PyTree]
    latents: Callable[[Array], dict[str, Array]] = lambda phi: {}
    frozen: Mapping[str, Array] = field(default_factory=dict)

    def describe(self, num_particles: int = 1000) -> str:
        """A table of each weight's path, shape, count and side, and the memory particles take.

        Args:
            num_particles: J, the number of particles to reckon with.

        Example:
            >>> import jax, partialbayes as pb
            >>> network = pb.mlp([2, 3, 1])
            >>> print(pb.model.split_weights(network.init(jax.random.key(0)), "layers/0/*").describe())
            path             shape   weights  side
            layers/0/bias    (3,)          3  phi
            layers/0/kernel  (2, 3)        6  phi
            layers/1/bias    (1,)          1  psi
            layers/1/kernel  (3, 1)        3  psi
            phi: 9 stochastic weights, psi: 4 deterministic weights
            1000 particles take 40.0 kB
        """
        rows = [("path", "shape", "weights", "side")]
        kept = 0
        for leaf, mask in zip(self.leaves, self.masks, strict=True):
            frozen = self.frozen[leaf.path].size if leaf.path in self.frozen else 0
            kept += frozen if trains(leaf) else 0
            counts = {"phi": int(mask.sum()), "psi": leaf.size - int(mask.sum()) - frozen}
            sides = {name: count for name, count in (counts | {"frozen": frozen}).items() if count}
            side = (
                "".join(sides)
                if len(sides) < 2
                else " + ".join(f"{name} ({count})" for name, count in sides.items())
            )
            rows.append((leaf.path, str(leaf.shape), str(leaf.size), side))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            f"{path:<{widths[0]}}  {shape:<{widths[1]}}  {count:>{widths[2]}}  {side}"
            for path, shape, count, side in rows
        ]
        rest = sum(leaf.size for leaf in self.leaves if trains(leaf)) - self.dim - kept
        told = f", frozen: {kept}" if kept else ""
        lines.append(f"phi: {self.dim} stochastic weights, psi: {rest} deterministic weights{told}")
        # One log-weight goes with each particle.
        size = num_particles * (self.dim + 1) * jnp.dtype(jnp.result_type(float)).itemsize
        lines.append(f"{num_particles} particles take {_readable(size)}")
        return "\n".join(lines)


def _made_by(recipe: str | None) -> str:
    return "your own" if recipe is None else str(json.loads(recipe)["builder"])


def _short(likelihood: Likelihood) -> str:
    kinds = {"real": "real targets", "count": "counts", "class": "classes"}
    return kinds[likelihood.kind] + (" with Gaussian noise" if likelihood.is_gaussian else "")


def _as_table(title: str, facts: dict[str, str]) -> str:
    """A small table, as a notebook shows it."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption style='text-align:left'><b>{html.escape(title)}</b></caption>{rows}</table>"


def trains(leaf: Leaf) -> bool:
    """Whether a gradient can move it; integers, booleans and random keys stay as they are."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _readable(size: int) -> str:
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size} bytes"


class Departure(NamedTuple):
    """How far training has led from a pretrained network, on validation data where there are any.

    Attributes:
        nlpd_before: Negative log predictive density of the network as it was.
        nlpd_after: That of the posterior returned.
        standard_error: Of the difference, from its spread over the rows.
        distance: How far the predictions have moved: the mean total variation between the class
            probabilities, or the root mean square shift of the mean in predictive standard deviations.
        held_out: Whether the rows were validation data, or training data.

    Example:
        >>> import partialbayes as pb
        >>> pb.types.Departure(0.04, 0.19, 0.01, 0.2, held_out=True).is_worse
        True
    """

    nlpd_before: float
    nlpd_after: float
    standard_error: float
    distance: float
    held_out: bool

    @property
    def is_worse(self) -> bool:
        """Whether the result predicts worse, by more than two standard errors and 0.01 nats per row."""
        return not self.nlpd_after - self.nlpd_before <= max(2.0 * self.standard_error, 0.01)


End: TypeAlias = Literal["epochs", "patience", "settled", "callback", "interrupt"]
"""What ended a run."""


class History(NamedTuple):
    """What happened, step by step.

    Attributes:
        metrics: Every scalar of the algorithm's info, one value per step.
        eval_steps: The steps after which validation was scored (counted from 1).
        validation_nlpd: The score there; empty if there was no validation data.
        best_step: The step whose posterior was returned.
        departure: How the result compares with a pretrained network as it was; None for others.

    Example:
        >>> import numpy as np, partialbayes as pb
        >>> scores = np.array([2.0, 1.0, 1.5])
        >>> history = pb.types.History({"loss": np.ones(9)}, np.array([3, 6, 9]), scores, best_step=6)
        >>> history.validation_nlpd.min()
        np.float64(1.0)
    """

    metrics: dict[str, Float[np.ndarray, " step"]]
    eval_steps: Int[np.ndarray, " evaluation"]
    validation_nlpd: Float[np.ndarray, " evaluation"]
    best_step: int
    departure: Departure | None = None

    def __repr__(self) -> str:
        return f"History({', '.join(f'{name} {value}' for name, value in self._told().items())})"

    def _told(self) -> dict[str, str]:
        steps = max((len(values) for values in self.metrics.values()), default=0)
        scores = np.asarray(self.validation_nlpd)
        known = np.isfinite(scores).any()
        best = {"best validation NLPD": f"{np.nanmin(scores):.4f}"} if known else {}
        return {"steps": str(steps), "best step": str(self.best_step), **best}


class Fit(NamedTuple):
    """The result of training.

    Attributes:
        posterior: The best posterior, after the algorithm's second stage if it has one.
        history: What happened, step by step.
        noise: The likelihood's own parameters by name, in their own units, such as
            ``noise["variance"]`` of a Gaussian: learned values, and posterior means of sampled ones.
        reports: What the second stages have to say (`ChainReport`, `TemperingReport`, …), one each.
        end: What ended the run: its ``"epochs"``, ``"patience"``, that it had ``"settled"``, a
            ``"callback"``, or an ``"interrupt"`` (Ctrl-C).

    Example:
        >>> import jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian(pb.learned(1.0)))
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> trained = pb.fit(pb.ohsmc(model, num_particles=10), (x, x), epochs=9)
        >>> bool(trained.noise["variance"] < 1.0)
        True
    """

    posterior: Posterior
    history: History
    noise: dict[str, Array]
    reports: tuple[Report, ...] = ()
    end: End = "epochs"

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run."""
        return self.end == "interrupt"

    def __repr__(self) -> str:
        return f"Fit({self.history!r},\n    {self.posterior!r})"

    def _repr_html_(self) -> str:
        return _as_table("Fit", self._told())

    def _told(self) -> dict[str, str]:
        ended = {"interrupted": "yes"} if self.interrupted else {}
        own = {
            name: np.array2string(np.asarray(value), precision=4)
            for name, value in self.noise.items()
            if np.size(value) <= 4
        }
        return {**self.history._told(), **self.posterior._told(), **own, **ended}

    @property
    def report(self) -> Report:
        """The report of the last second stage; None if there was none."""
        return self.reports[-1] if self.reports else None
