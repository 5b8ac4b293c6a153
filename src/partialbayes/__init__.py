"""Partial Bayesian neural networks on JAX, trained by sequential Monte Carlo."""

from partialbayes.algorithms import (
    expected_log_likelihood,
    full_rank_vb,
    log_expected_likelihood,
    map_estimate,
    mean_field_vb,
    monte_carlo,
    ohsmc,
    second_stage,
    then,
)
from partialbayes.fit import Fit, History, TrainingDivergedError, fit
from partialbayes.kernels import ornstein_uhlenbeck, random_walk
from partialbayes.likelihoods import bernoulli, categorical, gaussian
from partialbayes.metrics import accuracy, expected_calibration_error, nlpd, rmse
from partialbayes.model import partial_bnn
from partialbayes.networks import from_nnx, mlp
from partialbayes.parameters import learned
from partialbayes.predict import Predictive, log_predictive_density, predict
from partialbayes.priors import normal
from partialbayes.resampling import stratified, systematic, when_ess_below
from partialbayes.samplers import adapted, hmc, laplace, likelihood_weighting, nuts
from partialbayes.subsets import Split, Subset, paths, split_weights, where
from partialbayes.types import Algorithm, Batch, Model, Move, Network, Particles, Posterior, Sampler

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Batch",
    "Fit",
    "History",
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
    "bernoulli",
    "categorical",
    "expected_calibration_error",
    "expected_log_likelihood",
    "fit",
    "from_nnx",
    "full_rank_vb",
    "gaussian",
    "hmc",
    "laplace",
    "learned",
    "likelihood_weighting",
    "log_expected_likelihood",
    "log_predictive_density",
    "map_estimate",
    "mean_field_vb",
    "mlp",
    "monte_carlo",
    "nlpd",
    "normal",
    "nuts",
    "ohsmc",
    "ornstein_uhlenbeck",
    "partial_bnn",
    "paths",
    "predict",
    "random_walk",
    "rmse",
    "second_stage",
    "split_weights",
    "stratified",
    "systematic",
    "then",
    "when_ess_below",
    "where",
]
