"""Partial Bayesian neural networks on JAX, trained by sequential Monte Carlo.

The names used most are here; the families they belong to are modules with all their members:
`algorithms`, `samplers`, `kernels`, `resampling`, `annealing`, `networks`, `subsets`, `ranking`,
`likelihoods`, `priors`, `metrics`, `evidence`, `callbacks`, `parallel`, `data` and `types`.
"""

from typing import Any

from partialbayes import (
    algorithms,
    annealing,
    callbacks,
    data,
    evidence,
    kernels,
    likelihoods,
    metrics,
    networks,
    parallel,
    plots,
    priors,
    ranking,
    resampling,
    samplers,
    subsets,
    types,
)
from partialbayes.advice import Advice, Candidate
from partialbayes.advise import advise
from partialbayes.algorithms import ensemble, map_estimate, ohsmc, sgsmc, smc, then
from partialbayes.checkpoint import CheckpointError
from partialbayes.chunks import in_chunks, within_memory
from partialbayes.compilation import compilation_cache
from partialbayes.exporting import export
from partialbayes.fit import Fit, History, TrainingDivergedError, fit
from partialbayes.kernels import forgetting, ornstein_uhlenbeck, random_walk
from partialbayes.likelihoods import bernoulli, categorical, gaussian
from partialbayes.many import fit_many
from partialbayes.metrics import accuracy, expected_calibration_error, nlpd, rmse
from partialbayes.model import partial_bnn
from partialbayes.networks import from_equinox, from_linen, from_nnx, from_params, mlp
from partialbayes.parameters import learned, sampled
from partialbayes.predict import log_predictive_density, predict
from partialbayes.predictive import Predictive
from partialbayes.priors import normal
from partialbayes.refine import Refined, refine
from partialbayes.report import report
from partialbayes.resampling import stratified, when_ess_below
from partialbayes.resume import Checkpoints
from partialbayes.saving import load, save
from partialbayes.splits import Split, split_weights
from partialbayes.stalled import StalledError
from partialbayes.stream import stream
from partialbayes.streaming import follow, update
from partialbayes.subsets import Subset, paths, where
from partialbayes.target_scale import TargetScale
from partialbayes.to_arviz import to_arviz
from partialbayes.types import Algorithm, Batch, Model, Network, Particles, Posterior

__version__ = "0.1.0"

_ESTIMATORS = ("PartialBNNClassifier", "PartialBNNRegressor")


def __getattr__(name: str) -> Any:
    """The estimators, loaded when they are first asked for: they need scikit-learn."""
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from partialbayes import estimators
    except ImportError as error:
        raise ImportError(f"{name} needs scikit-learn: pip install 'partialbayes[sklearn]'") from error
    return getattr(estimators, name)


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
    "annealing",
    "bernoulli",
    "callbacks",
    "categorical",
    "compilation_cache",
    "data",
    "ensemble",
    "evidence",
    "expected_calibration_error",
    "export",
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
    "kernels",
    "learned",
    "likelihoods",
    "load",
    "log_predictive_density",
    "map_estimate",
    "metrics",
    "mlp",
    "networks",
    "nlpd",
    "normal",
    "ohsmc",
    "ornstein_uhlenbeck",
    "parallel",
    "partial_bnn",
    "paths",
    "plots",
    "predict",
    "priors",
    "random_walk",
    "ranking",
    "refine",
    "report",
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
    "types",
    "update",
    "when_ess_below",
    "where",
    "within_memory",
]
