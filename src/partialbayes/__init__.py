"""Partial Bayesian neural networks on JAX, trained by sequential Monte Carlo."""

from partialbayes.algorithms import map_estimate, ohsmc
from partialbayes.fit import Fit, History, TrainingDivergedError, fit
from partialbayes.kernels import ornstein_uhlenbeck, random_walk
from partialbayes.likelihoods import (
    allow_missing,
    bernoulli,
    categorical,
    custom_likelihood,
    gaussian,
    heteroscedastic,
    multivariate_gaussian,
    poisson,
    student_t,
)
from partialbayes.metrics import accuracy, expected_calibration_error, nlpd, rmse
from partialbayes.model import partial_bnn
from partialbayes.networks import from_nnx, mlp
from partialbayes.parameters import learned, sampled
from partialbayes.predict import Predictive, log_predictive_density, predict
from partialbayes.priors import (
    centred_on,
    custom_prior,
    inverse_gamma,
    laplace_prior,
    normal,
    student_t_prior,
)
from partialbayes.resampling import stratified, systematic, when_ess_below
from partialbayes.scales import fan_in, per_layer
from partialbayes.splits import Split, split_weights
from partialbayes.subsets import (
    Subset,
    biases,
    layer,
    mask,
    normalisation_scales,
    output_layer,
    paths,
    random_fraction,
    where,
)
from partialbayes.types import Algorithm, Batch, Model, Move, Network, Particles, Posterior

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
    "Split",
    "Subset",
    "TrainingDivergedError",
    "accuracy",
    "allow_missing",
    "bernoulli",
    "biases",
    "categorical",
    "centred_on",
    "custom_likelihood",
    "custom_prior",
    "expected_calibration_error",
    "fan_in",
    "fit",
    "from_nnx",
    "gaussian",
    "heteroscedastic",
    "inverse_gamma",
    "laplace_prior",
    "layer",
    "learned",
    "log_predictive_density",
    "map_estimate",
    "mask",
    "mlp",
    "multivariate_gaussian",
    "nlpd",
    "normal",
    "normalisation_scales",
    "ohsmc",
    "ornstein_uhlenbeck",
    "output_layer",
    "partial_bnn",
    "paths",
    "per_layer",
    "poisson",
    "predict",
    "random_fraction",
    "random_walk",
    "rmse",
    "sampled",
    "split_weights",
    "stratified",
    "student_t",
    "student_t_prior",
    "systematic",
    "when_ess_below",
    "where",
]
