"""What the runs of this process said last, so that a halt can be shown with the words that led to it.

Nothing is kept unless the policy of the workers asks for excerpts (`evidence_excerpts`), as their heartbeats say.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from streamproc.model.turn_texts import LONG_MAX, CallTexts, TurnTexts, cut, excerpt, size_of, turn_texts
from streamproc.settings import Settings

RUNS_MAX: Final = 1_000
TURNS_MAX: Final = 12  # of each run, the last ones: as many as a report shows of a loop
BYTES_MAX: Final = 65_536  # of the excerpts of a run: of more, the oldest turns are left out
CHARS_MAX: Final = 8_000_000  # of all runs together; beyond it, the runs that were silent longest are forgotten

_NO_TEXTS: Final = frozenset({
    "type", "run_id", "node", "at", "event_id", "usage", "model", "provider", "labels", "workflow", "tenant", "user",
    "tests", "progress", "request",
})  # fmt: skip


class _Kept(NamedTuple):
    """A turn's fields as they were given, cut, and about how many characters they are: to read them takes longer."""

    event_id: str
    fields: dict[str, Any]
    size: int


_Run = deque[_Kept]


class RecentTexts:
    """The last turns of the runs that this process publishes, by topic and run. Callable from any thread."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin with nothing, as a forked process does: there the lock may be held for ever."""
        self._lock = threading.Lock()
        self._wanted: set[str] = set()  # fleets whose policy asks for excerpts
        self._runs: OrderedDict[tuple[str, str], _Run] = OrderedDict()
        self._chars = 0

    def want(self, settings: Settings, wanted: bool) -> None:
        """Keep what runs of a fleet say from now on, or no longer."""
        (self._wanted.add if wanted else self._wanted.discard)(_fleet(settings))

    def note(self, settings: Settings, run_id: str, event_id: str, fields: Mapping[str, Any]) -> None:
        """Keep what a turn said, if its fleet wants that. `run_id` is the id as it is sent."""
        if not self._wanted or _fleet(settings) not in self._wanted:
            return
        kept = {name: cut(value) for name, value in fields.items() if name not in _NO_TEXTS}
        size = size_of(kept)
        place = _fleet(settings), run_id
        with self._lock:
            run = self._runs.get(place)
            if run is None:
                run = self._runs[place] = deque()
            self._runs.move_to_end(place)
            run.append(_Kept(event_id, kept, size))
            self._chars += size
            if len(run) > TURNS_MAX:
                self._chars -= run.popleft().size
            while len(self._runs) > RUNS_MAX or (self._chars > CHARS_MAX and len(self._runs) > 1):
                self._chars -= _size(self._runs.popitem(last=False)[1])

    def excerpts(self, settings: Settings, run_id: str) -> str:
        """Return redacted excerpts of a run's last turns, by their events' ids, as JSON. Empty if nothing is kept."""
        with self._lock:
            run = tuple(self._runs.get((_fleet(settings), run_id), ()))
        shown: dict[str, msgspec.Raw] = {}
        left = BYTES_MAX
        for kept in reversed(run):
            texts = turn_texts(kept.fields)
            turn = msgspec.json.encode(_redacted(texts)) if texts is not None else b"{}"
            left -= len(turn)
            if left < 0:
                break
            shown[kept.event_id] = msgspec.Raw(turn)
        return msgspec.json.encode(shown).decode() if shown else ""

    def drop(self, settings: Settings, run_id: str) -> None:
        """Forget what a run said."""
        with self._lock:
            self._chars -= _size(self._runs.pop((_fleet(settings), run_id), ()))


RECENT: Final = RecentTexts()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RECENT.forget)


def _fleet(settings: Settings) -> str:
    return f"{settings.brokers}/{settings.topic('turns')}"


def _size(run: Iterable[_Kept]) -> int:
    return sum(kept.size for kept in run)


def _redacted(texts: TurnTexts) -> dict[str, Any]:
    """Return the excerpts of a turn, in the fields of a turn."""
    fields = {"output": excerpt(texts.said, LONG_MAX), "artifact": excerpt(texts.left, LONG_MAX)}
    kept: dict[str, Any] = {name: text for name, text in fields.items() if text}
    if texts.calls:
        kept["tool_calls"] = [_redacted_call(call) for call in texts.calls]
    return kept


def _redacted_call(call: CallTexts) -> dict[str, Any]:
    shown = {"name": excerpt(call.tool, LONG_MAX), "args": excerpt(call.args, LONG_MAX)}
    if call.answer is not None:
        shown["result"] = excerpt(call.answer, LONG_MAX)
    return shown | ({"error": True} if call.failed else {})
