"""Any trainer, then any sampler."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partialbayes as pb
from partialbayes.annealing import posterior_family
from partialbayes.errors import MixingWarning
from partialbayes.model._batch import full_batch
from partialbayes.training._second_stage import judge
from tests.oracles import conjugate
from tests.recorders import numbered, recorder

ORACLE = conjugate()
DATA = (ORACLE.inputs, ORACLE.targets)
FIRST = pb.ohsmc(ORACLE.model, num_particles=16, kernel=pb.kernels.random_walk(0.01))


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_psi_is_that_of_the_first_stage():
    settings = {"epochs": 3, "batch_size": 10, "validation": DATA, "key": 3}
    first = pb.fit(FIRST, DATA, **settings)
    both = pb.fit(pb.two_stage(FIRST, pb.samplers.laplace(num_particles=12)), DATA, **settings)
    assert first.report is None
    assert same(first.posterior.psi, both.posterior.psi)
    assert both.posterior.particles.values.shape == (12, 3)
    assert same(first.history.validation_nlpd, both.history.validation_nlpd)
    log_evidence = ORACLE.log_evidence(both.posterior.psi)
    assert np.allclose(both.report.log_evidence, log_evidence, atol=5e-3)


def test_stages_follow_one_another():
    def shifted(key, model, posterior, batch):
        values, log_weights = posterior.particles
        moved = pb.types.Particles(values + 1.0, log_weights)
        return posterior._replace(particles=moved), {"rows": batch.mask.sum()}

    def doubled(key, model, posterior, batch):
        values, log_weights = posterior.particles
        moved = pb.types.Particles(2.0 * values, log_weights)
        return posterior._replace(particles=moved), {"scale": batch.scale}

    settings = {"epochs": 1, "batch_size": 10}
    plain = pb.fit(FIRST, DATA, **settings).posterior.particles.values
    trained = pb.fit(pb.two_stage(pb.two_stage(FIRST, shifted), doubled), DATA, **settings)
    assert np.allclose(trained.posterior.particles.values, 2.0 * (plain + 1.0))
    rows, scale = trained.reports
    assert int(rows["rows"]) == 30  # all the data, not a batch
    assert float(scale["scale"]) == 1.0


def test_each_member_of_an_ensemble_is_sampled_and_keeps_its_share():
    members = []
    for seed in range(2):
        phi, psi = ORACLE.model.init(jax.random.key(0))
        psi = psi._replace(likelihood=psi.likelihood + seed)
        members.append((psi, jnp.stack([phi, phi + 1.0])))
    psi, values = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    log_weights = jnp.log(jnp.array([[0.1, 0.2], [0.3, 0.4]]))
    ensemble = pb.types.Posterior(psi, pb.types.Particles(values, log_weights))
    sampler = pb.samplers.laplace(num_particles=50)
    posterior, report = pb.training.second_stage(sampler, ORACLE.model, ensemble, DATA)
    shares = jnp.exp(jax.nn.logsumexp(posterior.particles.log_weights, axis=1))
    assert posterior.particles.values.shape == (2, 50, 3)
    assert np.allclose(shares, [0.3, 0.7], atol=1e-5)
    for index, (psi, _) in enumerate(members):
        assert np.allclose(report.log_evidence[index], ORACLE.log_evidence(psi), atol=5e-3)
    assert bool(jnp.isfinite(pb.predict(ORACLE.model, posterior, ORACLE.inputs).mean).all())


def test_a_trainer_goes_on_from_the_posterior_of_the_first_stage():
    model = pb.partial_bnn(pb.mlp([1, 3, 1]), "layers/0/**", pb.gaussian())
    x = jnp.linspace(-1.0, 1.0, 10)[:, None]
    first = pb.map_estimate(model)
    still = pb.algorithms.swag(model, num_particles=4, rank=0, num_warmup=0, optimizer=optax.sgd(0.0))
    stage = pb.training.continue_training(still, num_steps=3, batch_size=4)
    settings = {"epochs": 3}
    alone = pb.fit(first, (x, x), **settings).posterior
    both = pb.fit(pb.two_stage(first, stage), (x, x), **settings).posterior
    np.testing.assert_allclose(
        both.particles.values, alone.particles.values.repeat(4, axis=0), rtol=1e-5, atol=1e-6
    )
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), both.psi, alone.psi
    )
    with pytest.raises(ValueError, match="cannot start from a posterior"):
        pb.training.continue_training(pb.algorithms.sgld(model), num_steps=1)


def test_a_trainer_that_goes_on_sees_every_row_once_an_epoch():
    algorithm = recorder(10)
    stage = pb.training.continue_training(algorithm, num_steps=6, batch_size=4)
    nothing = algorithm.posterior(jnp.zeros(10))
    posterior, _ = pb.training.second_stage(stage, algorithm.model, nothing, numbered(10))
    assert posterior.particles.values.tolist() == [[2.0] * 10]


def test_a_seed_may_be_a_number_of_numpy():
    start = FIRST.posterior(FIRST.init(jax.random.key(0)))
    sampler = pb.samplers.laplace(num_particles=4)
    one, other = (
        pb.training.second_stage(sampler, ORACLE.model, start, DATA, key=seed)[0]
        for seed in (np.int64(1), 1)
    )
    assert same(one.particles, other.particles)


def chains(**changes):
    """What two healthy chains of a thousand draws report, but for what is changed."""
    report = pb.results.ChainReport(
        r_hat=np.full(3, 1.01),
        ess=np.full(3, 400.0),
        acceptance=np.array([0.8, 0.7]),
        divergences=np.array(3),
        step_size=np.full(2, 0.1),
        num_draws=np.array(1000),
    )
    return report._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"divergences": np.array(100)}, "5 % of the trajectories diverged: use a smaller step_size"),
        ({"acceptance": np.array([0.8, 0.0])}, "accepted 0 % .* copies of a few"),
        ({"r_hat": np.array([1.0, 2.5, np.nan])}, "R-hat 2.5 of the worst weight"),
        ({"ess": np.array([400.0, 3.0, 200.0])}, "effective sample size of the worst weight is 3"),
        ({"acceptance": np.full((2, 2), 0.01)}, "accepted 1 %"),  # of an ensemble
    ],
)
def test_bad_chains_warn_with_what_to_do(changes, message):
    judge(chains())
    with pytest.warns(MixingWarning, match=message):
        judge(chains(**changes))


def test_short_chains_say_nothing_of_r_hat():
    judge(chains(num_draws=np.array(20), r_hat=np.full(3, 3.0), divergences=np.array(0)))


def test_few_draws_of_the_prior_warn():
    judge(pb.results.ImportanceReport(np.array(-3.0), np.array(50.0)))
    with pytest.warns(MixingWarning, match="draws from the prior is 1.5.*tempered_smc"):
        judge(pb.results.ImportanceReport(np.array(-3.0), np.array(1.5)))


def test_moves_of_a_laplace_approximation_that_are_rejected_warn():
    def report(*acceptance):
        zeros = np.zeros(len(acceptance))
        return pb.results.LaplaceReport(zeros, zeros, zeros, np.array(acceptance))

    judge(report(1.0, 0.8))
    with pytest.warns(MixingWarning, match="accepted 1 % of its proposals"):
        judge(report(0.8, 0.01))


def test_a_sampler_that_goes_nowhere_warns():
    """Steps a thousand times too long: in fit and in second_stage alike."""
    sampler = pb.samplers.hmc(
        step_size=100.0, num_leapfrog_steps=2, num_chains=2, num_warmup=5, num_draws=20, num_particles=20
    )
    start = pb.types.Posterior(
        ORACLE.model.init(jax.random.key(0)).psi,
        pb.types.Particles(jnp.zeros((1, 3)), jnp.zeros(1)),
    )
    with pytest.warns(MixingWarning, match="diverged.*copies of a few"):
        pb.training.second_stage(sampler, ORACLE.model, start, DATA)


def test_second_stages_go_by_the_gradient_of_the_density():
    """Not by that of the β-NLL, which is for training ψ."""
    network = pb.mlp([2, 3, 2])
    weighted, plain = (
        pb.partial_bnn(network, "layers/1/*", pb.likelihoods.heteroscedastic(beta=beta))
        for beta in (0.9, 0.0)
    )
    phi, psi = plain.init(jax.random.key(0))
    start = pb.types.Posterior(psi, pb.types.Particles(phi[None], jnp.zeros(1)))
    targets = 3.0 * ORACLE.targets

    def gradients(key, model, posterior, batch):
        point = posterior.particles.values[0]
        slope = jax.grad(lambda phi: model.log_likelihood(phi, posterior.psi, batch).sum())(point)
        return posterior._replace(particles=pb.types.Particles(slope[None], jnp.zeros(1))), None

    found, expected = (
        pb.training.second_stage(gradients, model, start, (ORACLE.inputs, targets))[0]
        for model in (weighted, plain)
    )
    np.testing.assert_allclose(found.particles.values, expected.particles.values, rtol=1e-5)
    family = posterior_family(weighted, psi, full_batch(ORACLE.inputs, targets))
    slope = jax.grad(lambda phi: family.log_likelihood(phi, 30).sum())(phi)
    np.testing.assert_allclose(slope, expected.particles.values[0], rtol=1e-4)
    missing = pb.likelihoods.allow_missing(pb.likelihoods.heteroscedastic(beta=0.5))
    assert missing.exact.log_density is not pb.likelihoods.heteroscedastic().log_density
    assert missing.exact.exact is None
