"""From events of runs to the statements of calls that `step_provider` books, one for each provider and model.

A ``model.called`` event reports one call, or a caller that waits. Of a turn that names its model, an answer is a call
that was answered; errors that are all retryable, without any answer, are one that was not.
"""

from __future__ import annotations

from typing import Any, Final

from xxhash import xxh3_64_intdigest

from streamproc.core.accounts import ENTRIES_MAX
from streamproc.core.providers import ASK, BREAKER_VERSION, OK, UNAVAILABLE, CallEntry, CallStatement
from streamproc.model.provider_state import NAME_MAX, PREFIX, provider_name
from streamproc.model.wire import FAILED_RETRYABLE, Event, ModelCalled, Turn

DURATION_MS_MAX: Final = 2**40  # 35 years: what is longer is no duration
SPAN_MS: Final = 1_000  # answered calls within this time are one entry


class CallCollector:
    """Collects the calls of events of one partition, in log order. Most are answered: those become few entries."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._found: list[CallStatement] = []
        self._latest: dict[str, CallStatement] = {}

    def add(self, event: Event, at_ms: int | None, offset: int) -> None:
        """Take an event. One without a time says nothing about a window of time."""
        if type(event) is Turn:
            if not (event.model or event.provider):
                return
            make: Any = _of_turn
        elif type(event) is ModelCalled:
            make = _of_call
        else:
            return
        if not at_ms or not self._enabled or (entry := make(event, at_ms, offset)) is None:
            return
        name = provider_name(event.provider, event.model)[:NAME_MAX]
        statement = self._latest.get(name)
        if statement is None or len(statement.entries) >= ENTRIES_MAX:
            statement = self._latest[name] = CallStatement(BREAKER_VERSION, PREFIX + name, 0, [])
            self._found.append(statement)
        last = statement.entries[-1] if statement.entries else None
        if last is not None and last.outcome == entry.outcome == OK and 0 <= entry.at_ms - last.at_ms < SPAN_MS:
            last.last, last.count = entry.last, last.count + 1
            last.duration_ms = min(DURATION_MS_MAX, last.duration_ms + entry.duration_ms)
        else:
            statement.entries.append(entry)

    def take(self, partition: int = 0) -> list[CallStatement]:
        """Return the statements as of a partition, and forget them."""
        found, self._found = self._found, []
        self._latest.clear()
        for statement in found:
            statement.source = partition
        return found


def _of_turn(turn: Any, at_ms: int, offset: int) -> CallEntry | None:
    duration_ms = min(turn.usage.duration_ms, DURATION_MS_MAX) if turn.usage is not None else 0
    if turn.output is not None or turn.structured is not None or turn.calls:
        return CallEntry(offset, at_ms, OK, duration_ms=duration_ms)
    if turn.errors is None or not turn.errors.retryable:
        return None
    why = turn.errors.error_class
    return CallEntry(offset, at_ms, UNAVAILABLE, 1, run_tag(turn.run_id), duration_ms=duration_ms, why=why)


def _of_call(call: Any, at_ms: int, offset: int) -> CallEntry | None:
    if not (call.provider or call.model) or (call.waits and not call.permit):
        return None
    outcome = ASK if call.waits else UNAVAILABLE if call.outcome == FAILED_RETRYABLE else OK
    why = str(call.status or call.error_class or "") if outcome == UNAVAILABLE else ""
    times_ms = min(call.retry_after_ms, DURATION_MS_MAX), min(call.duration_ms, DURATION_MS_MAX)
    return CallEntry(offset, at_ms, outcome, 1, run_tag(call.run_id), *times_ms, call.permit, why)


def run_tag(run_id: str) -> int:
    """Return the hash by which a breaker tells runs apart."""
    return xxh3_64_intdigest(run_id.encode("utf-8", "surrogatepass")) >> 1
