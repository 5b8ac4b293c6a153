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
    "jax_persistent_cache_min_compile_time_secs": 0.1,
    "jax_disable_most_optimizations": True,
}
for _name, _value in _SHARED.items():
    if _name.upper() not in os.environ:
        os.environ[_name.upper()] = str(_value)
        jax.config.update(_name, _value)

# XLA's older way of writing loops compiles these small programs in half the time, and a program in one
# piece faster than in many. A flag XLA does not know ends the process: the second is of 0.9 and 0.10.
_flags = os.environ.get("XLA_FLAGS", "").split()
_flags += ["--xla_cpu_parallel_codegen_split_count=1"]
if jax.__version_info__ < (0, 11):
    _flags += ["--xla_cpu_use_fusion_emitters=false"]
os.environ["XLA_FLAGS"] = " ".join(dict.fromkeys(_flags))

# Tracing makes many objects that live. Python looks through them for cycles at every 700 new ones, which
# is a tenth of a worker's time.
gc.set_threshold(50_000)

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

install_import_hook(["partialbayes", "reproduction"], "beartype.beartype")


@pytest.fixture(autouse=True, scope="module")
def programs(request):
    """Compiled well for long runs, the statistical ones, and let go before there are too many.

    Every program holds memory, and maps of it, of which Linux allows a process 65,530: a worker that
    keeps the programs of half the suite dies of it. 8,000 maps are 2 to 3 GB.
    """
    jax.config.update("jax_disable_most_optimizations", request.path.parent.name != "statistical")
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 8_000:
        jax.clear_caches()
        gc.collect()
