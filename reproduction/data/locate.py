"""Where the files of the data sets are, and reading them.

A file is looked for in the folder given, else in the folder of the environment variable
``PARTIALBAYES_DATA``, then in the user's cache, where downloads go.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import zlib
from pathlib import Path

DATA_VARIABLE = "PARTIALBAYES_DATA"
CACHE_VARIABLE = "PARTIALBAYES_CACHE"


class MissingDataError(FileNotFoundError):
    """A data set is nowhere to be found; the message says which file to put where.

    Example:
        >>> from reproduction import data
        >>> issubclass(data.MissingDataError, FileNotFoundError)
        True
    """


class DamagedDataError(ValueError):
    """A file is there but is not the data set it should be; the message names it.

    Example:
        >>> from reproduction import data
        >>> issubclass(data.DamagedDataError, ValueError)
        True
    """


def cache_folder() -> Path:
    """Where downloaded data sets are kept.

    The folder of the environment variable ``PARTIALBAYES_CACHE`` if it is set; else ``partialbayes``
    in the user's cache, which is ``$XDG_CACHE_HOME`` or ``~/.cache``, on macOS ``~/Library/Caches``
    and on Windows ``%LOCALAPPDATA%``.

    Example:
        >>> from reproduction import data
        >>> data.cache_folder().is_absolute()
        True
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    home = Path.home()
    if sys.platform == "win32":
        user = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        user = home / "Library" / "Caches"
    else:
        user = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return (user / "partialbayes").absolute()


def find_file(file: str, folder: str | Path | None) -> Path | None:
    """The file in the folder given, or in that of the environment; ``None`` to go on looking.

    Raises:
        MissingDataError: If there is no such folder at all.
    """
    chosen = folder or os.environ.get(DATA_VARIABLE)
    if not chosen:
        return None
    place = Path(chosen).expanduser()
    if not place.is_dir():
        named = "the folder given" if folder else DATA_VARIABLE
        raise MissingDataError(f"{named} is {chosen}, and there is no such folder to look for data in.")
    return place / file if (place / file).is_file() else None


def read_gzip(path: Path, sha256: str | None = None) -> bytes:
    """The file's content, uncompressed, after a check that it is the one meant."""
    packed = path.read_bytes()
    if sha256 is not None and hashlib.sha256(packed).hexdigest() != sha256:
        raise DamagedDataError(
            f"{path} is damaged or another file than the one meant (its sha256 differs): replace it."
        )
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedDataError(
            f"{path} is damaged and cannot be uncompressed: delete or replace it."
        ) from error


def explain_missing(name: str, file: str, reason: str, folder: str | Path | None) -> str:
    """The sentence for a data set that is nowhere, with where to put it."""
    cache = cache_folder()
    place = folder or os.environ.get(DATA_VARIABLE)
    where = f"neither in {place} nor in {cache}" if place else f"not in {cache}"
    return f"{name} is {where} and {reason}: put it in {place or cache} as {file}."
