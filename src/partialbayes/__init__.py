"""Partial Bayesian neural networks on JAX, trained by sequential Monte Carlo."""

from partialbayes.algorithms import (
    ensemble,
    map_estimate,
    ohsmc,
    particle_gradient_descent,
    sample,
    sgld,
    svgd,
    swag,
    then,
)
from partialbayes.callbacks import Progress, csv_log, json_lines_log, tensorboard_log
from partialbayes.checkpoint import CheckpointError
from partialbayes.fit import Fit, History, TrainingDivergedError, fit
from partialbayes.kernels import (
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
from partialbayes.resampling import stratified, systematic, when_ess_below
from partialbayes.resume import Checkpoints
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
    "CheckpointError",
    "Checkpoints",
    "Fit",
    "History",
    "Kernel",
    "Model",
    "Move",
    "Network",
    "Particles",
    "Posterior",
    "Predictive",
    "Progress",
    "Sampler",
    "Split",
    "Subset",
    "TrainingDivergedError",
    "accuracy",
    "adapted",
    "bernoulli",
    "categorical",
    "csv_log",
    "ensemble",
    "expected_calibration_error",
    "fit",
    "from_nnx",
    "gaussian",
    "hamiltonian",
    "hmc",
    "identity",
    "json_lines_log",
    "learned",
    "lift",
    "log_predictive_density",
    "mala",
    "map_estimate",
    "mlp",
    "nlpd",
    "normal",
    "nuts",
    "ohsmc",
    "ornstein_uhlenbeck",
    "partial_bnn",
    "particle_gradient_descent",
    "paths",
    "pcn",
    "predict",
    "random_walk",
    "random_walk_metropolis",
    "rmse",
    "sample",
    "sgld",
    "split_weights",
    "stratified",
    "svgd",
    "swag",
    "systematic",
    "tensorboard_log",
    "then",
    "unadjusted_langevin",
    "when_ess_below",
    "where",
]
