"""Lock a path for one process or thread; the lock ends with its holder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class FileLock:
    """A lock on a path, held by the operating system in a file beside it.

    Args:
        path: The path to lock; the lock file is ``.<name>.lock`` in the same folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f".{path.name}.lock")
        self._handle: int | None = None

    def acquire(self) -> bool:
        """Take the lock; return False if it is held. On disks without locks, always return True."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _lock(handle)
            except BlockingIOError:
                os.close(handle)
                return False
            except OSError:  # a network disk without locks
                os.close(handle)
                return True
            self._handle = handle
            # The previous holder may have removed the file in between.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(self._path)):
                    return True
            self.release()

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._handle is None:
            return
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._handle), os.stat(self._path)):
                os.unlink(self._path)
        os.close(self._handle)
        self._handle = None

    def __enter__(self) -> FileLock:
        """Return the lock, which `acquire` takes."""
        return self

    def __exit__(self, *error: object) -> None:
        """Release the lock."""
        self.release()


def _lock(handle: int) -> None:
    """Lock an open file, or raise BlockingIOError."""
    if os.name == "nt":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except PermissionError as error:
            raise BlockingIOError from error
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
