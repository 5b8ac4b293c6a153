"""Partial Bayesian neural networks on JAX, trained by sequential Monte Carlo."""

from partialbayes.algorithms import map_estimate, ohsmc, sample, then
from partialbayes.fit import Fit, History, TrainingDivergedError, fit
from partialbayes.kernels import (
    adapted_metropolis,
    forgetting,
    guided_langevin,
    hamiltonian,
    identity,
    lift,
    mala,
    ornstein_uhlenbeck,
    pcn,
    random_walk,
    random_walk_metropolis,
    unadjusted_langevin,
)
from partialbayes.likelihoods import bernoulli, categorical, gaussian
from partialbayes.metrics import accuracy, expected_calibration_error, nlpd, rmse
from partialbayes.model import partial_bnn
from partialbayes.networks import from_nnx, mlp
from partialbayes.parameters import learned
from partialbayes.predict import Predictive, log_predictive_density, predict
from partialbayes.priors import normal
from partialbayes.resampling import (
    multinomial,
    optimal_transport,
    residual,
    stratified,
    systematic,
    when_ess_below,
)
from partialbayes.samplers import adapted, hmc, nuts
from partialbayes.subsets import Split, Subset, paths, split_weights, where
from partialbayes.types import (
    Algorithm,
    Batch,
    Kernel,
    Model,
    Move,
    Network,
    Particles,
    Posterior,
    Sampler,
)

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Batch",
    "Fit",
    "History",
    "Kernel",
    "Model",
    "Move",
    "Network",
    "Particles",
    "Posterior",
    "Predictive",
    "Sampler",
    "Split",
    "Subset",
    "TrainingDivergedError",
    "accuracy",
    "adapted",
    "adapted_metropolis",
    "bernoulli",
    "categorical",
    "expected_calibration_error",
    "fit",
    "forgetting",
    "from_nnx",
    "gaussian",
    "guided_langevin",
    "hamiltonian",
    "hmc",
    "identity",
    "learned",
    "lift",
    "log_predictive_density",
    "mala",
    "map_estimate",
    "mlp",
    "multinomial",
    "nlpd",
    "normal",
    "nuts",
    "ohsmc",
    "optimal_transport",
    "ornstein_uhlenbeck",
    "partial_bnn",
    "paths",
    "pcn",
    "predict",
    "random_walk",
    "random_walk_metropolis",
    "residual",
    "rmse",
    "sample",
    "split_weights",
    "stratified",
    "systematic",
    "then",
    "unadjusted_langevin",
    "when_ess_below",
    "where",
]
