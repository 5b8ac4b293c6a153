"""Partial Bayesian neural networks on JAX, trained by sequential Monte Carlo."""

from partialbayes.algorithms import (
    ensemble,
    map_estimate,
    ohsmc,
    particle_gradient_descent,
    sample,
    sgld,
    sgsmc,
    smc,
    svgd,
    swag,
    then,
)
from partialbayes.annealing import blocks, geometric_blocks, tempering
from partialbayes.evidence import Evidence, evidence_from_runs
from partialbayes.fit import Fit, History, TrainingDivergedError, fit
from partialbayes.kernels import (
    adapted_hamiltonian,
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
from partialbayes.refine import Discrepancy, Refined, StalledError, refine
from partialbayes.resampling import stratified, systematic, when_ess_below
from partialbayes.samplers import adapted, hmc, nuts, tempered_smc
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
    "Discrepancy",
    "Evidence",
    "Fit",
    "History",
    "Kernel",
    "Model",
    "Move",
    "Network",
    "Particles",
    "Posterior",
    "Predictive",
    "Refined",
    "Sampler",
    "Split",
    "StalledError",
    "Subset",
    "TrainingDivergedError",
    "accuracy",
    "adapted",
    "adapted_hamiltonian",
    "bernoulli",
    "blocks",
    "categorical",
    "ensemble",
    "evidence_from_runs",
    "expected_calibration_error",
    "fit",
    "from_nnx",
    "gaussian",
    "geometric_blocks",
    "hamiltonian",
    "hmc",
    "identity",
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
    "refine",
    "rmse",
    "sample",
    "sgld",
    "sgsmc",
    "smc",
    "split_weights",
    "stratified",
    "svgd",
    "swag",
    "systematic",
    "tempered_smc",
    "tempering",
    "then",
    "unadjusted_langevin",
    "when_ess_below",
    "where",
]
