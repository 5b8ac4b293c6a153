"""Plausible bugs, one at a time: which of them do the tests find?

``python tests/mutations.py`` copies the tree to a temporary folder, and for each mutation changes one
place of the source there, runs the tests that ought to notice, and tells which one did. No test and
not part of CI: all of them take the better part of an hour.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src", "partialbayes")
# Not the results, the history and the environment; but the compiled programs that tests share.
_COPIED = (
    *("src", "tests", "examples", "docs", "benchmarks", "tools", "demo", "reproduction"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile", ".pytest_cache"),
)
_MOST_SECONDS = 300
_RESULTS = Path(tempfile.gettempdir(), "mutations.jsonl")


class Mutation(NamedTuple):
    """One bug.

    Attributes:
        name: What it is called.
        file: Where it is, below the package.
        before: The text that is replaced; it must occur exactly once.
        after: What stands there instead.
        tests: What ought to find it: test files or test ids below ``tests``, and options of pytest.
    """

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Return the text of the file with the bug in it."""
        if text.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: the text occurs {text.count(self.before)} times in {self.file}."
            )
        return text.replace(self.before, self.after)

    @property
    def arguments(self) -> list[str]:
        """The tests, as pytest is to be given them."""
        return [test if test.startswith("-") else f"tests/{test}" for test in self.tests]


def _in(file: str, *bugs: tuple[str, ...]) -> list[Mutation]:
    """Mutations of one file: name, text before, text after, and the tests."""
    return [Mutation(name, file, before, after, tuple(tests)) for name, before, after, *tests in bugs]


MUTATIONS = [
    *_in(
        "estimators/_kernel_view.py",
        (
            "kernel-learned-from-all-folds",
            "rows = np.flatnonzero((folds.of_row % num_parts != part) | (folds.of_row < 0))",
            "rows = np.flatnonzero((folds.of_row % num_parts != part) | True)",
            "estimators/test_kernel_view.py",
        ),
        (
            "machine-that-saw-its-fold",
            "rows = kernels[fold % num_parts], np.flatnonzero(~held_out)",
            "rows = kernels[fold % num_parts], np.flatnonzero(held_out | ~held_out)",
            "estimators/test_kernel_view.py",
        ),
        (
            "evidence-without-the-determinant-of-outputs",
            "slope = 0.5 * (outputs * inverse - weights @ weights.T)",
            "slope = 0.5 * (inverse - 2.0 * weights @ weights.T)",
            "estimators/test_kernel_view.py",
        ),
        (
            "logits-without-the-size-of-the-prior",
            "matrix = size * self.matrix\n",
            "matrix = 1.0 * self.matrix\n",
            "estimators/test_kernel_view.py",
        ),
        (
            "spread-of-the-fit-for-rows-left-out",
            "np.diag(inverse) ** -0.5",
            "np.diag(inverse) ** 0.5",
            "estimators/test_kernel_view.py",
        ),
    ),
    *_in(
        "networks/_kernel_machine.py",
        (
            "kernel-of-plain-columns",
            "state, scales = draw_in(inputs), kernel",
            "state, scales = inputs, kernel",
            "estimators/test_kernel_view.py",
        ),
    ),
    *_in(
        "weights.py",
        (
            "weights-not-normalized",
            "log_weights=log_weights - increment",
            "log_weights=log_weights",
            "test_weights.py",
        ),
        (
            "ess-without-the-square",
            "2.0 * log_weights",
            "1.0 * log_weights",
            "test_weights.py",
        ),
        (
            "quantile-of-unsorted-weights",
            "particles.log_weights[order]",
            "particles.log_weights",
            "test_weights.py",
        ),
    ),
    *_in(
        "resampling.py",
        (
            "resampled-weights-of-one",
            "log_weights = uniform_log_weights(ancestors.shape[0])",
            "log_weights = jnp.zeros(ancestors.shape[0])",
            "statistical/test_resampling.py",
        ),
        (
            "stratified-shares-one-draw",
            "uniform(key, (num,), weights.dtype)",
            "uniform(key, (1,), weights.dtype)",
            "statistical/test_resampling.py::test_the_strata_are_drawn_from_independently",
        ),
        (
            "residual-draws-from-all-weights",
            "jnp.maximum(expected - copies, 0.0)",
            "weights",
            "statistical/test_resampling.py",
        ),
        (
            "ess-threshold-not-times-j",
            "< threshold * num_particles",
            "< threshold",
            "statistical/test_resampling.py",
        ),
        (
            "transport-not-stretched",
            "scale / jnp.where(shrunk > 0.0, shrunk, 1.0)",
            "scale",
            "statistical/test_resampling.py",
        ),
        (
            "thinned-forgets-the-share-of-a-member",
            "total + uniform_log_weights(chosen.shape[0])",
            "uniform_log_weights(chosen.shape[0])",
            "training/test_memory.py::test_thinned_particles_keep_the_mixture_on_average",
        ),
        (
            "weight-of-an-island-forgotten",
            "drawn.log_weights + totals",
            "drawn.log_weights",
            "statistical/test_islands.py",
        ),
    ),
    *_in(
        "feynman_kac/_evidence.py",
        (
            "evidence-of-runs-averages-logarithms",
            "jax.nn.logsumexp(log_evidences) - jnp.log(num_runs)",
            "jnp.mean(log_evidences)",
            "feynman_kac/test_evidence.py::test_runs_are_averaged_and_not_their_logarithms",
        ),
        (
            "evidence-of-runs-without-ddof",
            "ddof=1",
            "ddof=0",
            "feynman_kac/test_evidence.py::test_runs_are_averaged_and_not_their_logarithms",
        ),
    ),
    *_in(
        "feynman_kac/_feynman_kac.py",
        (
            "evidence-of-the-last-step-only",
            "log_evidence=cloud.log_evidence + increment",
            "log_evidence=increment",
            "statistical/test_smc.py::test_evidence_is_unbiased_and_the_posterior_mean_right",
        ),
        (
            "founders-not-inherited",
            "founders = cloud.founders[ancestors]",
            "founders = cloud.founders",
            "statistical/test_evidence.py",
        ),
        (
            "chains-with-the-founders-of-others",
            "jnp.repeat(founders, chain_length)",
            "jnp.tile(founders, chain_length)",
            "feynman_kac/test_evidence.py::test_every_state_of_a_chain_has_the_founder_of_the_chain",
        ),
        (
            "path-repeats-its-target",
            "table[begin + 1 : end + 1, : seen[end]]",
            "table[begin:end, : seen[end]]",
            "test_annealing.py::test_a_path_by_parts_is_the_path_on_all_rows",
            "statistical/test_smc.py::test_evidence_is_unbiased_and_the_posterior_mean_right",
        ),
        (
            "adaptive-temperature-not-of-the-rest",
            "temperature + share * (1.0 - temperature)",
            "temperature + share",
            "statistical/test_refine.py::test_posterior_and_evidence_are_those_of_the_oracle",
        ),
        (
            "variance-of-evidence-starts-elsewhere",
            "cloud.log_resampled - at_start + at_end",
            "cloud.log_resampled + at_end",
            "statistical/test_evidence.py",
        ),
    ),
    *_in(
        "annealing.py",
        (
            "move-leaves-the-next-target",
            "family.log_prior(phi) + powered(phi, before)",
            "family.log_prior(phi) + powered(phi, after)",
            "test_annealing.py",
        ),
        (
            "annealed-target-without-prior",
            "return family.log_prior(phi) + powered",
            "return powered",
            "test_annealing.py",
        ),
        (
            "rows-cut-before-they-are-filled",
            "batch = overwrite_masked_rows(batch)",
            "batch = batch",
            "test_annealing.py",
        ),
        (
            "last-row-not-seen",
            "np.arange(1, rows + 1), 1)",
            "np.arange(rows), 1)",
            "test_annealing.py",
        ),
        (
            "stride-keeps-the-wrong-half",
            "jnp.where(good, middle, low), jnp.where(good, high, middle)",
            "jnp.where(good, low, middle), jnp.where(good, middle, high)",
            "test_annealing.py::test_a_stride_leaves_the_wanted_ess",
        ),
    ),
    *_in(
        "feynman_kac/_gradients.py",
        (
            "prior-gradient-times-n-over-m",
            "(batch.scale * weights, weights)",
            "(batch.scale * weights, batch.scale * weights)",
            "feynman_kac/test_gradients.py",
        ),
        (
            "gradient-without-n-over-m",
            "(batch.scale * weights, weights)",
            "(weights, weights)",
            "feynman_kac/test_gradients.py",
        ),
        (
            "pieces-of-rows-averaged",
            "split_rows(batch, rows)).sum(axis=0)",
            "split_rows(batch, rows)).mean(axis=0)",
            "training/test_memory.py::test_weights_and_gradients_are_the_same",
        ),
        (
            "gradient-of-few-not-averaged",
            "jnp.full(num, 1.0 / num, weights.dtype)",
            "jnp.ones(num, weights.dtype)",
            "feynman_kac/test_gradients.py",
        ),
        (
            "joint-gradient-of-phi-over-j",
            "shares / (scale * weights)[:, None]",
            "shares",
            "feynman_kac/test_gradients.py",
        ),
    ),
    *_in(
        "kernels/_hamiltonian.py",
        (
            "hamiltonian-comes-back-transposed",
            "(moved - whitened) @ factor.lower.T",
            "(moved - whitened) @ factor.lower",
            "statistical/test_kernels.py",
            "-kadapted_hamiltonian",
        ),
        (
            "hamiltonian-mass-inverted",
            "jnp.asarray(inverse_mass, phi.dtype)",
            "1.0 / jnp.asarray(inverse_mass, phi.dtype)",
            "statistical/test_kernels.py",
            "-khamiltonian",
        ),
    ),
    *_in(
        "kernels/_metropolis.py",
        (
            "metropolis-scale-without-dimension",
            "2.38 / jnp.sqrt(values.shape[1])",
            "2.38",
            "statistical/test_kernels.py",
            "-kadapted_metropolis",
        ),
        (
            "metropolis-proposes-transposed",
            "noise @ factor.T",
            "noise @ factor",
            "statistical/test_kernels.py",
            "-kadapted_metropolis",
        ),
    ),
    *_in(
        "kernels/_halves.py",
        (
            "steered-away",
            "other_scale + gain",
            "other_scale - gain",
            "statistical/test_kernels.py",
            "-kadapted_metropolis",
        ),
        (
            "half-learns-from-itself",
            "_factor(other, target.prior)",
            "_factor(mover, target.prior)",
            "kernels/test_kernels.py",
        ),
        (
            "pools-the-wrong-way-round",
            "for pool in pools]",
            "for pool in pools[::-1]]",
            "kernels/test_kernels.py",
        ),
        (
            "the-odd-one-out-has-weight",
            "jnp.append(log_weights, -jnp.inf)",
            "jnp.append(log_weights, log_weights[-1])",
            "kernels/test_kernels.py",
        ),
    ),
    *_in(
        "kernels/_transport.py",
        (
            "transport-without-forgetting",
            "(1.0 - rate) * jnp.eye(dim, dtype=values.dtype)",
            "jnp.eye(dim, dtype=values.dtype)",
            "algorithms/test_ohsmc.py::TestWithoutWeights::test_one_step",
        ),
        (
            "transport-without-the-prior",
            "rate * slopes.log_prior + slopes.log_potential",
            "slopes.log_potential",
            "algorithms/test_ohsmc.py::TestWithoutWeights::test_one_step",
        ),
        (
            "transport-moves-anomalies-by-the-whole-inverse",
            "factor = root @ factor",
            "factor = root @ root @ factor",
            "algorithms/test_ohsmc.py::TestWithoutWeights::test_one_step",
        ),
        (
            "transport-with-the-factor-transposed",
            "(standard.T @ gradient) @ factor.T",
            "(standard.T @ gradient) @ factor",
            "algorithms/test_ohsmc.py::TestWithoutWeights::test_one_step",
        ),
        (
            "transport-mirrors-nothing",
            "jax.random.rademacher(key, cloud.mean.shape, values.dtype)",
            "jnp.ones(cloud.mean.shape, values.dtype)",
            "statistical/test_transport.py::test_chance_correlations_average_out",
        ),
        (
            "transport-in-a-frame-twice-as-wide",
            "cloud = whiten(values)\n        return Frame(cloud.standard, cloud.factor)",
            "cloud = whiten(values)\n        return Frame(cloud.standard, 2.0 * cloud.factor)",
            "algorithms/test_ohsmc.py::TestWithoutWeights::test_one_step",
        ),
        (
            "transport-widens-by-two",
            "jnp.maximum(1.0 - rate, _LEAST_FACTOR)",
            "jnp.asarray(_LEAST_FACTOR)",
            "statistical/test_transport.py::test_negative_curvature_widens_the_cloud_by_no_more_than_forgetting_does",
        ),
    ),
    *_in(
        "kernels/_affine_langevin.py",
        (
            "affine-langevin-held-back-by-nothing",
            "_LONGEST / (curvature + tiny)",
            "1.0",
            "statistical/test_transport.py::test_langevin_holds_its_step_back_far_out",
        ),
        (
            "affine-langevin-noise-without-two",
            "jnp.sqrt(2.0 * length)",
            "jnp.sqrt(length)",
            "statistical/test_transport.py::test_affine_langevin_holds_a_linear_posterior",
        ),
        (
            "affine-langevin-without-the-divergence",
            "pulled + divergence * cloud.standard",
            "pulled",
            "statistical/test_transport.py::test_affine_langevin_holds_a_linear_posterior",
        ),
    ),
    *_in(
        "kernels/_forgetting.py",
        (
            "forgetting-keeps-the-mean",
            "(1.0 - rate) * share * moments.mean",
            "share * moments.mean",
            "statistical/test_forgetting.py::test_moments_after_one_step",
        ),
        (
            "forgetting-turns-the-wrong-way",
            "moved @ axes.T",
            "moved @ axes",
            "statistical/test_forgetting.py::test_moments_after_one_step",
        ),
    ),
    *_in(
        "kernels/_langevin.py",
        (
            "guided-correction-without-half",
            "/ 8.0",
            "/ 4.0",
            "statistical/test_kalman.py",
            "-kguided",
            "-mslow",
        ),
        (
            "langevin-drift-without-half",
            "0.5 * spread * jax.grad",
            "spread * jax.grad",
            "statistical/test_kernels.py",
            "-kunadjusted",
        ),
        (
            "mala-variance-doubled",
            "0.5 * jnp.asarray(variance",
            "jnp.asarray(variance",
            "kernels/test_kernels.py::test_a_langevin_step_on_a_slope_has_half_its_variance_as_drift",
        ),
    ),
    *_in(
        "kernels/_from_mcmc.py",
        (
            "lift-moves-once",
            "jax.random.split(key, num_steps))",
            "jax.random.split(key, 1))",
            "kernels/test_kernels.py::test_a_kernel_of_one_particle_is_applied_as_often_as_asked",
        ),
    ),
    *_in(
        "kernels/_ornstein_uhlenbeck.py",
        (
            "ornstein-uhlenbeck-decays-twice-as-fast",
            "-0.5 * time / variance",
            "-time / variance",
            "statistical/test_kernels.py",
            "-kornstein",
        ),
    ),
    *_in(
        "kernels/_pcn.py",
        (
            "pcn-shrinks-by-the-variance",
            "jnp.sqrt(1.0 - renewed)",
            "(1.0 - renewed)",
            "statistical/test_kernels.py",
            "-kpcn",
        ),
    ),
    *_in(
        "kernels/_random_walk.py",
        (
            "random-walk-by-the-variance",
            "jnp.sqrt(jnp.asarray(variance, values.dtype))",
            "jnp.asarray(variance, values.dtype)",
            "statistical/test_kernels.py",
            "-krandom_walk_adds",
        ),
    ),
    *_in(
        "feynman_kac/_random.py",
        (
            "antithetic-pairs-are-copies",
            "[1.0, -1.0]",
            "[1.0, 1.0]",
            "feynman_kac/test_random.py",
        ),
    ),
    *_in(
        "algorithms/_ohsmc.py",
        (
            "ohsmc-gradient-of-the-resampled-weights",
            "gradient(jnp.exp(particles.log_weights))",
            "gradient(jnp.exp(resampled.log_weights))",
            "algorithms/test_ohsmc.py::test_psi_climbs_the_gradient_at_the_new_weights",
        ),
        (
            "ohsmc-target-without-prior",
            "model.log_prior(phi, psi) + batch.scale * log_potential(phi)",
            "batch.scale * log_potential(phi)",
            "algorithms/test_ohsmc.py::test_the_kernel_is_shown_the_likelihood_to_the_power_of_the_scale_and_the_prior",
        ),
        (
            "ohsmc-target-without-n-over-m",
            "model.log_prior(phi, psi) + batch.scale * log_potential(phi)",
            "model.log_prior(phi, psi) + log_potential(phi)",
            "algorithms/test_ohsmc.py::test_the_kernel_is_shown_the_likelihood_to_the_power_of_the_scale_and_the_prior",
        ),
        (
            "ohsmc-learns-as-if-the-batch-were-unseen",
            "potentials = (1.0 - kept) * log_likelihoods",
            "potentials = 0.0 * log_likelihoods",
            "statistical/test_transport.py::test_psi_is_learned_at_the_maximum_of_the_evidence",
        ),
        (
            "ohsmc-goes-on-with-uneven-weights",
            "particles = equally_weighted(particles)",
            "particles = particles",
            "algorithms/test_ohsmc.py::TestWithoutWeights::test_goes_on_from_weighted_particles_with_equal_ones",
        ),
        (
            "ohsmc-drops-the-correction",
            "log_likelihoods + moved.log_correction",
            "log_likelihoods",
            "statistical/test_kalman.py",
            "-kguided",
            "-mslow",
        ),
        (
            "ohsmc-weighs-the-particles-before-the-move",
            "one_pass(model, moved.values, psi, batch)",
            "one_pass(model, resampled.values, psi, batch)",
            "statistical/test_kalman.py",
        ),
        (
            "ohsmc-forgets-everything",
            "model.prior_moments(psi), 1.0 / batch.scale",
            "model.prior_moments(psi), jnp.ones_like(batch.scale)",
            "statistical/test_forgetting.py",
        ),
    ),
    *_in(
        "algorithms/_smc.py",
        (
            "smc-gradient-without-n-over-m",
            "lambda leaf: batch.scale * leaf",
            "lambda leaf: leaf",
            "statistical/test_smc.py::test_fisher_gradient_points_where_the_exact_one_does",
            "statistical/test_smc.py::test_padding_changes_nothing",
        ),
        (
            "smc-likelihood-scaled-twice",
            "batch._replace(scale=jnp.ones_like(batch.scale))",
            "batch",
            "statistical/test_smc.py::test_fisher_gradient_points_where_the_exact_one_does",
            "statistical/test_smc.py::test_padding_changes_nothing",
        ),
        (
            "smc-posterior-with-the-next-psi",
            "Posterior(psi, cloud.particles)",
            "Posterior(new_psi, cloud.particles)",
            "algorithms/test_smc.py::test_the_posterior_has_the_psi_its_particles_were_drawn_for",
        ),
    ),
    *_in(
        "algorithms/_backward_ohsmc.py",
        (
            "backward-densities-not-resampled",
            "state.log_targets[ancestors]",
            "state.log_targets",
            "statistical/test_backward_ohsmc.py",
        ),
        (
            "backward-warm-up-a-step-late",
            "steps / num_warmup",
            "state.steps / num_warmup",
            "algorithms/test_ohsmc.py::test_the_power_of_the_likelihood_rises_from_the_first_step",
        ),
    ),
    *_in(
        "algorithms/_poisson_ohsmc.py",
        (
            "poisson-constant-forgotten",
            "jnp.exp(log_intensity) - log_c",
            "jnp.exp(log_intensity)",
            "statistical/test_poisson_ohsmc.py",
        ),
        (
            "poisson-subset-not-scaled",
            "batch.scale * counting / jnp.minimum(counting, size)",
            "batch.scale",
            "statistical/test_poisson_ohsmc.py",
        ),
    ),
    *_in(
        "algorithms/_ekf.py",
        (
            "ekf-evidence-without-half",
            "value + 0.5 * pulled @ pulled",
            "value + pulled @ pulled",
            "algorithms/test_ekf.py",
        ),
        (
            "ekf-ignores-the-mask",
            "jnp.where(batch.mask[:, None, None], curvature, 0.0)",
            "curvature",
            "algorithms/test_ekf.py",
        ),
        (
            "ekf-gradient-summed",
            "jnp.full(num_particles, 1.0 / num_particles, values.dtype)",
            "jnp.ones(num_particles, values.dtype)",
            "algorithms/test_ekf.py",
        ),
    ),
    *_in(
        "algorithms/_map.py",
        (
            "map-prior-times-n-over-m",
            "batch.scale * log_likelihood + model.log_prior(params.phi, params.psi)",
            "batch.scale * (log_likelihood + model.log_prior(params.phi, params.psi))",
            "algorithms/test_map.py::test_the_scale_of_a_batch_is_that_of_the_likelihood_alone",
        ),
        (
            "map-without-prior",
            "batch.scale * log_likelihood + model.log_prior(params.phi, params.psi)",
            "batch.scale * log_likelihood",
            "algorithms/test_contract.py",
            "algorithms/test_swag.py",
            "-kmap or swag",
        ),
    ),
    *_in(
        "algorithms/_monte_carlo.py",
        (
            "monte-carlo-without-n-over-m",
            "batch.scale * terms",
            "terms",
            "algorithms/test_monte_carlo.py::test_the_likelihood_is_raised_to_the_scale_of_the_batch",
        ),
        (
            "monte-carlo-sum-for-mean",
            " - math.log(log_likelihoods.shape[0])",
            "",
            "algorithms/test_monte_carlo.py",
        ),
    ),
    *_in(
        "algorithms/_combinators.py",
        (
            "ensemble-weights-sum-to-k",
            "log_weights - math.log(num_members)",
            "log_weights",
            "algorithms/test_ensemble.py",
        ),
        (
            "ensemble-tells-of-the-first-member",
            "values.mean(axis=0)",
            "values[0]",
            "algorithms/test_ensemble.py",
        ),
        (
            "third-stage-from-the-first",
            "posterior, before = trainer.finish",
            "_, before = trainer.finish",
            "training/test_second_stage.py",
        ),
        (
            "share-of-a-member-forgotten",
            "log_weights + share",
            "log_weights",
            "training/test_second_stage.py",
        ),
    ),
    *_in(
        "algorithms/_swag.py",
        (
            "swag-low-rank-without-half",
            "math.sqrt(0.5) * (draws",
            "(draws",
            "algorithms/test_swag.py",
        ),
        (
            "swag-columns-from-the-old-mean",
            "flatten(params) - flatten(mean)",
            "flatten(params) - flatten(state.mean)",
            "algorithms/test_swag.py",
        ),
        (
            "swag-restarts-from-the-unweighted-mean",
            "weighted_mean(particles)",
            "particles.values.mean(axis=0)",
            "algorithms/test_swag.py::test_it_goes_on_from_the_weighted_mean",
        ),
    ),
    *_in(
        "algorithms/_common.py",
        (
            "snapshot-before-the-warm-up-is-over",
            "steps > delay",
            "steps >= delay",
            "algorithms/test_langevin.py",
            "algorithms/test_swag.py",
        ),
    ),
    *_in(
        "algorithms/_variational.py",
        (
            "vb-prior-times-n-over-m",
            "batch.scale * log_likelihoods + log_priors - log_q",
            "batch.scale * (log_likelihoods + log_priors) - log_q",
            "algorithms/test_variational.py::test_the_scale_of_a_batch_is_that_of_the_likelihood_alone",
        ),
        (
            "vb-without-entropy",
            "+ log_priors - log_q",
            "+ log_priors",
            "algorithms/test_variational.py",
        ),
        (
            "vb-draws-transposed",
            "noise @ q.factor().T",
            "noise @ q.factor()",
            "algorithms/test_variational.py",
        ),
    ),
    *_in(
        "algorithms/_langevin.py",
        (
            "sgld-keeps-the-point-before",
            "jnp.where(due, moved,",
            "jnp.where(due, phi,",
            "algorithms/test_langevin.py",
        ),
        (
            "sgld-empty-places-count",
            "jnp.clip(state.collected, 1, num_particles)",
            "jnp.asarray(num_particles)",
            "algorithms/test_langevin.py",
        ),
        (
            "langevin-noise-of-half-the-variance",
            "jnp.sqrt(2.0 * h)",
            "jnp.sqrt(h)",
            "statistical/test_langevin.py",
        ),
        (
            "sghmc-without-friction-of-the-momentum",
            "(1.0 - friction) * momentum",
            "momentum",
            "statistical/test_langevin.py",
        ),
    ),
    *_in(
        "algorithms/_particle_gradient.py",
        (
            "affine-langevin-without-its-correction",
            "(dim + 1) / num_particles * anomalies",
            "0.0 * anomalies",
            "statistical/test_particle_gradient.py",
        ),
        (
            "affine-langevin-with-the-noise-of-a-small-step",
            "rate * (2.0 - rate)",
            "rate * 2.0",
            "statistical/test_particle_gradient.py",
        ),
        (
            "particles-with-fresh-noise-alone",
            "(noise + state.noise) / 2.0",
            "noise",
            "statistical/test_particle_gradient.py",
        ),
    ),
    *_in(
        "feynman_kac/_gradients.py",
        (
            "rows-of-their-own-from-the-padding",
            "counted[places % num_rows]",
            "shuffled[places % num_rows]",
            "algorithms/test_particle_gradient.py",
        ),
    ),
    *_in(
        "algorithms/_path.py",
        (
            "ring-of-snapshots-one-too-long",
            "state.collected % (num_members - 1)",
            "state.collected % num_members",
            "algorithms/test_path.py",
        ),
        (
            "snapshots-that-were-never-taken",
            "jnp.where(there, ring, last[None])",
            "ring",
            "algorithms/test_path.py",
        ),
    ),
    *_in(
        "algorithms/_weight_prior.py",
        (
            "prior-of-psi-without-the-fan-in",
            "(fan_ins[path] / scale**2)",
            "(1.0 / scale**2)",
            "training/test_held_out.py",
        ),
    ),
    *_in(
        "training/_held_out.py",
        (
            "noise-of-the-training-rows",
            "chosen, posterior = ends[best]",
            "chosen, posterior = model, runs[best].posterior",
            "training/test_held_out.py",
        ),
    ),
    *_in(
        "networks/_factors.py",
        (
            "low-rank-product-of-no-scale",
            "scale = 1.0 / math.sqrt(first.size)",
            "scale = 1.0",
            "networks/test_factors.py",
        ),
        (
            "factors-of-groups-in-the-wrong-order",
            "jnp.tile(factor, groups)",
            "jnp.repeat(factor, groups)",
            "networks/test_factors.py",
        ),
    ),
    *_in(
        "algorithms/_svgd.py",
        (
            "svgd-attracts",
            "gradients + repulsion",
            "gradients - repulsion",
            "algorithms/test_svgd.py",
        ),
        (
            "svgd-width-without-logarithm",
            "median / np.log(num_particles)",
            "median",
            "algorithms/test_svgd.py",
        ),
    ),
    *_in(
        "training/_second_stage.py",
        (
            "continued-on-the-first-batch-only",
            "draw, key, batch, *carry, step)",
            "draw, key, batch, *carry, 0 * step)",
            "training/test_second_stage.py::test_a_trainer_that_goes_on_sees_every_row_once_an_epoch",
        ),
    ),
    *_in(
        "samplers/_chains.py",
        (
            "chains-start-anywhere",
            "jax.random.categorical(key_choice, log_weights, shape=(num,))",
            "jax.random.randint(key_choice, (num,), 0, values.shape[0])",
            "samplers/test_samplers.py::test_chains_start_at_particles_drawn_by_weight",
        ),
        (
            "thinning-keeps-the-first-draws",
            "np.arange(num) * flat.shape[0] // num",
            "np.arange(num)",
            "samplers/test_samplers.py::test_the_draws_that_are_kept_are_spread_over_all_chains",
        ),
        (
            "r-hat-of-whole-chains",
            "chains[:, : 2 * half].reshape(2 * num_chains, half, dim)",
            "chains",
            "samplers/test_samplers.py::test_report_against_an_autoregression",
        ),
    ),
    *_in(
        "samplers/_hmc.py",
        (
            "hmc-of-one-leapfrog-step",
            '"num_integration_steps": num_leapfrog_steps',
            '"num_integration_steps": 1',
            "samplers/test_samplers.py",
            "-khmc",
        ),
    ),
    *_in(
        "samplers/_nuts.py",
        (
            "nuts-counts-mixed-up",
            "ChainLength(num_chains, num_warmup, num_draws, num_particles)",
            "ChainLength(num_chains, num_draws, num_warmup, num_particles)",
            "samplers/test_samplers.py::test_there_may_be_as_many_particles_as_draws_and_no_more",
        ),
    ),
    *_in(
        "samplers/_laplace.py",
        (
            "laplace-evidence-without-half",
            "0.5 * dim * jnp.log",
            "dim * jnp.log",
            "samplers/test_samplers.py",
            "-klaplace",
        ),
        (
            "laplace-covariance-is-the-precision",
            "noise / jnp.sqrt(kept)",
            "noise * jnp.sqrt(kept)",
            "samplers/test_samplers.py",
            "-klaplace",
        ),
        (
            "laplace-turns-the-wrong-way",
            "offsets @ directions.T",
            "offsets @ directions",
            "samplers/test_samplers.py",
            "-klaplace",
        ),
        (
            "laplace-ignores-the-mask",
            "jnp.where(batch.mask, log_densities, 0.0).sum()",
            "log_densities.sum()",
            "samplers/test_samplers.py::test_rows_that_do_not_count_have_no_curvature",
        ),
    ),
    *_in(
        "samplers/_target.py",
        (
            "sampled-density-without-prior",
            "model.log_prior(phi, psi) + ",
            "",
            "samplers/test_samplers.py",
        ),
    ),
    *_in(
        "samplers/_tempered_smc.py",
        (
            "variance-for-standard-error",
            "jnp.sqrt(jnp.maximum(variance, 0.0))",
            "jnp.maximum(variance, 0.0)",
            "statistical/test_refine.py",
        ),
        (
            "shortfall-of-all-the-weights",
            "(known - typical) / model.split.dim",
            "known - typical",
            "statistical/test_refine.py",
        ),
    ),
    *_in(
        "samplers/_importance.py",
        (
            "importance-weights-summed",
            "Particles(values, uniform_log_weights(num_particles))",
            "Particles(values, jnp.zeros(num_particles))",
            "samplers/test_samplers.py::test_likelihood_weighting_is_unbiased",
        ),
    ),
    *_in(
        "likelihoods/_common.py",
        (
            "missing-entries-count",
            "jnp.where(observed, entries(parameters, targets), 0.0)",
            "entries(parameters, targets)",
            "likelihoods/test_likelihoods.py",
        ),
    ),
    *_in(
        "likelihoods/_gaussian.py",
        (
            "gaussian-constant-without-half",
            "- 0.5 * jnp.log(2.0 * jnp.pi",
            "- jnp.log(2.0 * jnp.pi",
            "likelihoods/test_likelihoods.py",
        ),
        (
            "gaussian-noise-by-the-variance",
            "jnp.sqrt(parameters.variance) * noise",
            "parameters.variance * noise",
            "likelihoods/test_likelihoods.py",
        ),
    ),
    *_in(
        "likelihoods/_discrete.py",
        (
            "bernoulli-classes-swapped",
            "[-logits, logits]",
            "[logits, -logits]",
            "prediction/test_predictive.py",
            "prediction/test_predict.py",
        ),
        (
            "poisson-cdf-off-by-one",
            "jnp.maximum(counts, 0.0) + 1.0",
            "jnp.maximum(counts, 0.0)",
            "prediction/test_predictive.py",
        ),
    ),
    *_in(
        "likelihoods/_multivariate.py",
        (
            "correlated-noise-transposed",
            "cholesky(parameters.covariance).T",
            "cholesky(parameters.covariance)",
            "likelihoods/test_likelihoods.py",
        ),
        (
            "missing-entries-in-the-constant",
            "0.5 * observed.sum(axis=1)",
            "0.5 * observed.shape[1]",
            "likelihoods/test_likelihoods.py",
        ),
    ),
    *_in(
        "likelihoods/_student_t.py",
        (
            "student-t-variance-of-the-scale",
            "jnp.square(parameters.scale) * factor",
            "parameters.scale * factor",
            "likelihoods/test_likelihoods.py",
        ),
    ),
    *_in(
        "parameters.py",
        (
            "covariance-without-the-exponential",
            "jnp.diag(jnp.exp(diagonal))",
            "jnp.diag(diagonal)",
            "likelihoods/test_likelihoods.py",
        ),
    ),
    *_in(
        "priors/_priors.py",
        (
            "prior-without-log-scale",
            "((phi - center) / spread) - jnp.log(spread)",
            "((phi - center) / spread)",
            "priors/test_priors.py",
        ),
        (
            "inverse-gamma-without-jacobian",
            "constant - shape * phi",
            "constant - (shape + 1.0) * phi",
            "priors/test_priors.py",
        ),
        (
            "laplace-variance-of-one",
            "jax.random.laplace, 2.0",
            "jax.random.laplace, 1.0",
            "priors/test_priors.py",
        ),
    ),
    *_in(
        "priors/_scales.py",
        (
            "scale-by-fan-in-without-root",
            "np.sqrt(_per_weight(split, lambda leaf: float(leaf.fan_in)))",
            "_per_weight(split, lambda leaf: float(leaf.fan_in))",
            "priors/test_priors.py",
        ),
    ),
    *_in(
        "model/_partial_bnn.py",
        (
            "likelihood-ignores-the-mask",
            "jnp.where(rows.mask, values, 0.0)",
            "values",
            "feynman_kac/test_gradients.py",
            "test_annealing.py",
        ),
        (
            "chunks-mixed-up",
            "Chunks(particles, rows)",
            "Chunks(rows, particles)",
            "training/test_memory.py",
        ),
    ),
    *_in(
        "model/_split.py",
        (
            "merge-by-the-inverse-order",
            "np.argsort(np.concatenate([np.flatnonzero(part) for part, _ in pieces]))",
            "np.concatenate([np.flatnonzero(part) for part, _ in pieces])",
            "subsets/test_subsets.py",
        ),
        (
            "fan-in-over-the-first-axis",
            "max(shape[output_axis], 1)",
            "max(shape[0], 1)",
            "priors/test_priors.py",
            "networks/test_networks.py",
        ),
    ),
    *_in(
        "subsets/_select.py",
        (
            "largest-are-the-smallest",
            "-np.where(allowed, flat, -np.inf)",
            "np.where(allowed, flat, np.inf)",
            "subsets/test_subsets.py",
        ),
        (
            "layers-in-alphabetical-order",
            "sorted(leaves, key=lambda leaf: leaf.position)",
            "leaves",
            "subsets/test_subsets.py",
        ),
    ),
    *_in(
        "subsets/_ranking.py",
        (
            "gradient-variance-not-centered",
            "s + (g - m) * (g - n)",
            "s + g * g",
            "subsets/test_subsets.py::test_a_gradient_that_is_large_but_the_same_for_all_examples_does_not_vary",
        ),
    ),
    *_in(
        "_engine/epochs.py",
        (
            "scale-of-batches-taken-for-equal",
            "rows.astype(data.scale.dtype) / size.astype(data.scale.dtype)",
            "jnp.asarray(batches, data.scale.dtype)",
            "_engine/test_epochs.py",
        ),
        (
            "batches-overlap",
            "index * short + jnp.minimum(index, longer)",
            "index * short",
            "_engine/test_epochs.py",
        ),
        (
            "padding-of-a-batch-counts",
            "(places < size) & data.mask[chosen]",
            "data.mask[chosen]",
            "_engine/test_epochs.py",
        ),
    ),
    *_in(
        "model/_batch.py",
        (
            "padding-of-a-piece-counts",
            "jnp.pad(batch.mask, (0, count * size - rows))",
            'jnp.pad(batch.mask, (0, count * size - rows), mode="edge")',
            "training/test_memory.py",
        ),
    ),
    *_in(
        "prediction/_components.py",
        (
            "padding-of-a-chunk-has-weight",
            "constant_values=-jnp.inf",
            "constant_values=0.0",
            "prediction/test_predict.py",
        ),
    ),
    *_in(
        "prediction/_mixture.py",
        (
            "merged-variance-without-weight",
            "jnp.square(gap) * a.weight * share",
            "jnp.square(gap) * share",
            "prediction/test_predict.py",
        ),
        (
            "predictive-density-unweighted",
            "log_densities + log_weights[:, None]",
            "log_densities - jnp.log(log_weights.shape[0])",
            "prediction/test_predict.py",
        ),
        (
            "mutual-information-the-other-way",
            "rel_entr(each, mixed[None])",
            "rel_entr(mixed[None], each)",
            "prediction/test_predictive.py",
        ),
        (
            "predictive-draws-unweighted",
            "jax.random.categorical(key_component, log_weights.ravel(), shape=(num,))",
            "jax.random.randint(key_component, (num,), 0, log_weights.size)",
            "prediction/test_predictive.py",
        ),
        (
            "even-draws-whatever-the-weights",
            "stratified_indices(key_component, weights, num)",
            "jnp.arange(num) % weights.shape[0]",
            "metrics/test_metrics.py",
        ),
    ),
    *_in(
        "prediction/_predictive.py",
        (
            "density-with-the-inverse-jacobian",
            "np.asarray(values) - shift",
            "np.asarray(values) + shift",
            "prediction/test_predictive.py",
        ),
        (
            "variance-in-units-of-the-scale",
            "self._stretch(self._cut(self._moments.variance), 2)",
            "self._stretch(self._cut(self._moments.variance), 1)",
            "prediction/test_predictive.py",
        ),
        (
            "interval-of-both-tails",
            "[0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage]",
            "[1.0 - coverage, coverage]",
            "prediction/test_predictive.py",
        ),
    ),
    *_in(
        "metrics/_calibration.py",
        (
            "bins-open-above",
            "jnp.searchsorted(edges, probability)",
            'jnp.searchsorted(edges, probability, side="right")',
            "metrics/test_metrics.py",
        ),
    ),
    *_in(
        "metrics/_crps.py",
        (
            "crps-without-half",
            "to_target - 0.5 * jnp",
            "to_target - jnp",
            "metrics/test_metrics.py",
        ),
    ),
    *_in(
        "metrics/_regression.py",
        (
            "ends-of-intervals-excluded",
            "(low <= targets) & (targets <= high)",
            "(low < targets) & (targets < high)",
            "metrics/test_metrics.py",
        ),
    ),
    *_in(
        "metrics/_evaluate.py",
        (
            "scores-of-particles-unweighted",
            "jnp.exp(log_weights) @ scores",
            "scores.mean()",
            "metrics/test_metrics.py",
        ),
    ),
    *_in(
        "_engine/compiled.py",
        (
            "last-posterior-for-the-best",
            "best=jax.tree.map(partial(jnp.where, better), posterior, carry.best)",
            "best=posterior",
            "training/test_fit.py",
        ),
        (
            "validation-ignores-the-mask",
            "jnp.where(validation.mask, log_densities, 0.0).sum() / validation.mask.sum()",
            "log_densities.mean()",
            "training/test_fit.py::test_validation_rows_that_do_not_count_are_not_scored",
        ),
        (
            "diverged-a-step-earlier",
            "jnp.where(failed, step + 1, carry.bad_step)",
            "jnp.where(failed, step, carry.bad_step)",
            "training/test_fit.py",
        ),
        (
            "patience-ends-early",
            "waited >= plan.patience * plan.evaluate_every",
            "waited + plan.evaluate_every >= plan.patience * plan.evaluate_every",
            "training/test_fit.py::test_an_improvement_on_the_last_evaluation_of_patience_counts",
        ),
        (
            "every-step-with-the-same-key",
            "stream_key(key, Stream.STEP, step)",
            "stream_key(key, Stream.STEP)",
            "_engine/test_sources.py",
        ),
    ),
    *_in(
        "_engine/settling.py",
        (
            "settled-while-the-loss-falls",
            "(change <= until.tolerance + 2.0 * error)",
            "jnp.ones((), bool)",
            "_engine/test_settling.py",
        ),
        (
            "settled-while-the-cloud-moves",
            "& is_still(before.values.mean, now.values.mean, fluctuations.mean)",
            "",
            "_engine/test_settling.py",
        ),
    ),
    *_in(
        "_engine/monitor.py",
        (
            "collapse-warned-of-again-and-again",
            "        if not self._has_warned:\n            self",
            "        if True:\n            self",
            "training/test_diagnostics.py::test_a_run_warns_once_in_however_many_pieces",
        ),
        (
            "history-with-the-bad-step",
            "result(self._job, carry, bad_step - 1)",
            "result(self._job, carry, bad_step)",
            "training/test_fit.py::test_nan_stops_the_run_naming_the_step_and_keeps_the_best",
        ),
    ),
    *_in(
        "_engine/diagnostics.py",
        (
            "one-bad-step-is-a-collapse",
            "np.all(~(recent >= bound))",
            "np.any(~(recent >= bound))",
            "training/test_diagnostics.py",
        ),
    ),
    *_in(
        "training/_fit_many.py",
        (
            "runs-end-with-the-longest",
            "min(trained.done, last_step(job.plan, own))",
            "trained.done",
            "training/test_fit_many.py",
        ),
    ),
    *_in(
        "_engine/host.py",
        (
            "interrupted-run-not-saved",
            "        if done < job.plan.num_steps:\n            checkpoint.save(carry, done)\n",
            "",
            "_engine/test_checkpoints.py",
        ),
    ),
    *_in(
        "_engine/checkpoints.py",
        (
            "resumed-a-step-later",
            "        return step\n",
            "        return step + 1\n",
            "_engine/test_checkpoints.py::test_resumed_run_is_bit_identical",
        ),
    ),
    *_in(
        "_engine/identity.py",
        (
            "resumed-with-other-data",
            '"data": source.identity,',
            '"data": None,',
            "_engine/test_checkpoints.py::test_wrong_run_on_resume",
        ),
        (
            "resumed-with-another-algorithm",
            '"step": _digest_of_step(program, first, one_rows),',
            '"step": None,',
            "_engine/test_checkpoints.py::test_wrong_run_on_resume",
        ),
    ),
    *_in(
        "io/_pytree_file.py",
        (
            "checksum-of-names-and-shapes",
            "        digest.update(array.reshape(-1).view(np.uint8).data)\n",
            "",
            "_engine/test_checkpoints.py::test_damaged_and_foreign_files",
        ),
    ),
    *_in(
        "callbacks.py",
        (
            "log-loses-a-line-on-resume",
            "step > done",
            "step >= done",
            "_engine/test_checkpoints.py::test_logs_follow_the_run_and_its_resumption",
        ),
    ),
    *_in(
        "_engine/sources.py",
        (
            "every-epoch-in-the-same-order",
            "stream_key(key, Stream.ORDER, epoch)",
            "stream_key(key, Stream.ORDER)",
            "training/test_fit.py::test_epochs_go_through_all_rows_in_orders_of_their_own",
        ),
        (
            "replays-with-replacement",
            "order[places % present]",
            "jax.random.randint(jax.random.fold_in(key, step), places.shape, 0, present)",
            "test_online.py::test_replays_are_slices_of_one_permutation",
        ),
        (
            "scale-of-a-short-batch",
            "source.num_rows / rows",
            "source.num_rows / source.batch_size",
            "_engine/test_sources.py",
        ),
        (
            "stream-resumed-a-batch-early",
            "number > skip",
            "number >= skip",
            "_engine/test_sources.py",
        ),
    ),
    *_in(
        "online.py",
        (
            "stream-as-large-as-its-memory",
            "filled = present.astype(memory.scale.dtype)",
            "filled = jnp.asarray(capacity, memory.scale.dtype)",
            "test_online.py::test_rows_stand_for_all_that_are_in_memory_and_for_no_more",
        ),
        (
            "new-rows-with-a-scale-of-one",
            "scale=filled / arrived.astype(filled.dtype)",
            "scale=jnp.ones_like(filled)",
            "test_online.py::test_rows_stand_for_all_that_are_in_memory_and_for_no_more",
        ),
        (
            "stream-forgets-while-it-fills",
            "(held + arrived - present).astype(filled.dtype)",
            "arrived.astype(filled.dtype)",
            "test_online.py::test_rows_stand_for_all_that_are_in_memory_and_for_no_more",
        ),
        (
            "new-rows-one-place-further",
            "jnp.cumsum(new.mask) - 1",
            "jnp.cumsum(new.mask)",
            "test_online.py",
        ),
    ),
    *_in(
        "networks/_table_mlp.py",
        (
            "edges-and-gate-trained",
            'jax.lax.stop_gradient((embedding["edges"], embedding["gate"]))',
            '(embedding["edges"], embedding["gate"])',
            "networks/test_table_mlp.py::test_gate_and_edges_are_not_trained_and_the_gate_shuts",
        ),
    ),
    *_in(
        "algorithms/_shared_ensemble.py",
        (
            "members-with-a-share-of-their-gradient",
            "values=num_particles * gradient.values",
            "values=gradient.values",
            "algorithms/test_shared_ensemble.py",
        ),
        (
            "posterior-not-averaged",
            "values, psi = state.average",
            "values, psi = state.members",
            "algorithms/test_shared_ensemble.py::test_the_posterior_is_that_of_the_running_average",
        ),
    ),
    *_in(
        "likelihoods/_calibrated.py",
        (
            "calibration-trained",
            'jax.lax.stop_gradient(learned["calibration"])',
            'learned["calibration"]',
            "prediction/test_calibrate.py::test_training_leaves_the_numbers_alone",
        ),
    ),
    *_in(
        "prediction/_conformal.py",
        (
            "interval-one-row-narrower",
            "np.partition(middle + reach, count - place, axis=0)[count - place]",
            "np.partition(middle + reach, count - place - 1, axis=0)[count - place - 1]",
            "prediction/test_calibrate.py::test_coverage_is_exact_on_exchangeable_rows",
        ),
    ),
    *_in(
        "estimators/_base.py",
        (
            "scales-of-held-out-rows-too",
            "self._set_scales(inputs[train], targets[train])",
            "self._set_scales(inputs, targets)",
            "estimators/test_estimators.py::test_scales_are_those_of_the_training_rows_alone",
        ),
        (
            "functions-drawn-unweighted",
            "p=weights / weights.sum()",
            "p=None",
            "estimators/test_estimators.py::test_functions_are_drawn_by_weight",
        ),
    ),
    *_in(
        "io/_model_folder.py",
        (
            "target-scale-not-loaded",
            'target_scale=target_scale_of(folder, under(arrays, "target_scale"))',
            "target_scale=None",
            "io/test_model_folder.py::test_ensemble_history_and_target_scale",
        ),
    ),
    *_in(
        "analysis/_refine.py",
        (
            "gain-with-the-wrong-sign",
            "gain = given - new",
            "gain = new - given",
            "statistical/test_refine.py::test_the_discrepancy_tells_a_right_posterior_from_a_wrong_one",
        ),
        (
            "discrepancy-of-the-noise-alone",
            "before.variance - after.variance",
            "before.aleatoric_variance - after.aleatoric_variance",
            "statistical/test_refine.py::test_the_discrepancy_tells_a_right_posterior_from_a_wrong_one",
        ),
    ),
    *_in(
        "analysis/_advise.py",
        (
            "error-of-unpaired-differences",
            "gaps.std(axis=1, ddof=1)",
            "losses.std(axis=1, ddof=1)",
            "analysis/test_advise.py::test_the_error_of_a_gap_is_that_of_the_differences_row_by_row",
        ),
        (
            "advice-trains-on-held-out-rows",
            "take_rows(order[held_out:])",
            "take_rows(order)",
            "analysis/test_advise.py::test_held_out_rows_are_not_trained_on",
        ),
    ),
    *_in(
        "prediction/_target_scale.py",
        (
            "one-scale-for-all-outputs",
            "np.nanstd(relative, axis=0)",
            "np.nanstd(relative)",
            "prediction/test_predictive.py::test_target_scale_of_training_targets",
        ),
        (
            "constant-target-divided-by-zero",
            "np.where(spread > 0, spread, 1.0)",
            "spread",
            "prediction/test_predictive.py::test_target_scale_of_training_targets",
        ),
    ),
    *_in(
        "parallel/_sharding.py",
        (
            "log-weights-divided-over-devices",
            "if even else _spec(), _spec())",
            "if even else _spec(), _spec(PARTICLE))",
            "parallel/test_mesh.py::test_four_devices_give_what_one_gives_and_send_what_the_formula_says",
        ),
    ),
    *_in(
        "parallel/_mesh.py",
        (
            "mesh-axes-swapped",
            "reshape(particle, data, psi)",
            "reshape(data, particle, psi)",
            "parallel/test_mesh.py::test_four_devices_give_what_one_gives_and_send_what_the_formula_says",
        ),
    ),
    *_in(
        "estimators/_encode.py",
        (
            "gaps-looked-for-after-filling",
            "gap = np.isnan(values)\n",
            "gap = np.isnan(np.where(np.isnan(values), column.fill, values))\n",
            "estimators/test_schema.py::test_gaps_are_filled_by_the_median_and_a_column_says_where",
        ),
    ),
    *_in(
        "estimators/_learn.py",
        (
            "gaps-filled-by-the-mean",
            "np.nanmedian(values)",
            "np.nanmean(values)",
            "estimators/test_schema.py::test_gaps_are_filled_by_the_median_and_a_column_says_where",
        ),
    ),
    *_in(
        "_utils/atomic.py",
        (
            "a-link-is-replaced-by-a-file",
            "target = Path(os.path.realpath(path))",
            "target = path",
            "_engine/test_checkpoints.py::test_a_link_to_a_checkpoint_stays_one_and_nothing_else_is_removed",
        ),
    ),
    *_in(
        "_engine/interrupts.py",
        (
            "an-interrupt-noted-outside-is-not-passed-on",
            "self.noted, outer.noted = True, False",
            "pass",
            "_engine/test_interrupts.py::test_what_was_noted_outside_ends_the_run_inside_and_is_raised_once",
        ),
    ),
    *_in(
        "estimators/_persistence.py",
        (
            "negative-conformal-scores-are-loaded",
            "not (scores >= 0.0).all() or ",
            "",
            "estimators/test_out_of_fold.py::test_what_was_altered_is_refused",
        ),
    ),
    *_in(
        "analysis/_arviz.py",
        (
            "draws-of-the-first-member-only",
            "reshape(-1, values.shape[-1])[flat]",
            "reshape(-1, values.shape[-1])[flat % posterior.num_particles]",
            "analysis/test_arviz.py",
        ),
    ),
    *_in(
        "../../reproduction/tables/aggregate.py",
        (
            "spread-for-standard-error",
            "stdev(differences) / math.sqrt(count)",
            "stdev(differences)",
            "../reproduction/tests/test_tables.py",
        ),
    ),
]


def copied(folder: Path) -> Path:
    """Copy what the tests need to a folder, and return it."""
    for name in _COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, target)
    return folder


def run(tree: Path, arguments: list[str], limit: float) -> tuple[int | None, str]:
    """Return pytest's exit code (None where time ran out), and what it said."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-n0"]
    with subprocess.Popen(
        [*command, "-p", "no:cacheprovider", *arguments],
        cwd=tree,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},  # two changes of a file within a second
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            said, _ = started.communicate(timeout=limit)
            return started.returncode, said
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            with suppress(ProcessLookupError):  # it, or what its tests have left
                os.killpg(started.pid, signal.SIGKILL)


def outcome(tree: Path, mutation: Mutation, limit: float) -> dict[str, object]:
    """Apply a mutation, run its tests, take it back, and tell what happened."""
    path = tree / PACKAGE / mutation.file
    text, begin = path.read_text(), time.perf_counter()
    path.write_text(mutation.applied(text))
    try:
        code, said = run(tree, mutation.arguments, limit)
    finally:
        path.write_text(text)
    if code not in (None, 0, 1, 2):
        raise RuntimeError(f"{mutation.name}: its tests could not be run.\n{said}")
    found = [line.split(" - ")[0] for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return {
        "name": mutation.name,
        "result": {None: "timeout", 0: "alive"}.get(code, "killed"),
        "by": found[0].split(" ", 1)[1].removeprefix("tests/") if found else "",
        "seconds": round(time.perf_counter() - begin, 1),
    }


def main() -> int:
    """Run what was asked for; the exit code is one if a mutation is alive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="mutations to run; all by default")
    parser.add_argument("--list", action="store_true", help="show the names and stop")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="the file of results, a line each")
    parser.add_argument("--resume", action="store_true", help="leave out what --out has a result of")
    parser.add_argument("--no-check", action="store_true", help="do not run the tests unchanged first")
    parser.add_argument("--limit", type=float, default=_MOST_SECONDS, help="seconds for each")
    asked = parser.parse_args()
    if unknown := set(asked.names) - {mutation.name for mutation in MUTATIONS}:
        parser.error(f"there is no mutation {', '.join(sorted(unknown))}; --list shows them.")
    chosen = [mutation for mutation in MUTATIONS if not asked.names or mutation.name in asked.names]
    if asked.list:
        print("\n".join(mutation.name for mutation in chosen))
        return 0
    if not asked.resume:
        asked.out.write_text("")
    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    known = {record["name"]: record for record in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        waiting = [mutation for mutation in chosen if mutation.name not in known]
        if not asked.no_check:
            for arguments in dict.fromkeys(tuple(mutation.arguments) for mutation in waiting):
                code, said = run(tree, list(arguments), asked.limit)
                if code != 0:
                    raise SystemExit(f"without a mutation {' '.join(arguments)} does not pass.\n{said}")
        for mutation in waiting:
            record = known[mutation.name] = outcome(tree, mutation, asked.limit)
            with asked.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print("{result:8}{seconds:6.1f} s  {name}  {by}".format(**record), flush=True)
    alive = [mutation.name for mutation in chosen if known[mutation.name]["result"] == "alive"]
    print(f"{len(chosen) - len(alive)} of {len(chosen)} killed; alive: {', '.join(alive) or 'none'}")
    return bool(alive)


if __name__ == "__main__":
    raise SystemExit(main())
