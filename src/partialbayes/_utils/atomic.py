"""Files that are there whole or not at all.

What is not finished yet has a name that ends in ``.part`` and tells which process writes it. A process
that is killed leaves such a file behind; the next one that writes to the same place removes it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PART = ".part"
_LONGEST = 100  # of the final name, in that of an unfinished file


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file beside its final name, flush it to the disk, and rename it over that name.

    Whatever happens there is one whole file, the new one or the one before.

    Args:
        path: The file; its folder is made if need be.
        content: What to write.
        mode: Who may read it, as far as the umask allows; the owner alone by default.

    Raises:
        OSError: The disk refused; it names the file, not what was to become it.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_unfinished(path)
        handle, temporary = tempfile.mkstemp(_PART, unfinished_prefix(path), path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode & ~umask())
        os.replace(temporary, path)
        flush_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


@contextmanager
def unfinished_folder(path: Path) -> Iterator[Path]:
    """A folder beside ``path`` to fill and rename; what is not renamed is removed in the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_unfinished(path)
    temporary = Path(tempfile.mkdtemp(_PART, unfinished_prefix(path), path.parent))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def unfinished_prefix(path: Path) -> str:
    """How the names of this process's unfinished files for ``path`` begin."""
    return f".{path.name[:_LONGEST]}.{os.getpid()}-{_machine()}."


def is_unfinished(path: Path, name: str) -> bool:
    """Whether ``name`` is that of an unfinished file for ``path``, of whatever process."""
    return _writer(path, name) is not None


def clear_unfinished(path: Path) -> None:
    """Remove what processes that are dead by now left unfinished beside ``path``."""
    for entry in list(path.parent.iterdir()):
        writer = _writer(path, entry.name)
        if writer is None or writer[1] != _machine() or _is_alive(writer[0]):
            continue
        with suppress(OSError):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def require_writable(path: Path) -> None:
    """Try whether a file could be made beside ``path``, before work is done for it.

    Raises:
        OSError: It could not; the error names ``path``.
    """
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process or thread at a time into the block, where the system has such locks."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def umask() -> int:
    """What the process withholds from others in files that it makes."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def flush_folder(folder: Path) -> None:
    """Make a renaming itself durable, where the system allows it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _writer(path: Path, name: str) -> tuple[int, str] | None:
    """The process that an unfinished file for ``path`` is of, and its machine."""
    start = re.escape(f".{path.name[:_LONGEST]}.")
    match = re.fullmatch(rf"{start}(\d+)-([0-9a-f]{{8}})\.[^.]+{re.escape(_PART)}", name)
    return None if match is None else (int(match[1]), match[2])


def _machine() -> str:
    """What tells the processes of this machine, or container, from those of others."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # there is no harmless way to ask
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
