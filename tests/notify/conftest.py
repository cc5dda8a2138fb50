"""Shared by the notifier's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.notify.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A running web server."""
    receiver = Receiver().start()
    yield receiver
    receiver.stop()
