"""Shared by the notifier's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notify.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A running web server."""
    receiver = Receiver().start()
    yield receiver
    receiver.stop()
