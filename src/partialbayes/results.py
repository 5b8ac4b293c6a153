"""Define what training returns: a `Fit`, its `History`, and the reports of second stages.

Example:
    >>> import jax.numpy as jnp, partialbayes as pb
    >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
    >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
    >>> algorithm = pb.two_stage(pb.map_estimate(model), pb.samplers.laplace(num_particles=20))
    >>> trained = pb.fit(algorithm, (x, x), epochs=9)
    >>> trained.end, trained.history.best_step, int(trained.report.clipped)
    ('epochs', 9, 0)
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from partialbayes.types import Posterior, Report, as_table

__all__ = [
    "ChainReport",
    "Departure",
    "End",
    "Fit",
    "History",
    "ImportanceReport",
    "LaplaceReport",
    "TemperingReport",
]

End: TypeAlias = Literal["epochs", "patience", "settled", "callback", "interrupt"]
"""The reason why a run ended."""


class Departure(NamedTuple):
    """Comparison of a trained posterior with the pretrained network it started from.

    Attributes:
        nlpd_before: Negative log predictive density of the pretrained network.
        nlpd_after: Negative log predictive density of the posterior.
        standard_error: Standard error of the difference, from its spread over the rows.
        distance: The change of the predictions: the mean total variation between class probabilities, or
            the root mean square shift of the mean in predictive standard deviations.
        held_out: Whether the rows were validation data rather than training data.
    """

    nlpd_before: float
    nlpd_after: float
    standard_error: float
    distance: float
    held_out: bool

    @property
    def is_worse(self) -> bool:
        """True if the posterior predicts worse by over two standard errors and 0.01 nats per row."""
        return not self.nlpd_after - self.nlpd_before <= max(2.0 * self.standard_error, 0.01)


class History(NamedTuple):
    """The record of a training run.

    Attributes:
        metrics: Every scalar the algorithm reported, one value per step.
        eval_steps: The steps, counted from 1, after which the validation data were scored.
        validation_nlpd: The validation score at these steps; empty without validation data.
        best_step: The step whose posterior was returned.
        departure: The comparison with the pretrained network; None if there was none.
    """

    metrics: dict[str, Float[np.ndarray, " step"]]
    eval_steps: Int[np.ndarray, " evaluation"]
    validation_nlpd: Float[np.ndarray, " evaluation"]
    best_step: int
    departure: Departure | None = None

    def __repr__(self) -> str:
        return f"History({', '.join(f'{name} {value}' for name, value in self._facts().items())})"

    def _facts(self) -> dict[str, str]:
        steps = max((len(values) for values in self.metrics.values()), default=0)
        scores = np.asarray(self.validation_nlpd)
        known = np.isfinite(scores).any()
        best = {"best validation NLPD": f"{np.nanmin(scores):.4f}"} if known else {}
        return {"steps": str(steps), "best step": str(self.best_step), **best}


class Fit(NamedTuple):
    """The result of training.

    Attributes:
        posterior: The best posterior, after the algorithm's second stage if it has one.
        history: The record of the run.
        noise: The parameters of the likelihood by name, in their natural units, such as
            ``noise["variance"]`` of a Gaussian. Sampled parameters give their posterior mean.
        reports: The report of each second stage, such as a `ChainReport` or `TemperingReport`.
        end: The reason why the run ended: ``"epochs"``, ``"patience"``, ``"settled"``, ``"callback"`` or
            ``"interrupt"`` (Ctrl-C).

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
        """True if Ctrl-C ended the run."""
        return self.end == "interrupt"

    def __repr__(self) -> str:
        return f"Fit({self.history!r},\n    {self.posterior!r})"

    def _repr_html_(self) -> str:
        return as_table("Fit", self._facts())

    def _facts(self) -> dict[str, str]:
        ended = {"interrupted": "yes"} if self.interrupted else {}
        own = {
            name: np.array2string(np.asarray(value), precision=4)
            for name, value in self.noise.items()
            if np.size(value) <= 4
        }
        return {**self.history._facts(), **self.posterior._facts(), **own, **ended}

    @property
    def report(self) -> Report:
        """Report of the last second stage; None if there was none."""
        return self.reports[-1] if self.reports else None


class ChainReport(NamedTuple):
    """Diagnostics of `hmc` and `nuts`.

    Attributes:
        r_hat: Split R-hat of each coordinate of φ; 1 if all halves of all chains agree.
        ess: Effective sample size of each coordinate.
        acceptance: Mean acceptance probability of each chain.
        divergences: Number of divergent draws over all chains.
        step_size: The step size of each chain.
        num_draws: Number of draws kept of each chain.
    """

    r_hat: Float[Array, "... dim"]
    ess: Float[Array, "... dim"]
    acceptance: Float[Array, "... chain"]
    divergences: Int[Array, "..."]
    step_size: Float[Array, "... chain"]
    num_draws: Int[Array, "..."]


class LaplaceReport(NamedTuple):
    """Diagnostics of `laplace`.

    Attributes:
        log_evidence: Laplace's approximation of log p(y; ψ).
        clipped: Number of directions in which the curvature was below the prior's and replaced by it.
        gradient_norm: Length of the gradient at the mode, in units of the prior.
        acceptance: Mean acceptance of the last of ``num_moves``; 1 without them.
    """

    log_evidence: Float[Array, "..."]
    clipped: Int[Array, "..."]
    gradient_norm: Float[Array, "..."]
    acceptance: Float[Array, "..."]


class ImportanceReport(NamedTuple):
    """Diagnostics of `importance_sampling`.

    Attributes:
        log_evidence: An estimate of log p(y; ψ).
        ess: Effective sample size of the weighted draws from the prior.
    """

    log_evidence: Float[Array, "..."]
    ess: Float[Array, "..."]


class TemperingReport(NamedTuple):
    """Diagnostics of `tempered_smc`; steps that were not needed hold NaN.

    Attributes:
        log_evidence: An estimate of log p(y; ψ); NaN if the path stalled.
        standard_error: The standard error of ``log_evidence``, from the ancestry of this run.
        temperatures: The exponent of the likelihood after each step; 1 at the posterior.
        ess: Effective sample size at each step.
        acceptance: Mean acceptance probability of the moves of each step.
        shortfall: The log-density of the best particle of the previous stage minus the mean over the new
            ones, per random weight.
    """

    log_evidence: Float[Array, "..."]
    standard_error: Float[Array, "..."]
    temperatures: Float[Array, "... step"]
    ess: Float[Array, "... step"]
    acceptance: Float[Array, "... step"]
    shortfall: Float[Array, "..."]

    @property
    def arrived(self) -> Bool[Array, "..."]:
        """True if the path reached the posterior."""
        return jnp.isfinite(self.log_evidence)
