"""Samplers of φ at fixed ψ against the conjugate network, where the posterior is known."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

import partialbayes as pb
from partialbayes.model._batch import full_batch, pad_to
from partialbayes.samplers._chains import chain_report, evenly_spaced, starting_points
from partialbayes.samplers._laplace import gauss_newton
from partialbayes.samplers._whitened import hamiltonian_moves
from tests.oracles import conjugate

ORACLE = conjugate()
DATA = (ORACLE.inputs, ORACLE.targets)


def point(model: pb.types.Model) -> pb.types.Posterior:
    phi, psi = model.init(jax.random.key(0))
    return pb.types.Posterior(psi, pb.types.Particles(phi[None, :], jnp.zeros(1)))


START = point(ORACLE.model)
MEAN, COVARIANCE = (np.asarray(x, float) for x in ORACLE.posterior(START.psi))


def moment_z_scores(replicates, mean, covariance):
    """z-scores of first and second moments, from independent replicates (replicate, draw, dim)."""
    centered = np.asarray(replicates, float) - mean
    seconds = np.einsum("rdi,rdj->rij", centered, centered) / centered.shape[1] - covariance
    errors = np.concatenate([centered.mean(axis=1), seconds.reshape(len(centered), -1)], axis=1)
    return errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / np.sqrt(len(errors)))


CHAIN_SAMPLERS = {
    "hmc": lambda **length: pb.samplers.hmc(step_size=0.15, num_leapfrog_steps=20, **length),
    "hmc, adapted": lambda **length: pb.samplers.hmc(
        step_size=pb.samplers.adapted(), num_leapfrog_steps=10, **length
    ),
    "nuts": lambda **length: pb.samplers.nuts(**length),
}


@pytest.mark.parametrize("build", CHAIN_SAMPLERS.values(), ids=CHAIN_SAMPLERS.keys())
def test_chains_reach_the_posterior(build):
    sampler = build(num_chains=64, num_warmup=300, num_draws=100, num_particles=6400)
    with jax.debug_key_reuse(False):  # a false alarm on BlackJAX's loops mapped over chains
        posterior, report = pb.training.second_stage(sampler, ORACLE.model, START, DATA, key=1)
    # All draws are kept, chain after chain: the chains are independent replicates.
    chains = posterior.particles.values.reshape(64, 100, 3)
    assert np.abs(moment_z_scores(chains, MEAN, COVARIANCE)).max() < 4.5
    # A mean off by 0.3 standard deviations, or a variance by 40 %, would be seen.
    shifted = MEAN + 0.3 * np.sqrt(np.diag(COVARIANCE))
    assert np.abs(moment_z_scores(chains, shifted, COVARIANCE)).max() > 6.0
    assert np.abs(moment_z_scores(chains, MEAN, 1.4 * COVARIANCE)).max() > 6.0
    assert report.r_hat.shape == report.ess.shape == (3,)
    assert bool((report.r_hat < 1.1).all())
    assert bool((report.ess > 800).all())
    assert report.acceptance.shape == report.step_size.shape == (64,)
    assert bool(((report.acceptance > 0.4) & (report.acceptance < 0.9999)).all())
    assert int(report.divergences) == 0


def test_without_jitter_a_chain_starts_at_the_particle():
    """Steps far too long are all rejected, so the draws show the start."""
    with jax.debug_key_reuse(False):
        for jitter, stays in ((0.0, True), (0.1, False)):
            sampler = pb.samplers.hmc(
                step_size=1e3, num_chains=1, num_warmup=1, num_draws=3, num_particles=3, jitter=jitter
            )
            with pytest.warns(pb.errors.MixingWarning, match="accepted 0 %"):
                posterior, _ = pb.training.second_stage(sampler, ORACLE.model, START, DATA, key=1)
            assert np.array_equal(posterior.particles.values[0], START.particles.values[0]) == stays


def test_chains_start_at_particles_drawn_by_weight():
    log_weights = jnp.array([-jnp.inf, -jnp.inf, 0.0, -jnp.inf])
    cloud = pb.types.Particles(jnp.arange(12.0).reshape(4, 3), log_weights)
    posterior = pb.types.Posterior(START.psi, cloud)
    starts = starting_points(jax.random.key(0), ORACLE.model, posterior, 5, 0.0)
    assert starts.tolist() == [[6.0, 7.0, 8.0]] * 5


def test_the_draws_that_are_kept_are_spread_over_all_chains():
    chains = jnp.arange(12.0).reshape(2, 6, 1)
    assert evenly_spaced(chains, 4).values[:, 0].tolist() == [0.0, 3.0, 6.0, 9.0]
    assert evenly_spaced(chains, 5).values[:, 0].tolist() == [0.0, 2.0, 4.0, 7.0, 9.0]


@pytest.mark.parametrize("build", CHAIN_SAMPLERS.values(), ids=CHAIN_SAMPLERS.keys())
def test_there_may_be_as_many_particles_as_draws_and_no_more(build):
    build(num_chains=2, num_warmup=1, num_draws=5, num_particles=10)
    with pytest.raises(ValueError, match="only 2 chains × 5 draws are kept"):
        build(num_chains=2, num_warmup=50, num_draws=5, num_particles=11)


def test_report_against_an_autoregression():
    """AR(1) with coefficient ρ has ESS n (1 − ρ)/(1 + ρ)."""
    rng = np.random.default_rng(0)
    rho, chains = 0.8, np.zeros((4, 4000, 2))
    chains[:, 0] = rng.normal(size=(4, 2)) / np.sqrt(1 - rho**2)
    for step in range(1, 4000):
        chains[:, step] = rho * chains[:, step - 1] + rng.normal(size=(4, 2))
    ones, none = jnp.ones((4000, 4)), jnp.zeros((4000, 4), bool)
    diagnose = jax.jit(lambda chains: chain_report(chains, ones, none, jnp.ones(4)))
    report = diagnose(jnp.asarray(chains, float))
    assert np.allclose(report.ess, 16000 * 0.2 / 1.8, rtol=0.2)
    assert np.allclose(report.r_hat, 1.0, atol=0.02)
    # A chain that sits elsewhere shows, and so does a drift that all the chains share.
    apart = diagnose(jnp.asarray(chains, float).at[0].add(5.0))
    assert bool((apart.r_hat > 1.2).all())
    drift = np.linspace(0, 10, 4000)[None, :, None]
    assert bool((diagnose(jnp.asarray(chains + drift, float)).r_hat > 1.2).all())


def test_trunk_runs_once():
    """Nothing before the stochastic layer is left inside the loops over draws."""

    def count(jaxpr, inside):
        found = 0
        for equation in jaxpr.eqns:
            found += inside and equation.primitive.name == "tanh"
            for sub in jax.extend.core.jaxprs_in_params(equation.params):
                found += count(sub, inside or equation.primitive.name in ("scan", "while"))
        return found

    def run(sampler):
        return jax.make_jaxpr(
            lambda: sampler(jax.random.key(0), ORACLE.model, START, full_batch(*DATA))
        )()

    sampler = pb.samplers.hmc(num_leapfrog_steps=2, num_warmup=2, num_draws=4, num_particles=4)
    jaxpr = run(sampler).jaxpr
    assert "tanh" in str(jaxpr)
    assert count(jaxpr, inside=False) == 0


def test_laplace_is_exact_where_the_posterior_is_normal():
    for curvature in ("gauss-newton", "hessian"):
        sampler = pb.samplers.laplace(curvature=curvature, num_particles=10_000)
        posterior, report = pb.training.second_stage(sampler, ORACLE.model, START, DATA)
        assert np.allclose(report.log_evidence, ORACLE.log_evidence(START.psi), atol=2e-3)
        assert int(report.clipped) == 0
        draws = posterior.particles.values.reshape(100, 100, 3)
        assert np.abs(moment_z_scores(draws, MEAN, COVARIANCE)).max() < 4.5
        assert np.abs(moment_z_scores(draws, MEAN, np.diag(np.diag(COVARIANCE)))).max() > 6.0


def test_rows_that_do_not_count_have_no_curvature():
    psi, padded = START.psi, pad_to(full_batch(*DATA), 40)
    found = jax.jit(lambda phi: gauss_newton(ORACLE.model, psi, padded, phi)(jnp.ones(3)))(jnp.zeros(3))
    features = np.asarray(ORACLE.features(psi))
    np.testing.assert_allclose(found, features.T @ features.sum(axis=1) / 0.25, rtol=1e-4)


def test_moves_take_draws_of_a_wrong_gaussian_to_the_target():
    starts = jax.random.normal(jax.random.key(0), (2000, 3))
    target = lambda u: -0.5 * jnp.square((u - 0.5) / 0.7).sum()  # noqa: E731
    values, acceptance = hamiltonian_moves(jax.random.key(1), target, starts, 10)
    np.testing.assert_allclose(values.mean(0), 0.5, atol=4 * 0.7 / 2000**0.5)
    np.testing.assert_allclose(values.std(0), 0.7, atol=4 * 0.7 / 4000**0.5)
    assert acceptance > 0.6


def test_diagonal_laplace_has_the_variances_of_the_conditionals():
    """Known to be too small: one over the diagonal of the precision."""
    sampler = pb.samplers.laplace(covariance="diagonal", num_particles=10_000)
    posterior, report = pb.training.second_stage(sampler, ORACLE.model, START, DATA)
    variances = 1.0 / np.diag(np.linalg.inv(COVARIANCE))
    draws = posterior.particles.values.reshape(100, 100, 3)
    assert np.abs(moment_z_scores(draws, MEAN, np.diag(variances))).max() < 4.5
    assert bool((variances < 0.95 * np.diag(COVARIANCE)).any())
    # Evidence with a determinant that is too large: log Z − ½ (Σ log diag P − log det P).
    precision = np.linalg.inv(COVARIANCE)
    loss = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    exact = ORACLE.log_evidence(START.psi) - loss
    assert np.allclose(report.log_evidence, exact, atol=2e-3)


def test_laplace_where_the_curvature_is_not_that_of_a_normal():
    """Y = φ²/2 + noise: at the mode φ = 0 the exact Hessian, 1 − y/σ² = ½, is below the prior's 1."""
    network = pb.types.Network(
        init=lambda key: {"phi": jnp.zeros(1), "psi": jnp.zeros(1)},
        apply=lambda params, x: 0.5 * jnp.square(params["phi"]) + x @ params["psi"],
    )
    model = pb.partial_bnn(network, "phi", pb.gaussian(variance=2.0))
    data = (jnp.zeros((1, 1)), jnp.ones(1))
    start = point(model)
    posterior, report = pb.training.second_stage(
        pb.samplers.laplace(curvature="hessian"), model, start, data
    )
    assert int(report.clipped) == 1
    assert 0.85 < float(posterior.particles.values.var()) < 1.15
    assert float(report.gradient_norm) < 1e-3


def test_likelihood_weighting_is_unbiased():
    """E[Ẑ] = Z, over a hundred runs on five data points."""
    oracle = conjugate(num_data=5)
    start = point(oracle.model)
    sampler = pb.samplers.importance_sampling(num_particles=500)

    def run(key):
        posterior, report = sampler(key, oracle.model, start, full_batch(oracle.inputs, oracle.targets))
        return report.log_evidence, jnp.exp(posterior.particles.log_weights).sum()

    log_evidence, totals = jax.vmap(run)(jax.random.split(jax.random.key(3), 400))
    ratios = np.exp(np.asarray(log_evidence - oracle.log_evidence(start.psi), float))
    assert abs(ratios.mean() - 1.0) < 4.0 * ratios.std(ddof=1) / np.sqrt(len(ratios))
    assert ratios.std(ddof=1) / np.sqrt(len(ratios)) < 0.05
    assert np.allclose(totals, 1.0, atol=1e-4)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: pb.samplers.hmc(step_size=-0.1), "step_size must be positive"),
        (lambda: pb.samplers.hmc(jitter=-0.1), "jitter must be finite and not negative"),
        (lambda: pb.samplers.hmc(num_leapfrog_steps=0), "num_leapfrog_steps must be a whole number"),
        (
            lambda: pb.samplers.hmc(num_chains=1, num_draws=10, num_particles=11),
            "fewer particles or more draws",
        ),
        (lambda: pb.samplers.nuts(num_chains=0), "num_chains must be a whole number"),
        (lambda: pb.samplers.adapted(1.5), "target_acceptance must be a probability below 1"),
        (lambda: pb.samplers.laplace(covariance="low-rank"), "covariance must be 'full' or 'diagonal'"),
        (
            lambda: pb.samplers.laplace(curvature="fisher"),
            "curvature must be 'gauss-newton' or 'hessian'",
        ),
        (
            lambda: pb.samplers.importance_sampling(num_particles=0),
            "num_particles must be a whole number",
        ),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_microcanonical_chains_reach_the_posterior():
    sampler = pb.samplers.mclmc(
        num_chains=64, num_warmup=2000, num_draws=50, steps_per_draw=20, num_particles=3200, jitter=0.1
    )
    with jax.debug_key_reuse(False):
        posterior, report = pb.training.second_stage(sampler, ORACLE.model, START, DATA, key=1)
    chains = posterior.particles.values.reshape(64, 50, 3)
    # There is a bias of the step, a few per cent of the variance: as large as the errors here.
    assert np.abs(moment_z_scores(chains, MEAN, COVARIANCE)).max() < 4.5
    shifted = MEAN + 0.3 * np.sqrt(np.diag(COVARIANCE))
    assert np.abs(moment_z_scores(chains, shifted, COVARIANCE)).max() > 6.0
    assert np.abs(moment_z_scores(chains, MEAN, 1.4 * COVARIANCE)).max() > 6.0
    assert bool((report.r_hat < 1.1).all())
    assert int(report.divergences) == 0
    assert bool((report.acceptance == 1.0).all())


def test_microcanonical_chains_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match="num_warmup must be at least 100 steps"):
        pb.samplers.mclmc(num_warmup=50)
    with pytest.raises(ValueError, match="ask for fewer particles"):
        pb.samplers.mclmc(num_chains=1, num_draws=10, num_particles=20)
    network = pb.from_params({"w": jnp.ones(1)}, lambda params, x: x @ params["w"])
    model = pb.partial_bnn(network, "w", pb.gaussian())
    with pytest.raises(ValueError, match="at least two weights"):
        pb.training.second_stage(
            pb.samplers.mclmc(), model, point(model), (jnp.ones((3, 1)), jnp.ones(3)), key=1
        )


@pytest.mark.parametrize(
    ("dim", "waste_free", "expected"),
    [(5, None, 1000), (105, None, 2100), (105, 8, 2104), (2000, None, 10_000)],
)
def test_twenty_particles_for_each_weight_by_default(dim, waste_free, expected):
    network = pb.types.Network(
        init=lambda key: {"slope": jnp.zeros(dim)}, apply=lambda params, x: x @ params["slope"]
    )
    model = pb.partial_bnn(network, "slope", pb.gaussian(1.0))
    batch = full_batch(jnp.ones((4, dim)), jnp.ones(4))
    sampler = pb.samplers.tempered_smc(waste_free=waste_free)
    with jax.debug_key_reuse(False):
        sampled, _ = jax.eval_shape(
            lambda key: sampler(key, model, point(model), batch), jax.random.key(0)
        )
        state = jax.eval_shape(pb.smc(model).init, jax.random.key(0))
    assert sampled.particles.values.shape == (expected, dim)
    if waste_free is None:
        assert state.sampled.particles.values.shape == (expected, dim)
