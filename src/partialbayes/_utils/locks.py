"""One process, or thread, at a time: a lock that dies with whoever holds it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType


class FileLock:
    """A lock on a name, kept by the system in a file beside it; a killed process holds none.

    Args:
        path: What to lock; the lock's own file is ``.<name>.lock`` in the same folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f".{path.name}.lock")
        self._handle: int | None = None

    def acquire(self) -> bool:
        """Take the lock; False if another holds it. Where the disk knows no locks there is none."""
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
            # The one before may have removed the file between the two calls above.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(self._path)):
                    return True
            self.release()

    def release(self) -> None:
        """Give it back, and remove the file."""
        if self._handle is None:
            return
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._handle), os.stat(self._path)):
                os.unlink(self._path)
        os.close(self._handle)
        self._handle = None

    def __enter__(self) -> FileLock:
        """Nothing more: `acquire` says whether it worked."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give it back."""
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
