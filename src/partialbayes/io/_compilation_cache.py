"""Keep compiled programs on disk, so that the next start of the same training need not compile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax


@contextmanager
def compilation_cache(path: str | Path) -> Iterator[None]:
    """Inside this block JAX keeps what it compiles in a folder, and looks there first.

    The settings are JAX's own and for the whole process; they are put back at the end of the block.
    Someone who can write to the folder can make you run their program: use one of your own.

    Args:
        path: The folder; made if it is not there.

    Example:
        >>> import tempfile, jax.numpy as jnp, partialbayes as pb
        >>> model = pb.partial_bnn(pb.mlp([1, 5, 1]), "layers/0/*", pb.gaussian())
        >>> x = jnp.linspace(-1.0, 1.0, 8)[:, None]
        >>> with tempfile.TemporaryDirectory() as folder, pb.io.compilation_cache(folder):
        ...     trained = pb.fit(pb.map_estimate(model), (x, x), epochs=2)
    """
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    folder = Path(path).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "jax_enable_compilation_cache": True,
        "jax_compilation_cache_dir": str(folder),
        # By default only what took a second to compile is kept; a training run is many smaller programs.
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)  # type: ignore[no-untyped-call]
        reset_cache()  # the folder is looked up once, at the first compilation
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)  # type: ignore[no-untyped-call]
        reset_cache()
