"""What work on a run waits for before it starts: the end of a pause of the fleet, and, if asked for, a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from streamproc.client.heartbeat_watch import HeartbeatWatch, OnUnwatched
from streamproc.fleet.workers import WatchState
from streamproc.model.redaction import redact_id


class Pauses(Protocol):
    """Knows whether the fleet is paused, and wakes those who wait: implemented by `CommandHandler`."""

    def paused(self) -> str: ...

    def wake(self) -> None: ...

    async def wait(self, run_id: str, check: Callable[[], None], why: Callable[[], str]) -> None: ...

    def wait_blocking(
        self, run_id: str, check: Callable[[], None], timeout_s: float | None, why: Callable[[], str]
    ) -> bool: ...


class Waits:
    """The waits of one run. Each raises what `check` raises, as soon as the run must stop."""

    def __init__(self, commands: Pauses, watch: HeartbeatWatch, run_id: str, on_unwatched: OnUnwatched) -> None:
        self._commands = commands
        self._watch = watch
        self._run_id = run_id
        self._on_unwatched = on_unwatched

    @property
    def state(self) -> WatchState:
        """Whether workers decide on this run."""
        return self._watch.state_of(redact_id(self._run_id))

    def until_watched(self) -> str:
        """Return why work must wait for a worker; empty: it need not, or was told to continue."""
        return self._watch.why_wait(redact_id(self._run_id)) if self._on_unwatched == "pause" else ""

    def until_ready(self) -> str:
        """Return why no work may start; empty: it may."""
        return self._commands.paused() or self.until_watched()

    async def ready(self, check: Callable[[], None]) -> None:
        """Wait until work may start."""
        await self._commands.wait(self._run_id, check, self.until_ready)

    async def watched(self, check: Callable[[], None]) -> None:
        """Wait for a worker only: in a pause of the fleet, work that has begun goes on."""
        await self._commands.wait(self._run_id, check, self.until_watched)

    def ready_blocking(self, check: Callable[[], None], timeout_s: float | None) -> bool:
        """Do the same as `ready` in a thread. Returns False if work may not start after `timeout_s`."""
        return self._commands.wait_blocking(self._run_id, check, timeout_s, self.until_ready)

    def watched_blocking(self, check: Callable[[], None]) -> None:
        """Do the same as `watched` in a thread."""
        self._commands.wait_blocking(self._run_id, check, None, self.until_watched)
