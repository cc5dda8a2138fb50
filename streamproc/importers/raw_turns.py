"""Raw turns from logs: fields within the limits of the model, and turns that wait for the results of their calls."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

import xxhash

from streamproc.fingerprint.reviews import stop_reason
from streamproc.importers.content import count, is_media, items, mapping, string, without_blanks
from streamproc.importers.imported import Import, Imported
from streamproc.importers.log_file import LogFile, LogRow
from streamproc.model.aliases import BREAKDOWNS, tokens_in
from streamproc.model.budgets import INTEGER_MAX
from streamproc.model.nesting import depth_exceeds
from streamproc.model.raw_events import CALLS_MAX
from streamproc.model.raw_fields import NAME_MAX, SCOPE_MAX, read_time_ms

NAME_KEPT: Final = 40  # characters kept of a longer one, before its hash
DEPTH_MAX: Final = 64  # levels of a record; raw events may have 100
WAITING_MAX: Final = 32  # events of a run behind a turn whose calls have no results; results come long before that
RUNS_MAX: Final = 256  # interleaved runs of one log with turns that wait
NO_TIMES: Final = "The log has no times: silence and limits of time cannot be seen."


class RunScope(NamedTuple):
    """The run that records of a log belong to."""

    run_id: str
    node: str
    session_id: str
    parent_run_id: str = ""

    def event(self, event_id: str, **fields: Any) -> dict[str, Any]:
        """Return a raw event of this run."""
        scope = {"run_id": name(self.run_id, "unknown"), "session_id": scope_name(self.session_id)}
        return scope | {"parent_run_id": name(self.parent_run_id), "event_id": name(event_id)} | fields


def name(value: Any, default: str = "") -> str:
    """Return a name or an id that fits into a raw event: a longer one is cut, and ends with its hash."""
    text = (string(value) or default).encode("utf-8", "replace").decode()
    if len(text.encode()) <= NAME_MAX:
        return text
    return f"{text[:NAME_KEPT]}~{xxhash.xxh3_64_hexdigest(text.encode())}"


def line_event_id(run_id: str, ordinal: int) -> str:
    """Return the id of the event at this position (from 0) of a run in a file, or of a log, if it has none."""
    return xxhash.xxh3_128_hexdigest(f"{run_id}\0{ordinal}".encode("utf-8", "surrogatepass"))


def scope_name(value: Any) -> str:
    """Return a name that fits into the scope of a raw event."""
    text = name(value)
    return text if len(text) <= SCOPE_MAX else f"{text[:NAME_KEPT]}~{xxhash.xxh3_64_hexdigest(text.encode())}"


def session_scope(session_id: str, agent_id: str, node: str) -> RunScope:
    """Return the scope of a session, or of one of its sub-agents: a run of its own."""
    session = session_id or "unknown"
    if not agent_id:
        return RunScope(session, node, scope_name(session))
    return RunScope(f"{session}/{agent_id}", node, scope_name(session), session)


def time_ms(value: Any) -> int | None:
    """Return a time as epoch milliseconds; None for anything that is none."""
    if not isinstance(value, (str, int, float)) or value != value:  # NaN differs from itself
        return None
    try:
        return read_time_ms(value)
    except (ValueError, OverflowError):
        return None


def tokens(*values: Any) -> int:
    """Return the sum of numbers of tokens, each of which may be anything."""
    return min(sum(map(count, values)), INTEGER_MAX)


def usage_of(usage: Any) -> dict[str, int]:
    """Return the numbers of tokens of a response, by whichever names a log has them; those of the input include what
    was read from and written to a cache."""
    told = {part: value if part in BREAKDOWNS else tokens(value) for part, value in mapping(usage).items()}
    return {name: min(number, INTEGER_MAX) for name, number in tokens_in(told).items()}


def is_too_deep(record: Any) -> bool:
    """Whether a record is nested deeper than any real one. Reading it could exhaust the stack."""
    return depth_exceeds(record, DEPTH_MAX)


@dataclass(slots=True)
class PendingTurn:
    """A raw event that cannot be emitted yet: more of it, or the result of a call, may follow."""

    run_id: str
    number: int
    event: dict[str, Any]
    key: str = ""  # of the model's response, if it comes in several records
    at: int | None = None  # when its last part happened, in ms
    texts: dict[str, None] = field(default_factory=dict)  # in the order in which they were said
    calls: list[dict[str, Any]] = field(default_factory=list)
    call_ids: set[str] = field(default_factory=set)
    waits_for: set[str] = field(default_factory=set)  # ids of calls without a result

    def happened(self, at: int | None) -> None:
        """Take the time of a part."""
        if at is not None and (self.at is None or at > self.at):
            self.at = at

    def say(self, text: str) -> None:
        """Add a text, unless it was said before: some versions repeat a response as it grows."""
        if text:
            self.texts.setdefault(text)

    @property
    def answered(self) -> bool:
        """Whether there are calls, and all have results."""
        return bool(self.calls) and not self.waits_for

    def finished(self) -> Imported | None:
        """Return the event; None for a turn that says nothing."""
        event = self.event | {"at": self.at}
        if event.get("type", "turn") == "turn":
            event |= {"output": "\n".join(self.texts), "tool_calls": self.calls[:CALLS_MAX]}
            ended = stop_reason(string(event.get("stop_reason")), is_empty=not self.texts and not self.calls)
            event["stop_reason"] = name(ended)
            if not any(event.get(part) for part in ("output", "tool_calls", "usage", "errors", "stop_reason")):
                return None
        return Imported(without_blanks(event), self.number)


class TurnBuffer:
    """Turns of the runs of one log, which wait until their calls have results. Each run keeps its order."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, deque[PendingTurn]] = OrderedDict()
        self._calls: dict[str, tuple[PendingTurn, dict[str, Any]]] = {}  # those without a result, by id
        self._responses: dict[tuple[str, str], PendingTurn] = {}
        self._changed: dict[str, None] = {}  # runs that may have events to emit
        self._done: list[Imported] = []

    def begin(self, run_id: str, number: int, event: dict[str, Any], key: str = "") -> PendingTurn:
        """Begin an event. The run's former one gets no further parts, except results."""
        turns = self._runs.setdefault(run_id, deque())
        self._runs.move_to_end(run_id)
        turn = PendingTurn(run_id, number, event, key)
        turns.append(turn)
        if key:
            self._responses[run_id, key] = turn
        self._changed[run_id] = None
        if len(self._runs) > RUNS_MAX:
            self._close(next(iter(self._runs)))
        return turn

    def user_message(self, scope: RunScope, number: int, event_id: str, at: int | None) -> None:
        """Add that a person sent a message, unless the run's last event is one: some logs have each message twice."""
        last = self.last(scope.run_id)
        if last is None or last.event.get("type") != "user.message":
            turn = self.begin(scope.run_id, number, scope.event(event_id, type="user.message"))
            turn.at = at

    def compacted(
        self, scope: RunScope, number: int, event_id: str, at: int | None, *, trigger: Any = "", before: Any = None,
        after: Any = None,
    ) -> None:  # fmt: skip
        """Add that the context was compacted, with its sizes in tokens before and after."""
        sizes = {"before_tokens": tokens(before) or None, "after_tokens": tokens(after) or None}
        event = scope.event(event_id, type="context.compacted", node=name(scope.node), trigger=scope_name(trigger))
        self.begin(scope.run_id, number, event | sizes).at = at

    def continued(self, scope: RunScope, number: int, event_id: str, at: int | None, *, by: str, reason: str) -> None:
        """Add that the run was about to stop, and was sent on."""
        event = scope.event(event_id, type="run.continued", node=name(scope.node), by=by, reason=reason)
        self.begin(scope.run_id, number, event).at = at

    def last(self, run_id: str) -> PendingTurn | None:
        """Return the last event of a run that is not emitted."""
        turns = self._runs.get(run_id)
        return turns[-1] if turns else None

    def response(self, run_id: str, key: str) -> PendingTurn | None:
        """Return the turn of a response that began in an earlier record."""
        return self._responses.get((run_id, key))

    def call(self, turn: PendingTurn, call_id: str, tool: Any, args: Any, *, waits: bool = True) -> None:
        """Add a call to a turn; one that `waits` delays the turn until its result comes."""
        if call_id and call_id in turn.call_ids:
            return
        turn.call_ids.add(call_id)
        call = {"name": name(tool, "unknown"), "args": args, "id": call_id}
        turn.calls.append(call)
        if waits and call_id:
            self._calls[call_id] = turn, call
            turn.waits_for.add(call_id)

    def waiting_call(self, call_id: str) -> dict[str, Any]:
        """Return a call that waits for its result; an empty one if there is none."""
        return self._calls[call_id][1] if call_id in self._calls else {}

    def answer(self, call_id: str, text: str, at: int | None, *, failed: bool = False) -> None:
        """Add the result of a call. A result without its call is skipped: the log began before it."""
        if (turn := self.release(call_id, at)) is not None:
            turn[1]["error" if failed else "result"] = text

    def release(self, call_id: str, at: int | None) -> tuple[PendingTurn, dict[str, Any]] | None:
        """Do not wait for the result of a call any more."""
        found = self._calls.pop(call_id, None)
        if found is not None:
            found[0].waits_for.discard(call_id)
            found[0].happened(at)
            self._changed[found[0].run_id] = None
        return found

    def ready(self) -> Iterator[Imported]:
        """Yield the events that are complete."""
        for run_id in list(self._changed):
            turns = self._runs[run_id]
            while len(turns) > 1 and (not turns[0].waits_for or len(turns) > WAITING_MAX):
                self._emit(turns.popleft())
        self._changed.clear()
        yield from self._done
        self._done.clear()

    def end_runs(self) -> None:
        """End all runs: calls that wait for results get none."""
        for run_id in list(self._runs):
            self._close(run_id)

    def close(self) -> Iterator[Imported]:
        """Yield all that is left, as the log is at its end."""
        self.end_runs()
        yield from sorted(self._done, key=lambda one: one.number)
        self._done.clear()

    def _close(self, run_id: str) -> None:
        for turn in self._runs.pop(run_id):
            self._emit(turn)
        self._changed.pop(run_id, None)

    def _emit(self, turn: PendingTurn) -> None:
        for call_id in turn.waits_for:
            self._calls.pop(call_id, None)
        if turn.key:
            self._responses.pop((turn.run_id, turn.key), None)
        if (done := turn.finished()) is not None:
            self._done.append(done)


class RecordReader:
    """Reads a log record by record into turns of a buffer. A format says what its records mean."""

    name: ClassVar[str]  # of the format
    timed = True  # whether a row has a time

    def __init__(self, log: LogFile, reading: Import) -> None:
        self.log = log
        self.tally = reading.tally(self.name)
        self.reading = reading
        self.buffer = TurnBuffer()

    @classmethod
    def read(cls, log: LogFile, reading: Import) -> Iterator[Imported]:
        """Yield the raw events of a log."""
        return cls(log, reading).events()

    def events(self) -> Iterator[Imported]:
        """Yield the raw events of the log."""
        for row in self.log.rows():
            self.take(row)
            yield from self.buffer.ready()
        self.end()
        if not self.timed:
            self.tally.notes[NO_TIMES] = None
        yield from self.buffer.close()

    def take(self, row: LogRow) -> None:
        """Take a row; one that is no record is counted."""
        if not isinstance(row.data, dict):
            self.tally.ignore(row.data)
        elif is_too_deep(row.data):
            self.tally.ignore("nested too deeply")
        else:
            self.record(row.data, row.number)

    def record(self, data: dict[str, Any], number: int) -> None:
        """Take a record."""
        raise NotImplementedError

    def end(self) -> None:
        """Take the end of the log."""


def is_human_text(content: Any, harness: tuple[str, ...]) -> bool:
    """Whether the content of a user's message has a part that the harness did not write."""
    blocks = [content] if isinstance(content, str) else items(content)
    for block in blocks:
        if is_media(block):
            return True
        text = string(block.get("text") if isinstance(block, dict) else block).strip()
        if text and not text.startswith(harness):
            return True
    return False
