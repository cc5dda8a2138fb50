"""Shared by the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.deployment import LiveDeployment, PageBrowser


@pytest.fixture(scope="module")
def deployment(brokers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDeployment]:
    """A worker and a page that the tests of a file share."""
    made = LiveDeployment(brokers, tmp_path_factory.mktemp("page"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser(chromium: Any, deployment: LiveDeployment) -> PageBrowser:
    """Browsers that are logged in to the page of the deployment."""
    return PageBrowser(chromium, deployment.address)
