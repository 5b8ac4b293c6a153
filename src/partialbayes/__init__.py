"""Partial Bayesian neural networks on JAX, trained by sequential Monte Carlo.

The most common names are here. Everything else is in modules: `networks`, `likelihoods`, `priors`,
`subsets` and `model` define models; `kernels`, `resampling`, `annealing` and `feynman_kac` move
particles; `samplers`, `algorithms`, `training`, `online` and `pretrained` train; `prediction`,
`metrics`, `analysis`, `plots` and `reporting` use the result; `io` and `parallel` are for files and
devices; `estimators` are for tables. `types` defines the contracts, `results` what training returns,
`errors` every exception and warning.
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
    online,
    parallel,
    parameters,
    plots,
    prediction,
    pretrained,
    priors,
    reporting,
    resampling,
    results,
    samplers,
    subsets,
    training,
    types,
    weights,
)
from partialbayes.algorithms import ensemble, map_estimate, ohsmc, sgsmc, smc, two_stage
from partialbayes.analysis import advise, refine, to_arviz
from partialbayes.io import export, load, save
from partialbayes.likelihoods import bernoulli, categorical, gaussian
from partialbayes.model import partial_bnn
from partialbayes.networks import (
    from_equinox,
    from_keras,
    from_linen,
    from_nnx,
    from_params,
    from_torch,
    mlp,
)
from partialbayes.parameters import learned, sampled
from partialbayes.prediction import calibrate, predict
from partialbayes.pretrained import bayesianize
from partialbayes.reporting import report
from partialbayes.training import Run, Validation, fit, fit_many

__version__ = version("partialbayes")

_ESTIMATORS = ("PartialBNNClassifier", "PartialBNNRegressor")


def __getattr__(name: str) -> Any:
    """Load the estimators at their first use: they need scikit-learn."""
    if name not in (*_ESTIMATORS, "estimators"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        estimators = import_module("partialbayes.estimators")
    except ImportError as error:
        raise ImportError(f"{name} needs scikit-learn: pip install 'partialbayes[sklearn]'") from error
    return estimators if name == "estimators" else getattr(estimators, name)


def __dir__() -> list[str]:
    """List only the public names."""
    return [*__all__, "__version__"]


__all__ = [
    "PartialBNNClassifier",
    "PartialBNNRegressor",
    "Run",
    "Validation",
    "advise",
    "algorithms",
    "analysis",
    "annealing",
    "bayesianize",
    "bernoulli",
    "calibrate",
    "callbacks",
    "categorical",
    "ensemble",
    "errors",
    "estimators",
    "export",
    "feynman_kac",
    "fit",
    "fit_many",
    "from_equinox",
    "from_keras",
    "from_linen",
    "from_nnx",
    "from_params",
    "from_torch",
    "gaussian",
    "io",
    "kernels",
    "learned",
    "likelihoods",
    "load",
    "map_estimate",
    "metrics",
    "mlp",
    "model",
    "networks",
    "ohsmc",
    "online",
    "parallel",
    "parameters",
    "partial_bnn",
    "plots",
    "predict",
    "prediction",
    "pretrained",
    "priors",
    "refine",
    "report",
    "reporting",
    "resampling",
    "results",
    "sampled",
    "samplers",
    "save",
    "sgsmc",
    "smc",
    "subsets",
    "to_arviz",
    "training",
    "two_stage",
    "types",
    "weights",
]
