"""Shared by the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deploy.local.chromium import ARGUMENTS, MISSING, find
from tests.web.deployment import LiveDeployment, PageBrowser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A Chromium; without one the test is skipped."""
    path = find()
    if path is None:
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def deployment(brokers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDeployment]:
    """A worker and a page that the tests of a file share."""
    made = LiveDeployment(brokers, tmp_path_factory.mktemp("page"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser(chromium: Any, deployment: LiveDeployment) -> PageBrowser:
    """Browsers that are logged in to the page of the deployment."""
    return PageBrowser(chromium, deployment)
