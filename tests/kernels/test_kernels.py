"""Kernels as a user meets them: errors, and the plug for BlackJAX."""

import pytest

import partialbayes as pb
from partialbayes.types import Likelihood
from tests.oracles import conjugate

ORACLE = conjugate()


def with_likelihood(log_density) -> pb.types.Model:
    likelihood: Likelihood = pb.gaussian()._replace(log_density=log_density)
    return pb.partial_bnn(pb.mlp([2, 3, 1]), "layers/0/*", likelihood)


def fit_with(model: pb.types.Model, kernel: pb.types.Kernel) -> pb.types.Fit:
    algorithm = pb.ohsmc(model, num_particles=8, kernel=kernel)
    return pb.fit(algorithm, (ORACLE.inputs, ORACLE.targets), epochs=1, batch_size=10, progress=False)


@pytest.mark.parametrize(
    "kernel", [pb.kernels.ornstein_uhlenbeck(0.1), pb.kernels.pcn(0.1)], ids=["ou", "pcn"]
)
def test_a_prior_that_is_not_normal_is_refused_when_built(kernel):
    model = ORACLE.model._replace(prior=ORACLE.model.prior._replace(normal=False))
    with pytest.raises(ValueError, match="needs a normal prior"):
        pb.ohsmc(model, kernel=kernel)


def test_an_error_of_the_users_own_is_not_hidden():
    def log_density(parameters, targets):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fit_with(with_likelihood(log_density), pb.kernels.mala(0.01))


def test_pcn_renews_at_most_the_prior():
    with pytest.raises(ValueError, match="at most 1"):
        pb.kernels.pcn(1.5)
