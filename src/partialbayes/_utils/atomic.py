"""Write files atomically.

An unfinished file has a name that ends in ``.part`` and contains the id of its process. A process that
is killed leaves it behind; the next one to write to the same path removes it.
"""

from __future__ import annotations

import errno
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
_LONGEST = 100  # characters of the final name in a temporary one


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file under a temporary name, flush it to disk, and rename it.

    At any time the path holds one complete file, the new or the old one. A symbolic link stays a
    link. A device or a pipe, such as ``/dev/stdout``, is written to and never replaced. The umask
    restricts ``mode``; by default only the owner may read.

    Raises:
        OSError: Writing failed; the error names ``path``.
    """
    temporary = None
    try:
        if _is_device(path):
            path.write_bytes(content)
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        clear_unfinished(target)
        handle, temporary = tempfile.mkstemp(_PART, unfinished_prefix(target), target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode & ~umask())
        os.replace(temporary, target)
        flush_folder(target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


@contextmanager
def unfinished_folder(path: Path) -> Iterator[Path]:
    """Make a temporary folder beside ``path`` to fill and rename; remove it if it was not renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_unfinished(path)
    temporary = Path(tempfile.mkdtemp(_PART, unfinished_prefix(path), path.parent))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def unfinished_prefix(path: Path) -> str:
    """Return the prefix of the names of this process's unfinished files for ``path``."""
    return f".{path.name[:_LONGEST]}.{os.getpid()}-{_machine()}."


def is_unfinished(path: Path, name: str) -> bool:
    """Return True if ``name`` is that of an unfinished file for ``path``, of any process."""
    return _writer(path, name) is not None


def clear_unfinished(path: Path) -> None:
    """Remove unfinished files beside ``path`` whose processes have ended."""
    for entry in list(path.parent.iterdir()):
        writer = _writer(path, entry.name)
        if writer is None or writer[1] != _machine() or _is_alive(writer[0]):
            continue
        with suppress(OSError):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def require_writable(path: Path) -> None:
    """Check that `write_atomically` can write to ``path``, before work is done for it.

    Raises:
        OSError: It cannot; the error names ``path``.
    """
    if _is_device(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return
    folder = Path(os.path.realpath(path)).parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder inside the block, on systems that have such locks."""
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
    """Return the umask of the process."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def flush_folder(folder: Path) -> None:
    """Flush a rename to disk, on systems that allow it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_device(path: Path) -> bool:
    """Return True for what exists and is neither a file nor a folder, such as a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _writer(path: Path, name: str) -> tuple[int, str] | None:
    """Return process id and machine of the writer of an unfinished file for ``path``, or None."""
    start = re.escape(f".{path.name[:_LONGEST]}.")
    match = re.fullmatch(rf"{start}(\d+)-([0-9a-f]{{8}})\.[^.]+{re.escape(_PART)}", name)
    return None if match is None else (int(match[1]), match[2])


def _machine() -> str:
    """Return a digest that identifies this machine or container."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # no safe way to test
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
