"""Strict settings for every test: types enforced, no rank promotion, no key used twice."""

import gc
import os
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

# Many tests compile the same programs: workers, processes they start and the next run share them.
_SHARED = {
    "jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".pytest_cache" / "programs"),
    "jax_persistent_cache_min_compile_time_secs": 0.2,
}
for _name, _value in _SHARED.items():
    if _name.upper() not in os.environ:
        os.environ[_name.upper()] = str(_value)
        jax.config.update(_name, _value)
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
