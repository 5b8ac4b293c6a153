"""The folder of published data sets, for tests that read the real files."""

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
FOLDER = Path(os.environ.get("PARTIALBAYES_DATA") or _BESIDE)

needs_data = pytest.mark.skipif(
    not (FOLDER / "uci").is_dir(),
    reason="the data sets are not here: set PARTIALBAYES_DATA to their folder",
)
