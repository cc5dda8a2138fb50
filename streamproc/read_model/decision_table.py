"""The tables `controls` and `policies`: every decision once, and the policies that decided."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamproc.model.raw_fields import log_ms
from streamproc.read_model.run_facts import FindingFacts, finding_facts, place_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from streamproc.core.decision import Decision, PolicyRef

CONTROLS_MAX: Final = 500_000
TRIMMED_AT_ONCE: Final = 2_000
MESSAGE_MAX: Final = 2_000  # characters of a sentence in its own column; the body has all of it

# What decisions have in common: with it, a body of 1 KB takes a third of its size.
COMMON: Final = (
    b'","labels":{"badge":"Loop "consensus","convergence","limit_from":"policy","unit":"micro_usd","used":,"limit":,'
    b'"snapshot":{"turns":,"first_error":"","failing_trend":[,"edge":["{"id":"","type":"run.resumed","type":'
    b'"budget.level","type":"loop.warning","type":"loop.halted","run_id":"","code":"LOOP00","severity":"warn","severity'
    b'":"halt","message":" was called with the same arguments and returned the same result for the at turns , with no '
    b'new information in between.","workflow":"","tenant":"","user":"","node":"","halt_reason":"stalled","terminal_'
    b'status":"aborted_stuck","stop_reason":"repeated_call","action":"switch_to_interactive","suggested_actions":["'
    b'retry_with_new_provider","ask_human"],"evidence":{"kind":"repeated_call","count":,"turns":[],"match":"exact",'
    b'"tool":"","args_hash":"","result_hash":"","output_hashes":["],"artifact_hashes":[],"failing_signatures":[]},'
    b'"trigger":{"event_id":"","turn":,"topic":"streamproc.turns","partition":,"offset":},"onset":,"policy":{"name":'
    b'"standard","version":"1","hash":""},"at":"2026-01-01T00:00:00.000Z"}'
)

_INSERT: Final = f"INSERT INTO controls VALUES ({','.join('?' * 18)})"


class DecisionNews(NamedTuple):
    """A decision, its row, and what it says about its run."""

    row: tuple[Any, ...]
    run_id: str
    policy: PolicyRef | None
    at_ms: int
    finding: FindingFacts | None
    time_ms: int  # of the broker
    code: str
    severity: str
    delay_ms: int | None


def decision_news(decision: Decision, value: bytes, time_ms: int) -> DecisionNews:
    """Return the rows of a decision; `value` is its JSON and `time_ms` the broker's time of the record."""
    trigger, policy = decision.trigger, decision.policy
    at_ms, place = log_ms(decision.at), place_of(decision, time_ms)
    stopped_by = ""
    if decision.code == "OPERATOR001" and trigger is not None:
        stopped_by = trigger.event_id.partition("@")[0]  # of a command that stops one run, or all runs of a user
    waited = time_ms - at_ms if at_ms and place.offset >= 0 and time_ms >= at_ms else None
    row = (
        decision.id, time_ms, decision.run_id, at_ms or time_ms, decision.code, decision.severity,
        decision.action or "", decision.message[:MESSAGE_MAX],
        None if decision.turn is None else min(decision.turn, 2**62),
        decision.workflow or "", decision.tenant or "", decision.user or "", place.partition, place.offset,
        policy.hash if policy is not None else "", stopped_by, waited, packed(value),
    )  # fmt: skip
    return DecisionNews(
        row, decision.run_id, policy, at_ms or time_ms, finding_facts(decision, time_ms),
        time_ms, decision.code, decision.severity, waited,
    )  # fmt: skip


def packed(value: bytes) -> bytes:
    """Compress the JSON of a decision."""
    packing = zlib.compressobj(1, zlib.DEFLATED, -12, 5, zdict=COMMON)
    return packing.compress(value) + packing.flush()


def unpacked(raw: bytes) -> bytes:
    """Return the JSON of a decision."""
    unpacking = zlib.decompressobj(-12, zdict=COMMON)
    return unpacking.decompress(raw) + unpacking.flush()


class DecisionTable:
    """Writes the tables `controls` and `policies`."""

    def __init__(self, connection: sqlite3.Connection, controls_max: int = CONTROLS_MAX) -> None:
        self._db = connection
        self._controls_max = controls_max
        self._added: list[DecisionNews] = []
        self.count()

    def count(self) -> None:
        """Count the rows: once, and after the table was cleared."""
        self._count: int = self._db.execute("SELECT count(*) FROM controls").fetchone()[0]

    def fold(self, news: Sequence[DecisionNews]) -> list[DecisionNews]:
        """Return the decisions that are not known yet; `write` adds them. A restarted worker repeats some."""
        ids = {one.row[0]: one for one in reversed(news)}  # the first of two wins
        marks = ",".join("?" * len(ids))
        known = {row[0] for row in self._db.execute(f"SELECT id FROM controls WHERE id IN ({marks})", list(ids))}
        self._added = [one for one in news if one.row[0] not in known and ids[one.row[0]] is one]
        return self._added

    def write(self) -> None:
        """Write what `fold` has found."""
        added = self._added
        self._db.executemany(_INSERT, [one.row for one in added])
        self._db.executemany(
            "INSERT INTO policies VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET decisions = decisions + 1, "
            "first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)",
            [
                (one.policy.name, one.policy.version, one.policy.hash, one.at_ms, one.at_ms)
                for one in added
                if one.policy is not None
            ],
        )
        self._count += len(added)
        self.drop()

    def drop(self) -> None:
        """Forget what `fold` has found."""
        self._added = []

    def trim(self) -> None:
        """Delete the oldest decisions beyond the limit."""
        surplus = self._count - self._controls_max
        if surplus > self._controls_max // 100:
            self._count -= self._db.execute(
                "DELETE FROM controls WHERE id IN (SELECT id FROM controls ORDER BY time_ms LIMIT ?)",
                (min(surplus, TRIMMED_AT_ONCE),),
            ).rowcount
