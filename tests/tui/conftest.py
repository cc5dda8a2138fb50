"""Keep the settings of this machine out of the tests here."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _alone(nobodys_settings: None) -> None:
    """Hide the environment's settings."""
