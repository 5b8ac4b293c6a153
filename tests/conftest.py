"""Strict settings for every test: types enforced, no rank promotion, no key used twice."""

import gc

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

install_import_hook("partialbayes", "beartype.beartype")


@pytest.fixture(autouse=True, scope="module")
def programs_let_go():
    """Lets compiled programs go after each module.

    Every program holds some dozens of memory maps, and Linux allows a process 65,530: a worker that
    keeps the programs of half the suite dies of it.
    """
    yield
    jax.clear_caches()
    gc.collect()
