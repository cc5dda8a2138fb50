"""Tells a page that something has changed, without a queue that grows while the page is slow."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from streamproc.read_model.rows import Changes

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S: Final = 0.1  # a person sees no more than ten updates a second


class ChangeSubscription:
    """What has changed since the last call of `changed`: a set of runs, not of events, so a slow reader holds no more
    than there are runs. Belongs to one event loop."""

    def __init__(self, closed: Callable[[ChangeSubscription], None], every_s: float = EVERY_S) -> None:
        self.last = Changes()
        """What else the last answer was about: decisions, commands, accounts, refused records."""
        self._closed = closed
        self._every_s = every_s
        self._changes = Changes()
        self._wake = asyncio.Event()
        self._answered_s = 0.0

    def add(self, changes: Changes) -> None:
        """Add the changes of a batch."""
        self._changes.add(changes)
        self._wake.set()

    async def changed(self) -> set[str]:
        """Wait for a change, but answer at most every `every_s` seconds; return the runs that have changed.

        The set is empty if only something else has, which `last` tells.
        """
        await self._wake.wait()
        await asyncio.sleep(max(0.0, self._answered_s + self._every_s - time.monotonic()))
        self._answered_s = time.monotonic()
        self._wake.clear()
        self.last, self._changes = self._changes, Changes()
        return self.last.run_ids

    def close(self) -> None:
        """Get no more changes."""
        self._closed(self)
