"""What a person sees while a command works, and the folder of compiled programs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MOST_BYTES = 400_000_000  # of compiled programs that are kept


def tell(line: str = "") -> None:
    """Write a line to standard output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def on_terminal() -> bool:
    """Whether somebody looks on."""
    return sys.stderr.isatty()


@contextlib.contextmanager
def status(doing: str) -> Iterator[None]:
    """Show what is being done, on a terminal alone; the line is gone afterwards."""
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
    """Take away what `status` shows."""
    if on_terminal():
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def pieces(rows: int, size: int, doing: str) -> Iterator[slice]:
    """Rows in pieces, with a bar on a terminal where there is more than one piece."""
    from tqdm.auto import tqdm

    quiet = not on_terminal() or rows <= size
    with tqdm(total=rows, desc=doing, unit="row", leave=False, disable=quiet) as bar:
        for begin in range(0, rows, size):
            yield slice(begin, min(begin + size, rows))
            bar.update(min(size, rows - begin))


@contextlib.contextmanager
def kept_programs() -> Iterator[None]:
    """Keep compiled programs between calls, in the user's own cache.

    ``PARTIALBAYES_CACHE`` names another folder, and switches it off if it is empty; JAX's own setting
    goes before it.
    """
    folder = _folder()
    if folder is None:
        yield
        return
    from partialbayes.io._compilation_cache import compilation_cache

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_oldest(folder)
    except OSError:  # no home, or one that cannot be written to: then without
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
    # Programs are compiled for one processor; a home may be shared by several.
    return root / f"programs-{_processor()}"


def _processor() -> str:
    words = platform.machine() + platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words += "".join(sorted({line for line in lines if line.startswith(("flags", "model name"))}))
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def _remove_oldest(folder: Path) -> None:
    """Keep the folder below a size."""
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
