"""The fixtures of tacit's own tests."""

from tests.conftest import data_root

__all__ = ["data_root"]
