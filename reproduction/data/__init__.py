"""The data sets of the paper: the UCI tables and two more, two sets of images, three synthetic ones.

Files are looked for in a folder given, or if there is none in that of the environment variable
``PARTIALBAYES_DATA``; then in the user's cache (or the folder of ``PARTIALBAYES_CACHE``), and else
downloaded there from OpenML.
"""

from reproduction.data.checksums import UCI, Facts
from reproduction.data.locate import DamagedDataError, MissingDataError, cache_folder
from reproduction.data.mnist_images import Images, fashion_mnist, mnist
from reproduction.data.synthetic import crescent, moons, wave, wave_function
from reproduction.data.uci_tables import Table, uci, uci_splits

__all__ = [
    "UCI",
    "DamagedDataError",
    "Facts",
    "Images",
    "MissingDataError",
    "Table",
    "cache_folder",
    "crescent",
    "fashion_mnist",
    "mnist",
    "moons",
    "uci",
    "uci_splits",
    "wave",
    "wave_function",
]
