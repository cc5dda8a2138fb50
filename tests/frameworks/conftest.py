"""Shared by the tests of the frameworks."""

from tests.integrations.conftest import in_this_process

__all__ = ["in_this_process"]
