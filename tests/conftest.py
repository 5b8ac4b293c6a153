"""Strict settings for every test: types enforced, no rank promotion, no key used twice."""

import gc
import os
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

# Compiling is most of the work. Many tests compile the same programs: workers, processes they start and
# the next run share them. And where a test does not compute for long, LLVM is quick rather than good.
_SHARED = {
    "jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".pytest_cache" / "programs"),
    "jax_persistent_cache_min_compile_time_secs": 0.2,
    "jax_disable_most_optimizations": True,
}
for _name, _value in _SHARED.items():
    if _name.upper() not in os.environ:
        os.environ[_name.upper()] = str(_value)
        jax.config.update(_name, _value)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

install_import_hook(["partialbayes", "reproduction"], "beartype.beartype")


@pytest.fixture(autouse=True, scope="module")
def programs(request):
    """Compiled well for long runs, the statistical ones, and let go after each module.

    Every program holds some dozens of memory maps, and Linux allows a process 65,530: a worker that
    keeps the programs of half the suite dies of it.
    """
    jax.config.update("jax_disable_most_optimizations", request.path.parent.name != "statistical")
    yield
    jax.clear_caches()
    gc.collect()
