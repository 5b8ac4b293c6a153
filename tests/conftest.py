"""Strict settings for every test: types enforced, no rank promotion, no key used twice."""

import os
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

install_import_hook("partialbayes", "beartype.beartype")


@pytest.fixture
def data_folder() -> Path:
    """The folder with the UCI and MNIST files, where there is one."""
    folder = Path(os.environ.get("PARTIALBAYES_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no benchmark data: set PARTIALBAYES_DATA to the folder that holds uci/ and mnist/")
    return folder
