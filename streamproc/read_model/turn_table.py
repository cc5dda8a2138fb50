"""The table `points`: where the turns of each run are in the log.

Of a turn only its head is read: a run's timeline is read from the log when it is opened. Of each run's turns every 64th
is remembered: enough to find the last thousands without reading a partition from its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from streamproc.model.guard_report import GUARD, HOST, STATES, TEXT_MAX
from streamproc.model.wire import HaltAcknowledged, ModelCalled, Usage
from streamproc.read_model.run_facts import AMOUNT_MAX, RunFacts
from streamproc.tracing.trace_context import TURN_HEADER, find_traceparent, split_traceparent

if TYPE_CHECKING:
    import sqlite3

    from streamproc.kafka.reading import Record
    from streamproc.read_model.series import SeriesTable

POINT_EVERY: Final = 64
POINTS_MAX: Final = 500_000  # each run has at least one
TRIMMED_AT_ONCE: Final = 2_000
DOING_MAX: Final = 120  # characters
SILENT: Final = frozenset(
    {"deadline", "budget.reached", "operator.stop", "operator.resume", "feedback", "halt.acknowledged"}
)
"""Events that are no sign of life of their run: workers and people write them."""

NO_USAGE: Final = msgspec.Raw(b"")


class TurnHead(NamedTuple):
    """The head of an event on the turns topic. `turn` is 1 for a turn, else 0; `heard`: it is a sign of life."""

    run_id: str
    partition: int
    offset: int
    at_ms: int
    heard: bool
    turn: int
    tokens: int
    cost_usd_micro: int
    guard: str = ""  # of a guard's report: what it says, such as stopped
    host: str = ""
    workflow: str = ""
    user: str = ""
    trace_id: str = ""
    doing: str = ""  # of a turn: its node and its last call, such as `coder: bash`


class _Head(msgspec.Struct):
    run_id: str
    type: str = "turn"
    usage: msgspec.Raw = NO_USAGE
    labels: msgspec.Raw = NO_USAGE
    workflow: msgspec.Raw = NO_USAGE
    user: msgspec.Raw = NO_USAGE
    node: str = ""
    calls: msgspec.Raw = NO_USAGE
    tool_calls: msgspec.Raw = NO_USAGE  # of a raw turn


class _CallName(msgspec.Struct, array_like=True):
    name: str = ""


class _RawCallName(msgspec.Struct):
    name: str = ""


class _RawUsage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


_read_head = msgspec.json.Decoder(_Head).decode
_read_usage = msgspec.json.Decoder(Usage).decode
_read_name = msgspec.json.Decoder(str).decode
_read_labels = msgspec.json.Decoder(dict[str, str]).decode
_read_calls = msgspec.json.Decoder(list[_CallName]).decode
_read_raw_calls = msgspec.json.Decoder(list[_RawCallName]).decode
_read_raw_usage = msgspec.json.Decoder(_RawUsage).decode


def turn_head(record: Record) -> TurnHead | None:
    """Read the head of an event, fingerprinted or raw; None for one that is no part of a run. Raises `ValueError`.

    Workers price raw turns by their policy; here their cost is 0 until a status has it.
    """
    head = _read_head(record.value or b"")
    if head.run_id.encode() != record.key:
        raise ValueError("the key is not the run")
    if head.type == ModelCalled.type:
        return None
    tokens = cost = 0
    if head.type == "turn":
        raw = bytes(head.usage)
        if raw.startswith(b"["):
            usage = _read_usage(raw)
            tokens, cost = usage.total_tokens or usage.input_tokens + usage.output_tokens, usage.cost_usd_micro or 0
        elif raw.startswith(b"{"):
            tokens = _raw_tokens(raw)
    elif head.type == HaltAcknowledged.type and head.labels:
        labels = _read_labels(head.labels)
        guard, host = labels.get(GUARD, ""), labels.get(HOST, "")[:TEXT_MAX]
        if guard in STATES:
            return TurnHead(head.run_id, record.partition, record.offset, record.timestamp, False, 0, 0, 0, guard, host)
    heard, is_turn = head.type not in SILENT, int(head.type == "turn")
    traceparent = find_traceparent(record.headers, TURN_HEADER)
    return TurnHead(
        head.run_id, record.partition, record.offset, record.timestamp, heard, is_turn, tokens, cost,
        workflow=_name(head.workflow), user=_name(head.user),
        trace_id=split_traceparent(traceparent).trace_id if traceparent else "",
        doing=_doing(head) if is_turn else "",
    )  # fmt: skip


def _name(raw: msgspec.Raw) -> str:
    """Return the name of a workflow or user; empty if it is none."""
    if not raw or raw == b'""':
        return ""
    try:
        return _read_name(raw)[:TEXT_MAX]
    except ValueError:
        return ""


def _doing(head: _Head) -> str:
    """Return what a turn did last: its node and its last call."""
    try:
        calls: list[Any] = _read_calls(head.calls) if head.calls else []
        if head.tool_calls:
            calls = list(_read_raw_calls(head.tool_calls))
    except ValueError:  # the words of another tool: the worker decides
        calls = []
    name = calls[-1].name if calls else ""
    return f"{head.node}: {name}"[:DOING_MAX] if name else head.node[:DOING_MAX]


def _raw_tokens(raw: bytes) -> int:
    try:
        usage = _read_raw_usage(raw)
    except ValueError:  # the words of another tool, or no numbers: the worker decides
        return 0
    return min(2**53, max(0, usage.total_tokens or usage.input_tokens + usage.output_tokens))


def note_head(run: RunFacts, head: TurnHead) -> None:
    """Count a turn of a run."""
    run.turns += head.turn
    run.tokens = min(AMOUNT_MAX, run.tokens + head.tokens)
    run.cost_usd_micro = min(AMOUNT_MAX, run.cost_usd_micro + head.cost_usd_micro)
    if head.turn and head.offset > run.last_offset:
        run.doing = head.doing
    run.last_offset = max(run.last_offset, head.offset)
    run.workflow, run.user = head.workflow or run.workflow, head.user or run.user
    run.trace_id = head.trace_id or run.trace_id
    if head.heard:
        run.heard_ms = max(run.heard_ms, head.at_ms)
        run.first_ms = min(run.first_ms or head.at_ms, head.at_ms)


class TurnTable:
    """Writes the table `points`, and counts turns in the series."""

    def __init__(self, connection: sqlite3.Connection, series: SeriesTable) -> None:
        self._db = connection
        self._series = series
        self._points: list[tuple[str, int, int, int, int]] = []
        self.count()

    def count(self) -> None:
        """Count the rows: once, and after the table was cleared."""
        self._count: int = self._db.execute("SELECT count(*) FROM points").fetchone()[0]

    def fold(self, run: RunFacts, head: TurnHead) -> None:
        """Count a turn of a run, and remember where its first event and each 64th turn are. `write` writes the rows."""
        if (head.heard and not run.heard_ms) or (head.turn and run.turns and run.turns % POINT_EVERY == 0):
            self._points.append((head.run_id, run.turns, head.partition, head.offset, head.at_ms))
        note_head(run, head)
        if head.turn:
            self._series.note_turn(run, head.at_ms, head.cost_usd_micro)

    def write(self) -> None:
        """Write what `fold` has found."""
        self._db.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?)", self._points)
        self._count += len(self._points)
        self.drop()

    def drop(self) -> None:
        """Forget what `fold` has found."""
        self._points = []

    def trim(self) -> None:
        """Delete the oldest rows beyond the limits."""
        surplus = self._count - POINTS_MAX
        if surplus > POINTS_MAX // 100:
            self._count -= self._db.execute(
                "DELETE FROM points WHERE (run_id, number) IN "
                "(SELECT run_id, number FROM points ORDER BY at_ms LIMIT ?)",
                (min(surplus, TRIMMED_AT_ONCE),),
            ).rowcount
