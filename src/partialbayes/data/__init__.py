"""The data sets of the paper: twelve UCI tables, two sets of images, three synthetic ones.

Files are looked for in a folder given, or if there is none in that of the environment variable
``PARTIALBAYES_DATA``; then in the user's cache (or the folder of ``PARTIALBAYES_CACHE``), and else
downloaded there from OpenML.
"""

from partialbayes.data.facts import UCI, Facts
from partialbayes.data.files import DamagedDataError, MissingDataError, cache_folder
from partialbayes.data.images import Images, fashion_mnist, mnist
from partialbayes.data.synthetic import crescent, moons, wave, wave_function
from partialbayes.data.tables import Table, uci, uci_splits

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
