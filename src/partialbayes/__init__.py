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
from partialbayes.many import fit_many
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
from partialbayes.resume import Checkpoints
from partialbayes.samplers import adapted, hmc, nuts
from partialbayes.scales import fan_in, per_layer
from partialbayes.splits import Split, split_weights
from partialbayes.stream import Stream, stream
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
    "Stream",
    "Subset",
    "TrainingDivergedError",
    "accuracy",
    "adapted",
    "allow_missing",
    "bernoulli",
    "biases",
    "categorical",
    "centred_on",
    "csv_log",
    "custom_likelihood",
    "custom_prior",
    "ensemble",
    "expected_calibration_error",
    "fan_in",
    "fit",
    "fit_many",
    "from_nnx",
    "gaussian",
    "hamiltonian",
    "heteroscedastic",
    "hmc",
    "identity",
    "inverse_gamma",
    "json_lines_log",
    "laplace_prior",
    "layer",
    "learned",
    "lift",
    "log_predictive_density",
    "mala",
    "map_estimate",
    "mask",
    "mlp",
    "multivariate_gaussian",
    "nlpd",
    "normal",
    "normalisation_scales",
    "nuts",
    "ohsmc",
    "ornstein_uhlenbeck",
    "output_layer",
    "partial_bnn",
    "particle_gradient_descent",
    "paths",
    "pcn",
    "per_layer",
    "poisson",
    "predict",
    "random_fraction",
    "random_walk",
    "random_walk_metropolis",
    "rmse",
    "sample",
    "sampled",
    "sgld",
    "split_weights",
    "stratified",
    "stream",
    "student_t",
    "student_t_prior",
    "svgd",
    "swag",
    "systematic",
    "tensorboard_log",
    "then",
    "unadjusted_langevin",
    "when_ess_below",
    "where",
]
