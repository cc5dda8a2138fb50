"""Pairs tool calls with their results, which may come later, in another order, or never."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from streamproc.importers.event_limits import fit_to_limits
from streamproc.importers.imported import Imported

WAITING_MAX: Final = 32  # events of a run that a call without a result holds back: memory stays flat


@dataclass(slots=True, eq=False)
class _Waiting:
    """An event that waits for the results of its calls, or for the events before it."""

    event: dict[str, Any]
    number: int
    unit: str
    response: str
    open: int = 0  # calls without a result so far


class Pairing:
    """The events of one run, in order; a turn is complete with the result of its last call.

    Events are given back when all that came before them are complete, or when `WAITING_MAX` events wait for a call that
    nothing answers. The newest event is kept until another one is added: it may get further calls.
    """

    def __init__(self) -> None:
        self._events: deque[_Waiting] = deque()
        self._open: dict[str, list[tuple[_Waiting, dict[str, Any]]]] = {}

    @property
    def newest(self) -> dict[str, Any] | None:
        """The event that was added last; None if there is none, or it was given back."""
        return self._events[-1].event if self._events else None

    @property
    def has_open(self) -> bool:
        """Whether any call waits for its result."""
        return bool(self._open)

    def is_open(self, call_id: str) -> bool:
        """Whether a call of this id waits for its result."""
        return call_id in self._open

    def newest_of(self, response: str) -> dict[str, Any] | None:
        """Return the newest event if it is a turn of this response, parts of which may come one by one."""
        return self.newest if response and self._events and self._events[-1].response == response else None

    def add(self, event: dict[str, Any], number: int, unit: str, response: str = "") -> None:
        """Add an event. Its calls may get their results later, by their ids, which need not be unique in a log."""
        self._events.append(_Waiting(event, number, unit, response))
        for call in event.get("tool_calls") or ():
            self._expect(call)

    def add_person(self, run_id: str, number: int, unit: str, at: Any = None) -> None:
        """Add that a person sent a message."""
        self.add({"type": "user.message", "run_id": run_id, "at": at}, number, unit)

    def add_call(self, call: dict[str, Any]) -> None:
        """Add a call to the newest event."""
        waiting = self._events[-1]
        waiting.event.setdefault("tool_calls", []).append(call)
        self._expect(call)

    def _expect(self, call: dict[str, Any]) -> None:
        waiting = self._events[-1]
        if "result" not in call and "error" not in call:
            waiting.open += 1
            self._open.setdefault(str(call.get("id") or ""), []).append((waiting, call))

    def answer(self, call_id: str, text: str, *, failed: bool = False, at: Any = None, name: str = "") -> bool:
        """Give a call its result, and its turn the time of that. Returns whether a call waited for it.

        Some models use an id again: the newest turn with an open call of this id counts. A name tells apart calls of
        one turn that share an id. An empty id means the oldest open call.
        """
        found = self._find(call_id, name)
        if found is None:
            return False
        waiting, call = found
        if failed:
            call["error"] = text or True
        else:
            call["result"] = text
        waiting.open -= 1
        if at is not None:
            waiting.event["at"] = at
        return True

    def _find(self, call_id: str, name: str) -> tuple[_Waiting, dict[str, Any]] | None:
        key = call_id or ("" if "" in self._open else next(iter(self._open), ""))
        calls = self._open.get(key)
        if not calls:
            return None
        turn = calls[-1 if call_id else 0][0]
        places = [place for place, (waiting, _) in enumerate(calls) if waiting is turn]
        named = [place for place in places if calls[place][1].get("name") == name]
        found = calls.pop((named or places)[0])
        if not calls:
            del self._open[key]
        return found

    def complete(self) -> Iterator[Imported]:
        """Yield the events that wait for nothing, in order."""
        while len(self._events) > 1 and (not self._events[0].open or len(self._events) > WAITING_MAX):
            yield self._take()

    def rest(self) -> Iterator[Imported]:
        """Yield what is left at the end of the run: its open calls stay unanswered."""
        while self._events:
            yield self._take()

    def _take(self) -> Imported:
        waiting = self._events.popleft()
        if waiting.open:
            for key, calls in list(self._open.items()):
                self._open[key] = [one for one in calls if one[0] is not waiting]
                if not self._open[key]:
                    del self._open[key]
        return Imported(fit_to_limits(waiting.event), waiting.number, waiting.unit)
