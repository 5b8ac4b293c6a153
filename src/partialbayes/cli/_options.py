"""Turn the parameters of the estimators into options of "fit"."""

from __future__ import annotations

import inspect
import re
import typing
from typing import Any

import tyro

# These have another option, or no use on a command line, where rows do not stream in.
_OWN = ("random_state", "verbose", "window_size", "n_replays")
_TYPES: dict[str, Any] = {
    "hidden_layer_sizes": tuple[int, ...] | None,
    "stochastic": str | None,
    "method": str,
}


def estimator_options() -> dict[str, tuple[Any, Any]]:
    """Return the type, with its help text, and the default of each option by name."""
    from partialbayes.estimators._estimators import PartialBNNRegressor as Estimator

    hints = typing.get_type_hints(Estimator.__init__)
    words = _described(inspect.getdoc(Estimator) or "")
    found = {}
    for name, parameter in inspect.signature(Estimator.__init__).parameters.items():
        if name == "self" or name in _OWN:
            continue
        kind = _TYPES.get(name, hints[name])
        help_text = tyro.conf.arg(help=words.get(name, ""))
        found[name] = (typing.Annotated[kind, help_text], parameter.default)
    return found


def _described(docstring: str) -> dict[str, str]:
    """Return the description of each argument in a docstring."""
    _, _, rest = docstring.partition("Args:\n")
    found: dict[str, str] = {}
    name = None
    for line in rest.splitlines():
        if not line.strip() or not line.startswith("    "):
            break
        if match := re.fullmatch(r"    (\w+): (.*)", line):
            name = match[1]
            found[name] = match[2]
        elif name is not None:
            found[name] += " " + line.strip()
    return {name: text.replace("``", "").replace("`", "") for name, text in found.items()}
