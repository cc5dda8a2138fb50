"""Whether workers decide on what agents do, as a listener hears it, and what follows from that for guards.

The tracker `Workers` says so from the workers' heartbeats, by a clock that stands still while this process does: a loop
that was blocked has heard nothing, and that is no fact about workers or the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, cast, get_args

from aiokafka import TopicPartition

from streamproc.client.recent_texts import RECENT
from streamproc.errors import shown
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.worker_listener import note_contact
from streamproc.fleet.workers import DISCONNECTED_AFTER_S, ROLE, WatchState, Workers
from streamproc.kafka.follow import Follower
from streamproc.kafka.partitioning import ANY, home_of
from streamproc.kafka.reading import Record
from streamproc.model.formats import clock, duration
from streamproc.model.provider_state import ProviderState
from streamproc.settings import Settings

log = logging.getLogger(__name__)

OnUnwatched = Literal["continue", "pause"]

LOOK_EVERY_S: Final = 0.25
BLOCKED_S: Final = 2.0  # between two looks: the event loop, or the whole process, stood still
OFF: Final = frozenset({"unwatched", "disconnected"})


def check_on_unwatched(option: str) -> OnUnwatched:
    """Return the option, or raise `ValueError`: a misspelt one must not end the pause in silence."""
    if option not in get_args(OnUnwatched):
        raise ValueError(f"on_unwatched: expected one of {get_args(OnUnwatched)}, got {shown(option)}")
    return cast("OnUnwatched", option)


def describe(state: WatchState) -> str:
    """Return the state as a part of a sentence, such as ``unwatched since 2026-01-31 14:03:07 UTC``."""
    if state.name == "disconnected":
        return f"disconnected for {duration(round(state.for_s * 1000))}"
    return f"{state.name} since {clock(state.since_ms)}" if state.name == "unwatched" and state.since_ms else state.name


class HeartbeatWatch:
    """Knows the state of the workers. Any thread may ask; `run` looks for changes, in the listener's event loop."""

    def __init__(
        self,
        settings: Settings,
        wake: Callable[[], None],
        providers: Callable[[Sequence[ProviderState], int], object] = lambda _states, _at_ms: None,
    ) -> None:
        """`wake` is called while a caller may wait for workers: at each look, as partitions change one by one.
        `providers` gets the states of breakers in a heartbeat, and its time."""
        self.state = WatchState("unknown")
        """Of the whole fleet, at the last look."""
        self.workers = Workers(record_signer(settings), settings.shadow)
        self._settings = settings
        self._topic = TopicPartition(settings.topic(ROLE), 0)
        self._wake = wake
        self._providers = providers
        self._functions: list[Callable[[WatchState], None]] = []
        self._announced = False  # whether the log says that guards are unwatched or disconnected
        self._now_s = 0.0  # of the last look that counted
        self._looked_s = 0.0  # of the last look; 0: none yet
        self._steady_s = 0.0  # until then, this process is too late to judge
        self._closed = False

    # What the consumer says.

    def apply(self, record: Record) -> None:
        """Apply a record of the workers topic."""
        heartbeat = self.workers.apply(record, time.monotonic())
        if heartbeat is not None:
            RECENT.want(self._settings, heartbeat.evidence_excerpts)
            if heartbeat.providers:
                self._providers(heartbeat.providers, heartbeat.at)

    def note_contact(self, follower: Follower) -> None:
        """Note when the broker has answered, if all that is on the topic was read."""
        if self._topic.topic not in follower.missing:
            note_contact(self.workers, follower, self._topic)
        elif follower.freshness is not None:  # no worker is heard there, but the broker is
            self.workers.contact(follower.freshness)

    # What is asked.

    def state_of(self, run_id: str) -> WatchState:
        """Return the state of the partition of a run; that of the fleet where its home is not known."""
        if self._settings.partitioner == ANY or not self.workers.partitions:
            return self.state
        home = home_of(self._settings, self.workers.partitions).of(run_id.encode("utf-8", "surrogatepass"))
        return self.workers.state(self._now_s, home)

    def why_wait(self, run_id: str) -> str:
        """Return why work on a run must wait for workers; empty: it need not."""
        state = self.state_of(run_id)
        return f"it is {describe(state)}" if state.name in OFF and not self._closed else ""

    def on_state(self, function: Callable[[WatchState], None]) -> Callable[[], None]:
        """Call a function at each change; return what ends that."""
        self._functions.append(function)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._functions.remove(function)

        return end

    async def run(self) -> None:
        """Look for changes until cancelled."""
        while True:
            self.look(time.monotonic())
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self, now_s: float) -> None:
        """Look for a change at this monotonic time. After a time without looks, the next few change nothing."""
        if self._looked_s and now_s - self._looked_s > BLOCKED_S:
            self._steady_s = now_s + DISCONNECTED_AFTER_S
        self._looked_s = now_s
        if now_s >= self._steady_s:
            self._look(now_s)

    def close(self) -> None:
        """Let go on what waits: nothing is heard any more."""
        self._closed = True
        self.state = WatchState("unknown")
        self._wake()

    def _look(self, now_s: float) -> None:
        self._now_s = now_s
        before, self.state = self.state, self.workers.state(now_s)
        self._wake()
        if before.name == self.state.name:
            return
        self._log()
        for function in tuple(self._functions):
            try:
                function(self.state)
            except Exception:
                log.exception("a function that was given to on_state has failed")

    def _log(self) -> None:
        """Log once that guards are off, and once that they are not."""
        if self.state.name in OFF and not self._announced:
            self._announced = True
            what = "no worker decides" if self.state.name == "unwatched" else "Kafka does not answer"
            log.warning("%s: no run that loops is halted now; guards are %s", what, describe(self.state))
        elif self.state.name == "watching" and self._announced:
            self._announced = False
            log.warning("workers decide again: guards are watching")
