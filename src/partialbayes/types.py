"""Define the contracts of the library, each in one place.

**phi** (φ) is the stochastic part of the weights: one flat vector of ``dim`` numbers per particle.
**psi** (ψ) is the deterministic rest: a pytree. Weights of particles are normalized logarithms,
``logsumexp(log_weights) == 0``.

Example:
    >>> import jax, partialbayes as pb
    >>> model = pb.partial_bnn(pb.mlp([1, 3, 1]), "layers/1/*", pb.gaussian())
    >>> pb.model.with_chunks(model, particles=100).chunks
    Chunks(particles=100, rows=None)
    >>> phi, psi = model.init(jax.random.key(0))  # Params; psi is a Psi
    >>> model.prior_moments(psi).variance  # Moments
    Array([1., 1., 1., 1.], dtype=float32)
    >>> pb.kernels.forgetting()
    Kernel(forgetting)
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
    "Chunks",
    "Info",
    "Kernel",
    "KernelInit",
    "KernelStep",
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
]

PRNGKey: TypeAlias = Key[Array, ""]
"""A typed key of ``jax.random``."""
Seed: TypeAlias = PRNGKey | int | np.integer
"""A typed key, or an integer to make one from: what ``key=`` accepts."""
Phi: TypeAlias = Float[Array, " dim"]
"""The random weights of one particle."""
Scalar: TypeAlias = Float[Array, ""]
"""One number, as an array."""
Info: TypeAlias = dict[str, Scalar]
"""Scalars that a step reports, by name. Every algorithm reports ``loss``, its objective per row.
Algorithms with weighted particles add ``ess``, ``log_evidence_increment``, ``acceptance`` and
``ancestors``."""
Report: TypeAlias = PyTree
"""The report of a second stage: a NamedTuple of arrays such as `ChainReport`, or None."""


@runtime_checkable
class LogDensity(Protocol):
    """A log-density of φ, up to a constant."""

    def __call__(self, phi: Phi, /) -> Scalar: ...


class Particles(NamedTuple):
    """A weighted cloud of particles: Σ_j exp(log_weights[j]) δ(values[j]).

    ``values`` has the position of each particle, ``log_weights`` its normalized log-weight. In the
    posterior of an ensemble both arrays have a leading member axis, and the weights are normalized over
    members and particles together.

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
        mask: True for the rows that count, false for padding.
        scale: N / M, the number of rows of the data set over the number of rows that count.
        forgotten: The fraction of earlier information that these rows displace; M / N if None. In a
            stream, new rows displace only those that leave the memory.

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
        """Fraction of earlier information to forget."""
        return 1.0 / self.scale if self.forgotten is None else self.forgotten


class Psi(NamedTuple):
    """The deterministic parameters ψ, as one pytree to which any Optax transformation applies.

    Attributes:
        network: The network's deterministic weights, by path.
        likelihood: Learned parameters of the likelihood, such as the noise; empty if there are none.
        prior: Learned parameters of the prior, such as its scale; empty if there are none.
    """

    network: dict[str, Array]
    likelihood: PyTree
    prior: PyTree


class Params(NamedTuple):
    """One value of all parameters, φ and ψ, such as the start of training."""

    phi: Phi
    psi: Psi


@runtime_checkable
class NetworkInit(Protocol):
    """A function that makes the initial weights of a network."""

    def __call__(self, key: PRNGKey, /) -> PyTree: ...


@runtime_checkable
class NetworkApply(Protocol):
    """A function that computes the outputs of a network."""

    def __call__(self, params: PyTree, inputs: PyTree, /) -> PyTree: ...


class Network(NamedTuple):
    """A network: a function that makes its weights and a function that computes its outputs.

    Attributes:
        init: Makes the weights. A pretrained network returns its trained weights.
        apply: Computes outputs from inputs, with a leading example axis on both.
        output_axis: The axis of a kernel that indexes its output units: the last as in Flax, or the
            first as in Equinox. The product of the other axes is the fan-in.
        ordered: Whether dictionaries in the parameters are in the order of definition. If not, their
            layers cannot be chosen by position.
        recipe: How a ready-made network was built, as JSON; None for a network of your own.
        pretrained: Whether the weights are trained. Trainers then start near them rather than from the
            prior, and `fit` warns if the result predicts worse than the network did.

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
    """A random parameter of the likelihood, stored in φ after the weights.

    Attributes:
        name: The name of the parameter, such as ``"variance"``.
        start: Returns the initial value, in the unconstrained coordinates used in φ (a logarithm, for
            example).
        prior: The prior in these coordinates, flattened. If None, a normal of scale one around the
            start.
    """

    name: str
    start: Callable[[], Array]
    prior: PriorBuilder | None


@runtime_checkable
class LikelihoodParameters(Protocol):
    """A function from the outputs of a network to the parameters of the distribution of the targets."""

    def __call__(self, outputs: PyTree, learned: PyTree, latent: dict[str, Array], /) -> PyTree:
        """Compute the parameters of the distribution.

        Args:
            outputs: The outputs of the network, one row per example.
            learned: The learned parameters, from ``psi.likelihood``.
            latent: The random parameters by name, from φ; empty for most likelihoods.

        Returns:
            The parameters of the distribution, with a leading example axis.
        """


@runtime_checkable
class LikelihoodDensity(Protocol):
    """A function that returns the log-density of each example."""

    def __call__(self, parameters: PyTree, targets: PyTree, /) -> Float[Array, " example"]: ...


@runtime_checkable
class ObservedDensity(Protocol):
    """A function that returns the log-density of the observed entries of each example."""

    def __call__(
        self, parameters: PyTree, targets: PyTree, observed: Any, /
    ) -> Float[Array, " example"]:
        """Integrate out the entries where ``observed`` is false."""


@runtime_checkable
class LikelihoodMoment(Protocol):
    """A function that returns a mean, a variance or class probabilities of each example."""

    def __call__(self, parameters: PyTree, /) -> Float[Array, "example ..."]: ...


@runtime_checkable
class LikelihoodSample(Protocol):
    """A function that draws targets."""

    def __call__(self, key: PRNGKey, parameters: PyTree, /) -> PyTree: ...


@runtime_checkable
class TargetCheck(Protocol):
    """A function that validates the targets a user passes."""

    def __call__(self, outputs: Any, targets: Any, /) -> PyTree:
        """Validate targets against the outputs of the network.

        Args:
            outputs: Shapes and dtypes of the outputs of the network.
            targets: The targets that the user passed.

        Returns:
            The targets in canonical form.

        Raises:
            ValueError: The targets do not fit the likelihood or the outputs.
        """


@runtime_checkable
class TargetCdf(Protocol):
    """A function that returns P(Y ≤ y) of each entry of the targets."""

    def __call__(self, parameters: PyTree, targets: Array, /) -> Float[Array, "example ..."]: ...


@runtime_checkable
class ParameterValues(Protocol):
    """A function that returns the parameters of the likelihood by name, in their natural units."""

    def __call__(self, learned: PyTree, latent: dict[str, Array], /) -> dict[str, Array]: ...


class Likelihood(NamedTuple):
    """The density p(y | outputs of the network), one value per example.

    ``parameters`` maps outputs, learned and random values to the parameters of the distribution. The
    other functions take these parameters, so training and prediction share one definition.

    Attributes:
        init: Returns the initial value of ``psi.likelihood``.
        parameters: Maps outputs to the parameters of the distribution.
        log_density: Returns the log-density of each example.
        mean: Returns the mean of each entry; class probabilities for classification.
        variance: Returns the variance of each entry.
        sample: Draws targets.
        check: Validates the targets a user passes.
        latents: The random parameters; they come last in φ.
        observed_log_density: Returns the log-density of targets with missing entries; None if the
            likelihood needs complete rows.
        values: Returns the parameters of the likelihood by name, in their natural units.
        cdf: Returns P(Y ≤ y) of each entry; None if it is unknown or the targets are classes.
        probabilities: Returns class probabilities along the last axis; None unless the targets are
            classes.
        kind: The kind of targets: "real" numbers, "count" (integers, with integer quantiles) or "class"
            (labels).
        is_gaussian: Whether each entry is Gaussian, so that mean and variance determine its law.
        exact: This likelihood with the true gradient, if training uses a modified gradient of
            ``log_density``; else None. Samplers of φ use it.
        recipe: How the likelihood was built, as JSON; None for a likelihood of your own.
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
        """True if the targets are class labels."""
        return self.kind == "class"


class Moments(NamedTuple):
    """Mean and variance of each coordinate of φ under the prior."""

    mean: Phi
    variance: Phi


@runtime_checkable
class PriorSample(Protocol):
    """A function that draws from a prior."""

    def __call__(self, key: PRNGKey, learned: PyTree, num: int, /) -> Float[Array, "num dim"]:
        """Draw ``num`` values of φ; ``learned`` is ``psi.prior``."""


@runtime_checkable
class PriorDensity(Protocol):
    """A function that returns the log-density of a prior."""

    def __call__(self, phi: Phi, learned: PyTree, /) -> Scalar:
        """Evaluate it at one φ; ``learned`` is ``psi.prior``."""


@runtime_checkable
class PriorMoments(Protocol):
    """A function that returns the mean and variance of a prior."""

    def __call__(self, learned: PyTree, /) -> Moments:
        """Compute the moments; ``learned`` is ``psi.prior``."""


class Prior(NamedTuple):
    """The prior π(φ; learned), bound to a split.

    Attributes:
        init: Returns the initial value of ``psi.prior``.
        sample: Draws values of φ.
        log_density: Returns the log-density at one φ.
        moments: Returns mean and variance of each coordinate.
        normal: Whether π is Gaussian with independent coordinates, so that the moments determine it.
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
    """A function that binds a prior to a split."""

    def __call__(self, split: Split, /) -> Prior: ...


class Chunks(NamedTuple):
    """The sizes in which work on a cloud and a batch is divided; they do not change results.

    Attributes:
        particles: Number of particles per chunk; all particles if None.
        rows: Number of rows per chunk; all rows if None.
    """

    particles: int | None = None
    rows: int | None = None


class Recipes(NamedTuple):
    """How the parts of a model were built, each as JSON; None for parts of your own."""

    network: str | None = None
    likelihood: str | None = None
    prior: str | None = None


@runtime_checkable
class ModelInit(Protocol):
    """A function that returns the parameters at which training starts."""

    def __call__(self, key: PRNGKey, /) -> Params: ...


@runtime_checkable
class ModelLogLikelihood(Protocol):
    """A function that returns the log-likelihood of each row of a batch."""

    def __call__(self, phi: Phi, psi: Psi, batch: Batch, /) -> Float[Array, " example"]:
        """Compute log p(y_i | φ; ψ) of each row, zero on masked rows."""


@runtime_checkable
class ModelOutputs(Protocol):
    """A function that computes what a model returns at inputs."""

    def __call__(self, phi: Phi, psi: Psi, inputs: PyTree, /) -> PyTree: ...


class Model(NamedTuple):
    """A partial Bayesian network, with everything a training method needs.

    Attributes:
        init: Returns the parameters at which training starts.
        log_likelihood: Returns the log-likelihood of each row of a batch, zero on masked rows.
        outputs: Returns the outputs of the network.
        parameters: Returns the parameters of the likelihood at inputs.
        likelihood: The likelihood, for means, variances, samples and checks.
        prior: The prior, bound to the split.
        split: The division of the parameters into φ (the stochastic weights, then the likelihood's
            latents) and ψ. ``split.dim`` is the length of φ.
        chunks: The chunk sizes of training and prediction; see `with_chunks`.
        recipes: How network, likelihood and prior were built, as `save` records it; None where it is
            unknown.
        pretrained: Whether ``init`` returns trained weights; see `Network`.

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
        return as_table("Model", self._facts())

    def _facts(self) -> dict[str, str]:
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
        """Compute log π(φ; ψ).

        Args:
            phi: One φ.
            psi: The deterministic parameters.

        Returns:
            The log-density.
        """
        return self.prior.log_density(phi, psi.prior)

    def sample_prior(self, key: PRNGKey, psi: Psi, num: int) -> Float[Array, "num dim"]:
        """Draw ``num`` values of φ from the prior at ψ.

        Args:
            key: The random key.
            psi: The deterministic parameters.
            num: Number of draws.

        Returns:
            The draws, one per row.
        """
        return self.prior.sample(key, psi.prior, num)

    def prior_moments(self, psi: Psi) -> Moments:
        """Compute mean and variance of each coordinate of φ under the prior at ψ.

        Args:
            psi: The deterministic parameters.

        Returns:
            Mean and variance of each coordinate.
        """
        return self.prior.moments(psi.prior)


class Slopes(NamedTuple):
    """Gradients in φ at each particle, of the functions of a `Target`.

    Attributes:
        log_density: The gradient of the target's ``log_density``.
        log_prior: The gradient of log π(φ).
        log_potential: The gradient of the target's ``log_potential``.
    """

    log_density: Float[Array, "particle dim"]
    log_prior: Float[Array, "particle dim"]
    log_potential: Float[Array, "particle dim"]


class Target(NamedTuple):
    """The densities and moments that a kernel may use besides the particles.

    Attributes:
        log_density: The density, up to a constant, that the move leaves invariant (SMC), or an estimate
            of the posterior from this batch (OHSMC). It takes one particle.
        log_potential: The log-weight that particles get right after the move. It takes one particle.
        prior: Moments of the prior.
        fraction: M / N, the fraction of the data in this batch.
        forgotten: The fraction of earlier information that a move which makes room for the batch
            forgets; M / N if None.
        slopes: Gradients at the particles before the move, where the algorithm has computed them
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
        """Fraction of earlier information to forget."""
        return self.fraction if self.forgotten is None else self.forgotten


class Moved(NamedTuple):
    """The result of a kernel's step.

    Attributes:
        values: The new positions.
        log_correction: The importance correction of the log-weights; zero for most kernels.
        acceptance: The mean acceptance probability; one if nothing is rejected.
        state: The kernel's memory, such as a tuned scale, or ``()``.
    """

    values: Float[Array, "particle dim"]
    log_correction: Float[Array, " particle"]
    acceptance: Scalar
    state: PyTree


def _no_memory(particles: Particles, /) -> PyTree:
    return ()


def _any_number(dim: int, /) -> int:
    return 1


@runtime_checkable
class KernelInit(Protocol):
    """A function that returns the initial memory of a kernel."""

    def __call__(self, particles: Particles, /) -> PyTree:
        """Make the memory for a cloud of particles."""


@runtime_checkable
class KernelStep(Protocol):
    """A function that moves the whole cloud once."""

    def __call__(self, key: PRNGKey, particles: Particles, target: Target, state: PyTree, /) -> Moved:
        """Move the particles.

        Args:
            key: The random key of this move.
            particles: The cloud, with its weights.
            target: The densities and moments the move may use.
            state: The kernel's memory.

        Returns:
            The new positions, corrections, acceptance and memory.
        """


class Kernel(NamedTuple):
    """A Markov kernel on the whole cloud, with memory.

    Attributes:
        step: Moves the cloud once.
        init: Returns the initial memory; empty by default.
        needs_normal_prior: Whether the kernel is valid only for a normal prior with independent
            coordinates. Algorithms check it (`require_suitable`).
        needs_prior_variance: Whether the prior must have a finite variance.
        keeps_target: Whether the kernel leaves its target invariant. OHSMC does not need it; sequential
            Monte Carlo along a path does (`require_invariant`).
        needs_batches: Whether the kernel forgets as much as a batch brings. With all rows in one batch
            it would forget everything.
        learn: For a kernel that learns from the cloud, ``(pools, prior) -> step``: the same move, in
            which the first half of the moved particles learns from the first pool and the second half
            from the second. None for other kernels.
        batch_rate: Zero if the particles are reweighted by the batch after the move. A kernel that uses
            the batch in its move gives its rate instead, in units of M/N: one if information on the
            other rows decays by (1 − M/N), a fifth if by (1 − M/(5 N)). `ohsmc` then neither weights nor
            resamples.
        fewest_particles: Maps the number of weights to the number of particles the kernel needs to be
            near the posterior. `ohsmc` warns below it.
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
    """A Markov kernel on one particle, given the log-density at each call; see `from_mcmc`.

    The signatures are BlackJAX's: ``ParticleKernel(blackjax.nuts.init, step)`` is valid, where ``step``
    is ``blackjax.nuts.build_kernel()`` with its parameters bound.

    Attributes:
        init: ``(phi, log_density) -> state``; ``state.position`` is the particle.
        step: ``(key, state, log_density) -> (state, info)``; ``info.acceptance_rate`` is used if
            present.
    """

    init: Callable[[Phi, LogDensity], Any]
    step: Callable[[PRNGKey, Any, LogDensity], tuple[Any, Any]]


@runtime_checkable
class Resampler(Protocol):
    """A function that draws a new cloud from a weighted one."""

    def __call__(
        self, key: PRNGKey, particles: Particles, /
    ) -> tuple[Particles, Int[Array, " particle"]]:
        """Return the new particles, often equally weighted, and the index of each one's parent."""


class Posterior(NamedTuple):
    """The result of training: ψ and weighted samples of φ given the data.

    An ensemble has a leading member axis on every leaf, ``psi`` included.

    Attributes:
        psi: The deterministic parameters.
        particles: The samples of φ and their log-weights.
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
        return as_table("Posterior", self._facts())

    def _facts(self) -> dict[str, str]:
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
        """True if there is a member axis."""
        return self.particles.log_weights.ndim > 1

    @property
    def num_members(self) -> int:
        """Number of members of an ensemble; 1 if there is no member axis."""
        return self.particles.log_weights.shape[0] if self.is_ensemble else 1

    @property
    def num_particles(self) -> int:
        """Number of particles of each member."""
        return self.particles.log_weights.shape[-1]


@runtime_checkable
class Sampler(Protocol):
    """A second stage: draws new samples of φ given all the data, at the ψ of a posterior.

    It is a pure function that its caller compiles. Its posterior has no member axis.
    """

    def __call__(
        self, key: PRNGKey, model: Model, posterior: Posterior, batch: Batch, /
    ) -> tuple[Posterior, Report]:
        """Draw new samples of φ.

        Args:
            key: The random key.
            model: The trained model.
            posterior: The posterior of the previous stage; its ψ is kept.
            batch: All training data.

        Returns:
            The new posterior and a report.
        """


@runtime_checkable
class AlgorithmInit(Protocol):
    """A function that returns the initial state of an algorithm."""

    def __call__(self, key: PRNGKey, /) -> Any: ...


@runtime_checkable
class AlgorithmStep(Protocol):
    """A function that performs one step of training."""

    def __call__(self, key: PRNGKey, state: Any, batch: Batch, /) -> tuple[Any, Info]:
        """Update the state with a batch.

        Args:
            key: The random key of this step.
            state: The state before the step.
            batch: Rows of data; ``batch.scale`` is N/M.

        Returns:
            The state after the step, and scalars to record.
        """


@runtime_checkable
class AlgorithmPosterior(Protocol):
    """A function that returns the posterior of a state."""

    def __call__(self, state: Any, /) -> Posterior: ...


@runtime_checkable
class AlgorithmFinish(Protocol):
    """A function that runs second stages once after training."""

    def __call__(
        self, key: PRNGKey, posterior: Posterior, batch: Batch, /
    ) -> tuple[Posterior, tuple[Report, ...]]:
        """Run the second stages.

        Args:
            key: The random key of the stages.
            posterior: The best posterior of training.
            batch: All training data.

        Returns:
            The final posterior and a report of each stage.
        """


@runtime_checkable
class AlgorithmRestart(Protocol):
    """A function that continues an algorithm from a posterior."""

    def __call__(self, state: Any, posterior: Posterior, /) -> Any:
        """Put a posterior of the same shapes into the state."""


class Algorithm(NamedTuple):
    """A training method: pure functions over explicit state.

    Attributes:
        model: The model to train.
        init: Returns the initial state.
        step: Updates the state with a batch. Shapes, dtypes and weak types of the state do not change.
        posterior: Returns the posterior of a state.
        finish: Runs second stages once after training, with the best posterior and all the data; None if
            there are none. See `two_stage`.
        restart: Continues from a posterior; None if a posterior does not determine the state. See
            `online.start`.
        wants: The rows a step needs: "all rows" (`fit` refuses batches), "batches" (`fit` warns if all
            rows are in one), or None for either.

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
        path: The names that lead to the array, joined by ``/``.
        shape: The shape of the array.
        dtype: The dtype of the array.
        position: The position of the array in the order in which the network defines its weights.
        fan_in: The number of inputs of each unit of a kernel; 1 for vectors and scalars.
        ordered: Whether ``position`` is known; trained dictionaries are often sorted by name.
        output_axis: The axis of a kernel that indexes its output units; see `Network`.

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
    output_axis: int = -1

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of the array in the order of φ: other axes, inputs, outputs, as Flax and Keras have them.

        PyTorch and Equinox have (outputs, inputs, others). The same kernel is the same piece of φ.
        """
        places = tuple(range(len(self.shape)))
        return (*places[2:], 1, 0) if self.output_axis == 0 and len(places) > 1 else places

    @property
    def size(self) -> int:
        """Number of weights in the array."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def name(self) -> str:
        """Last name of the path, such as ``kernel`` or ``bias``."""
        return self.path.rpartition("/")[2]

    @property
    def layer(self) -> str:
        """Path of the layer that contains the array."""
        parent, separator, name = self.path.rpartition("/")
        # A single array at the top, such as {"head": …}, is a layer, unless its name is that of a part.
        return parent if separator or name in WEIGHT_NAMES else name

    @property
    def is_floating(self) -> bool:
        """True if the array holds floating-point numbers."""
        return bool(jnp.issubdtype(self.dtype, jnp.floating))


@dataclass(frozen=True, eq=False)
class Split:
    """The division of the parameters into φ and ψ.

    Attributes:
        leaves: Every array of the parameter tree, sorted by path, then the likelihood's latents. φ
            has the random entries of one after the other, each in the order of its ``axes``.
        masks: For each leaf, a boolean array that is true for stochastic weights.
        dim: The length of φ.
        flatten: ``params -> (phi, psi)``; latents take their initial values.
        merge: ``(phi, psi) -> params``.
        latents: ``phi -> {name: array}``, the random parameters of the likelihood.
        frozen: The weights that are neither random nor trained, by path: with the shape of the leaf, or
            flat if only part of the leaf is frozen. Integer weights are always frozen.
    """

    leaves: tuple[Leaf, ...]
    masks: tuple[Bool[np.ndarray, ...], ...]
    dim: int
    flatten: Callable[[PyTree], tuple[Array, dict[str, Array]]]
    merge: Callable[[Array, dict[str, Array]], PyTree]
    latents: Callable[[Array], dict[str, Array]] = lambda phi: {}
    frozen: Mapping[str, Array] = field(default_factory=dict)

    def describe(self, num_particles: int = 1000) -> str:
        """Tabulate the path, shape, count and side of each weight, and the memory of the particles.

        Args:
            num_particles: Number of particles, for the memory estimate.

        Returns:
            The table as text.

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
            mixed = " + ".join(f"{name} ({count})" for name, count in sides.items())
            side = mixed if len(sides) > 1 else "".join(sides)
            rows.append((leaf.path, str(leaf.shape), str(leaf.size), side))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            f"{path:<{widths[0]}}  {shape:<{widths[1]}}  {count:>{widths[2]}}  {side}"
            for path, shape, count, side in rows
        ]
        rest = sum(leaf.size for leaf in self.leaves if trains(leaf)) - self.dim - kept
        constant = f", frozen: {kept}" if kept else ""
        lines.append(f"phi: {self.dim} stochastic weights, psi: {rest} deterministic weights{constant}")
        # One log-weight goes with each particle.
        size = num_particles * (self.dim + 1) * jnp.dtype(jnp.result_type(float)).itemsize
        lines.append(f"{num_particles} particles take {_readable(size)}")
        return "\n".join(lines)


def _made_by(recipe: str | None) -> str:
    return "your own" if recipe is None else str(json.loads(recipe)["builder"])


def _short(likelihood: Likelihood) -> str:
    kinds = {"real": "real targets", "count": "counts", "class": "classes"}
    return kinds[likelihood.kind] + (" with Gaussian noise" if likelihood.is_gaussian else "")


def as_table(title: str, facts: dict[str, str]) -> str:
    """Format facts as a small HTML table for notebooks."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption style='text-align:left'><b>{html.escape(title)}</b></caption>{rows}</table>"


def trains(leaf: Any) -> bool:
    """Return True if a gradient can update the leaf; integers, booleans and random keys are constant."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _readable(size: int) -> str:
    for power, unit in ((3, "GB"), (2, "MB"), (1, "kB")):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size} bytes"
