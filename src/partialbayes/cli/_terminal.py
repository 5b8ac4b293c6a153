"""Show progress in the terminal, and keep compiled programs in a folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MOST_BYTES = 400_000_000  # size of the folder of compiled programs


def tell(line: str = "") -> None:
    """Write a line to standard output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def on_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr.isatty()


@contextlib.contextmanager
def status(doing: str) -> Iterator[None]:
    """Show a status line while the block runs, if there is a terminal."""
    if not on_terminal():
        yield
        return
    sys.stderr.write(f"\r\x1b[2K{doing} …")
    sys.stderr.flush()
    try:
        yield
    finally:
        clear_status()


def clear_status() -> None:
    """Remove the line that `status` shows."""
    if on_terminal():
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def pieces(rows: int, size: int, doing: str) -> Iterator[slice]:
    """Split rows into pieces; show a progress bar if there is a terminal and more than one piece."""
    from tqdm.auto import tqdm

    quiet = not on_terminal() or rows <= size
    with tqdm(total=rows, desc=doing, unit="row", leave=False, disable=quiet) as bar:
        for begin in range(0, rows, size):
            yield slice(begin, min(begin + size, rows))
            bar.update(min(size, rows - begin))


@contextlib.contextmanager
def kept_programs() -> Iterator[None]:
    """Keep compiled programs between calls, in the user's cache folder.

    ``PARTIALBAYES_CACHE`` names another folder; if it is empty, nothing is kept. The setting
    ``JAX_COMPILATION_CACHE_DIR`` takes precedence.
    """
    folder = _folder()
    if folder is None:
        yield
        return
    from partialbayes.io._compilation_cache import compilation_cache

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_oldest(folder)
    except OSError:  # there is no home folder, or it cannot be written to
        yield
        return
    with compilation_cache(folder):
        yield


def _folder() -> Path | None:
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return None
    named = os.environ.get("PARTIALBAYES_CACHE")
    if named == "":
        return None
    if named is not None:
        root = Path(named)
    else:
        try:
            root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "partialbayes"
        except RuntimeError:
            return None
    # Programs are compiled for one kind of processor; several machines may share a home folder.
    return root / f"programs-{_processor()}"


def _processor() -> str:
    words = platform.machine() + platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words += "".join(sorted({line for line in lines if line.startswith(("flags", "model name"))}))
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def _remove_oldest(folder: Path) -> None:
    """Remove the oldest files until the folder is below its maximum size."""
    files: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another call may have removed it
            found: Any = path.stat()
            files.append((found.st_mtime, found.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= _MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
