"""The strict settings of the package's tests hold here too."""

from tests.conftest import programs  # noqa: F401
