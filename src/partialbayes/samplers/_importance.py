"""Importance sampling: draws from the prior, weighted by all the data.

    φ_j ~ π(φ; ψ̂),    w_j ∝ p(y_1:N | φ_j; ψ̂),    log Ẑ = log (1/J) Σ_j p(y_1:N | φ_j; ψ̂)

The weighted draws are consistent as J grows, but useless if the posterior is much narrower than the
prior. The effective sample size in the report shows it.
"""

from __future__ import annotations

from partialbayes._utils.checks import require_positive_int
from partialbayes.feynman_kac._gradients import forward_pass
from partialbayes.results import ImportanceReport
from partialbayes.types import Batch, Model, Particles, Posterior, PRNGKey, Report, Sampler
from partialbayes.weights import effective_sample_size, reweight, uniform_log_weights


def importance_sampling(*, num_particles: int = 1000) -> Sampler:
    """Sample φ by importance sampling from the prior.

    The report is an `ImportanceReport`.

    Args:
        num_particles: Number of draws from the prior.

    Returns:
        The sampler, to pass to `two_stage` or `second_stage`.

    Example:
        >>> import partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 20, 1]), "layers/1/*", pb.gaussian())
        >>> weighted = pb.samplers.importance_sampling(num_particles=100)
        >>> algorithm = pb.two_stage(pb.map_estimate(model), weighted)
    """
    require_positive_int("num_particles", num_particles, "for example num_particles=1000.")

    def sampler(
        key: PRNGKey, model: Model, posterior: Posterior, batch: Batch
    ) -> tuple[Posterior, Report]:
        psi = posterior.psi
        values = model.sample_prior(key, psi, num_particles)
        log_likelihoods = forward_pass(model, values, psi, batch)
        prior = Particles(values, uniform_log_weights(num_particles))
        particles, log_evidence = reweight(prior, log_likelihoods)
        report = ImportanceReport(log_evidence, effective_sample_size(particles.log_weights))
        return Posterior(psi, particles), report

    return sampler
