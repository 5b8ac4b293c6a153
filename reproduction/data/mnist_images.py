"""MNIST and Fashion-MNIST."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from partialbayes._utils.atomic import write_atomically
from reproduction.data import openml
from reproduction.data.checksums import IMAGES, ImageFacts
from reproduction.data.locate import DamagedDataError, cache_folder, find_file, read_gzip

_SIDE = 28
_FILES = {"images": "images-idx3-ubyte.gz", "labels": "labels-idx1-ubyte.gz"}

Pixels = UInt8[np.ndarray, "images 28 28"]
Labels = UInt8[np.ndarray, " images"]


class Images(NamedTuple):
    """Pictures in shades of gray from 0 to 1 and their classes from 0 to 9.

    The training set has 60,000 images and the test set 10,000.

    Example:
        >>> from reproduction import data
        >>> data.Images._fields  # of images = data.mnist()
        ('train_inputs', 'train_targets', 'test_inputs', 'test_targets')
    """

    train_inputs: Float[np.ndarray, "train 28 28 1"]
    train_targets: Int[np.ndarray, " train"]
    test_inputs: Float[np.ndarray, "test 28 28 1"]
    test_targets: Int[np.ndarray, " test"]


def mnist(folder: str | Path | None = None, *, progress: bool = True) -> Images:
    """Handwritten digits (LeCun, Cortes and Burges).

    Looked for as the four original files in ``mnist/`` of the folder given, or else of that of the
    environment variable ``PARTIALBAYES_DATA``, then in the user's cache (see `cache_folder`), then
    downloaded from OpenML by scikit-learn, checked, and kept in the cache.

    Args:
        folder: To look in.
        progress: Whether a download shows a bar.

    Raises:
        MissingDataError: If it is nowhere; the message says where to put which file.
        DamagedDataError: If a file or a download is not the data set it should be.

    Example:
        >>> from reproduction import data
        >>> digits = data.mnist()  # doctest: +SKIP
    """
    return _load("mnist", folder, progress)


def fashion_mnist(folder: str | Path | None = None, *, progress: bool = True) -> Images:
    """Articles of clothing (Xiao, Rasul and Vollgraf), in the format of `mnist`.

    Args:
        folder: To look in, as for `mnist`, in ``fashion_mnist/``.
        progress: Whether a download shows a bar.

    Example:
        >>> from reproduction import data
        >>> clothes = data.fashion_mnist()  # doctest: +SKIP
    """
    return _load("fashion_mnist", folder, progress)


def _load(name: str, folder: str | Path | None, progress: bool) -> Images:
    parts = []
    for part, facts in IMAGES[name].items():
        files = [f"{name}/{part}-{ending}" for ending in _FILES.values()]
        paths = [path for file in files if (path := find_file(file, folder))]
        if len(paths) == len(files):
            checksums = (facts.images_sha256, facts.labels_sha256)
            pixels, labels = (_read(path, sha256) for path, sha256 in zip(paths, checksums, strict=True))
        else:
            paths = [cache_folder() / file for file in files]
            if not all(path.is_file() for path in paths):
                _download(name, folder, progress)
            pixels, labels = (_read(path) for path in paths)
            _check(pixels, labels, facts, name, str(paths[0]))
        parts += [_scale(pixels), labels.astype(np.int32)]
    return Images(*parts)


def _scale(pixels: Pixels) -> Float[np.ndarray, "images 28 28 1"]:
    return (pixels.astype(np.float32) / np.float32(255.0))[..., None]


def _read(path: Path, sha256: str | None = None) -> UInt8[np.ndarray, ...]:
    """The array of an IDX file of bytes: two zeros, type, number of axes, their sizes, the entries."""
    content = read_gzip(path, sha256)
    axes = content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    sizes = (
        np.frombuffer(content, ">u4", axes, offset=4) if len(content) >= 4 + 4 * axes else np.zeros(0)
    )
    if axes == 0 or len(content) != 4 + 4 * axes + np.prod(sizes, dtype=int):
        raise DamagedDataError(f"{path} is damaged: it is no IDX file of bytes; delete or replace it.")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(sizes.astype(int))


def _encode(array: UInt8[np.ndarray, ...]) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(header + array.tobytes(), mtime=0)


def _check(
    pixels: UInt8[np.ndarray, ...],
    labels: UInt8[np.ndarray, ...],
    facts: ImageFacts,
    name: str,
    source: str,
) -> None:
    count = sum(facts.class_counts)
    right = (
        pixels.shape == (count, _SIDE, _SIDE)
        and labels.shape == (count,)
        and tuple(np.bincount(labels, minlength=10)) == facts.class_counts
        and int(pixels.sum(dtype=np.int64)) == facts.pixel_sum
    )
    if not right:
        raise DamagedDataError(
            f"{source} is not {name}: its shape, class counts or pixels differ; delete or replace it."
        )


def _download(name: str, folder: str | Path | None, progress: bool) -> None:
    """Fetch, check and keep the images, in the original format; the training ones come first."""
    source = f"the download of {name}"
    files = [f"{name}/{part}-{ending}" for part in IMAGES[name] for ending in _FILES.values()]
    with openml.show_download(name, ", ".join(files), folder, progress) as advance:
        fetched = openml.fetch(openml.IMAGES[name])
        advance("checking")
        pixels = openml.stack_inputs(fetched, source, keep_constant=True).astype(np.uint8)
        labels = openml.to_numbers(fetched.target, source).astype(np.uint8)
        if pixels.shape[1:] != (_SIDE * _SIDE,):
            raise DamagedDataError(f"{source} is not {name}: it has {pixels.shape[1]} pixels an image.")
        pixels = pixels.reshape(-1, _SIDE, _SIDE)
        first, written = 0, {}
        for part, facts in IMAGES[name].items():
            rows = slice(first, first + sum(facts.class_counts))
            _check(pixels[rows], labels[rows], facts, name, source)
            written[f"{part}-{_FILES['images']}"] = pixels[rows]
            written[f"{part}-{_FILES['labels']}"] = labels[rows]
            first = rows.stop
        advance("writing")
        for file, array in written.items():
            write_atomically(cache_folder() / name / file, _encode(array), mode=0o644)
