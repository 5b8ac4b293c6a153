"""Keep compiled programs on disk, so that the same training starts faster the next time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax


@contextmanager
def compilation_cache(path: str | Path) -> Iterator[None]:
    """Store compiled programs in a folder, and reuse them in later runs.

    This sets JAX's persistent compilation cache for the whole process, and restores the previous
    settings at the end of the block. Anyone who can write to the folder can make you run their
    program, so use a private one.

    Args:
        path: The folder. It is created if it does not exist.

    Yields:
        Nothing. Programs compiled inside the block are stored.

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
        # By default JAX keeps only what took a second to compile; training consists of smaller programs.
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)  # type: ignore[no-untyped-call]
        reset_cache()  # JAX reads the folder once, at the first compilation
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)  # type: ignore[no-untyped-call]
        reset_cache()
