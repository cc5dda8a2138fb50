"""What a log says of a time: how many runs there were, which were stopped, or would have been, and what they spent
after that.

What came after a halt is that of turns recorded while the run, or the session that it belongs to, was halted: until a
prompt resumed it, or to its end. Where sessions are only observed, a halt would have saved that. The log has the usage
of each turn, and the policy the prices of models; where it has none, only tokens are known.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.core.kept_runs import KeptRuns
from streamproc.live.store import CONTROL, TURNS, StoredRecord
from streamproc.model.controls import read_control
from streamproc.model.wire import decode
from streamproc.replay.scan import Spent

if TYPE_CHECKING:
    from streamproc.policy import Policy

_HALTED: Final = (
    "SELECT DISTINCT run_id FROM records WHERE role = ? AND at_ms >= ?"
    ' AND instr(value, CAST(\'"severity":"halt"\' AS BLOB))'
)
# Sub-agents are runs below that of their session: `SESSION/AGENT`.
_RECORDS: Final = (
    "SELECT * FROM records WHERE run_id = ?1 OR (run_id > ?1 || '/' AND run_id < ?1 || '0') ORDER BY position"
)


@dataclass(slots=True)
class Stop:
    """A halt that no person has made, and what was spent after it."""

    run_id: str
    code: str
    turn: int | None
    at_ms: int
    after: Spent = field(default_factory=Spent)


class Week(NamedTuple):
    """Runs that were heard of, and the halts among them, in their order."""

    runs: int = 0
    stops: tuple[Stop, ...] = ()

    @property
    def stopped(self) -> int:
        """How many runs were halted."""
        return len({stop.run_id for stop in self.stops})

    @property
    def after(self) -> Spent:
        """What was spent after the halts, in all."""
        return _sum(Spent(), *(stop.after for stop in self.stops))


def week(path: Path, since_ms: int, policy: Policy) -> Week:
    """Read what a log says since then, also while another process writes it; nothing if there is none."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            runs = db.execute("SELECT count(*) FROM runs WHERE heard_ms >= ?", (since_ms,)).fetchone()[0]
            counted = set[int]()
            stops: list[Stop] = []
            for (run_id,) in db.execute(_HALTED, (CONTROL, since_ms)).fetchall():
                records = map(StoredRecord._make, db.execute(_RECORDS, (run_id,)))
                stops += [stop for stop in _stops(run_id, records, policy, counted) if stop.at_ms >= since_ms]
    except sqlite3.Error:
        return Week()
    return Week(runs, tuple(sorted(stops, key=lambda stop: stop.at_ms)))


def _stops(run_id: str, records: Iterator[StoredRecord], policy: Policy, counted: set[int]) -> list[Stop]:
    """Return the halts of a run. `counted` has the positions of turns that count for a halt already: a sub-agent may be
    halted, and its session as well."""
    known: KeptRuns[str] = KeptRuns(policy.engine())
    found: list[Stop] = []
    stop: Stop | None = None  # while it is in force
    for record in records:
        if record.role == CONTROL and record.run_id == run_id:
            control = read_control(record.value)
            if control.severity == "halt" and control.halt_reason != "user_stop":
                stop = Stop(run_id, control.code, control.turn, record.at_ms)
                found.append(stop)
            elif control.type == "run.resumed":
                stop = None
        elif record.role == TURNS:
            before = _spent(known, record.run_id)
            known.step(record.run_id, decode(record.value), record.at_ms)
            if stop is not None and record.position not in counted:
                counted.add(record.position)
                stop.after = _sum(stop.after, _spent(known, record.run_id).since(before))
    return found


def _spent(known: KeptRuns[str], run_id: str) -> Spent:
    run = known.read(run_id)
    return Spent() if run is None else Spent.by(run)


def _sum(*spends: Spent) -> Spent:
    return Spent(*(sum(each) for each in zip(*spends, strict=True)))
