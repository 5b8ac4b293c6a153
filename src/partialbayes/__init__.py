"""Partial Bayesian neural networks on JAX, trained by sequential Monte Carlo.

The names of a first hour are here. Everything else is in the families: `networks`, `likelihoods`,
`priors`, `subsets` and `model` say what is modeled; `kernels`, `resampling`, `annealing` and
`feynman_kac` how particles move; `samplers`, `algorithms` and `training` how they learn; `prediction`,
`metrics`, `analysis`, `plots` and `reporting` what comes out; `io`, `parallel` and `estimators` where it
lives. `types` holds the contracts, `errors` every exception and warning.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

from partialbayes import (
    algorithms,
    analysis,
    annealing,
    callbacks,
    errors,
    feynman_kac,
    io,
    kernels,
    likelihoods,
    metrics,
    model,
    networks,
    parallel,
    parameters,
    plots,
    prediction,
    priors,
    reporting,
    resampling,
    samplers,
    subsets,
    training,
    types,
    weights,
)
from partialbayes._engine.checkpoints import Checkpoints
from partialbayes._engine.sources import stream
from partialbayes.algorithms import ensemble, map_estimate, ohsmc, sgsmc, smc, then
from partialbayes.analysis._advise import Advice, Candidate, advise
from partialbayes.analysis._arviz import to_arviz
from partialbayes.analysis._refine import Refined, refine
from partialbayes.errors import CheckpointError, StalledError, TrainingDivergedError
from partialbayes.io._compilation_cache import compilation_cache
from partialbayes.io._export import export
from partialbayes.io._model_folder import load, save
from partialbayes.kernels import forgetting, ornstein_uhlenbeck, random_walk
from partialbayes.likelihoods import bernoulli, categorical, gaussian
from partialbayes.metrics import accuracy, expected_calibration_error, nlpd, rmse
from partialbayes.model._partial_bnn import in_chunks, partial_bnn
from partialbayes.model._split import split_weights
from partialbayes.networks import from_equinox, from_linen, from_nnx, from_params, mlp
from partialbayes.parameters import learned, sampled
from partialbayes.prediction._predict import log_predictive_density, predict
from partialbayes.prediction._predictive import Predictive
from partialbayes.prediction._target_scale import TargetScale
from partialbayes.priors._priors import normal
from partialbayes.reporting._report import report
from partialbayes.resampling import stratified, when_ess_below
from partialbayes.subsets._select import Subset, paths, where
from partialbayes.training._fit import fit
from partialbayes.training._fit_many import fit_many
from partialbayes.training._memory import within_memory
from partialbayes.training._online import follow, update
from partialbayes.types import (
    Algorithm,
    Batch,
    Fit,
    History,
    Model,
    Network,
    Particles,
    Posterior,
    Split,
)

__version__ = version("partialbayes")

_ESTIMATORS = ("PartialBNNClassifier", "PartialBNNRegressor")


def __getattr__(name: str) -> Any:
    """Load the estimators when they are first asked for: they need scikit-learn."""
    if name not in (*_ESTIMATORS, "estimators"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        estimators = import_module("partialbayes.estimators")
    except ImportError as error:
        raise ImportError(f"{name} needs scikit-learn: pip install 'partialbayes[sklearn]'") from error
    return estimators if name == "estimators" else getattr(estimators, name)


def __dir__() -> list[str]:
    """Show the public names alone."""
    return [*__all__, "__version__"]


__all__ = [
    "Advice",
    "Algorithm",
    "Batch",
    "Candidate",
    "CheckpointError",
    "Checkpoints",
    "Fit",
    "History",
    "Model",
    "Network",
    "PartialBNNClassifier",
    "PartialBNNRegressor",
    "Particles",
    "Posterior",
    "Predictive",
    "Refined",
    "Split",
    "StalledError",
    "Subset",
    "TargetScale",
    "TrainingDivergedError",
    "accuracy",
    "advise",
    "algorithms",
    "analysis",
    "annealing",
    "bernoulli",
    "callbacks",
    "categorical",
    "compilation_cache",
    "ensemble",
    "errors",
    "estimators",
    "expected_calibration_error",
    "export",
    "feynman_kac",
    "fit",
    "fit_many",
    "follow",
    "forgetting",
    "from_equinox",
    "from_linen",
    "from_nnx",
    "from_params",
    "gaussian",
    "in_chunks",
    "io",
    "kernels",
    "learned",
    "likelihoods",
    "load",
    "log_predictive_density",
    "map_estimate",
    "metrics",
    "mlp",
    "model",
    "networks",
    "nlpd",
    "normal",
    "ohsmc",
    "ornstein_uhlenbeck",
    "parallel",
    "parameters",
    "partial_bnn",
    "paths",
    "plots",
    "predict",
    "prediction",
    "priors",
    "random_walk",
    "refine",
    "report",
    "reporting",
    "resampling",
    "rmse",
    "sampled",
    "samplers",
    "save",
    "sgsmc",
    "smc",
    "split_weights",
    "stratified",
    "stream",
    "subsets",
    "then",
    "to_arviz",
    "training",
    "types",
    "update",
    "weights",
    "when_ess_below",
    "where",
    "within_memory",
]
