"""What the pages ask the read model. Every query is bounded, and may come from any thread."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from streamproc.fleet.commands import StopCounts
from streamproc.fleet.lost_runs import is_lost
from streamproc.model.fleet_command import FLEET
from streamproc.model.formats import HOUR_MS
from streamproc.read_model.account_table import account_rows
from streamproc.read_model.decision_table import unpacked
from streamproc.read_model.refused_table import unpack_headers
from streamproc.read_model.rows import (
    DELIBERATE,
    AccountRow,
    CommandRow,
    DecisionFilter,
    DecisionRow,
    FleetCounts,
    FleetPage,
    LiveRun,
    PartitionHealth,
    PolicyRow,
    RefusedRow,
    RunFilter,
    RunGroup,
)
from streamproc.read_model.run_facts import FINISHED, SHOWN, live_run
from streamproc.read_model.run_filters import (
    COUNTS,
    FIELDS,
    GROUPS,
    LOST,
    STATUSES,
    bound,
    decision_filter,
    in_scope,
    run_filter,
    run_order,
)
from streamproc.read_model.run_table import unpack_facts
from streamproc.read_model.series import WINDOWS, SeriesBucket, SpendField, SpendShare, buckets_of, spend_shares

if TYPE_CHECKING:
    import sqlite3
    import threading
    from collections.abc import Mapping

Field = Literal["workflow", "tenant", "user", "code"]

ROWS_MAX: Final = 1_000  # of any answer
NAMES_MAX: Final = 500
SPEND_WINDOW: Final = "15m"  # over which the rate of spend is taken
RATE_MS: Final = 60_000  # over which turns per second are counted
DELAYS_MAX: Final = 1_000  # decisions whose delays make the median: the latest ones
SILENT_SHOWN: Final = 5  # runs that do not answer a command to stop
LATEST_MS: Final = 1 << 62
STOPPED: Final = "code IN (" + ", ".join(f"'{code}'" for code in sorted(DELIBERATE)) + ")"
DECISION_COLUMNS: Final = (
    "id, run_id, at_ms, code, severity, action, message, turn, workflow, tenant, user, partition, position, "
    "policy_hash, body"
)


class Point(msgspec.Struct, frozen=True):
    """Where a turn of a run is in the log. `number` counts the turns that were read before it."""

    number: int
    partition: int
    offset: int


class Queries:
    """The questions of a `ReadModel`. Its reader sets what it knows about the log: `ends`, `fetched`, `caught_up`,
    `read_share`."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.RLock) -> None:
        self._reader = connection
        self._read_lock = lock
        self.ends: Mapping[tuple[str, int], int] = {}
        """The ends of the log by topic role and partition, when the broker was last asked."""
        self.fetched: Mapping[tuple[str, int], int] = {}
        """The positions of the reader: they also move over records that were deleted."""
        self.caught_up = False
        self.read_share = 0.0
        """The share of what was there at the start that was read, 0 to 1."""
        self.lost_after_ms = 0
        """After how long without an event a running run is lost, by the policy; 0: never."""
        self._next: dict[tuple[str, int], tuple[int, int]] = {}

    def _lost_ms(self, now_ms: int | None = None) -> int:
        """Return the time before which the last event of a lost run was."""
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        return now_ms - self.lost_after_ms if self.lost_after_ms else 0

    def _shown(self, run_id: str, state: bytes, lost_ms: int) -> LiveRun | None:
        row = live_run(run_id, unpack_facts(state))
        if row is None or not is_lost(row.status, row.at_ms, lost_ms + self.lost_after_ms, self.lost_after_ms):
            return row
        return replace(row, lost=True)

    def counts(self, now_ms: int) -> FleetCounts:
        """Return the strip above the runs."""
        by_shown = dict(self._all("SELECT shown, count(*) FROM runs GROUP BY shown"))
        lost = Counter(dict(self._all(f"SELECT shown, count(*) FROM runs WHERE {GROUPS['lost']} GROUP BY shown",
                                      str(self._lost_ms(now_ms)))))  # fmt: skip
        command = self._one("SELECT status, by, why FROM commands WHERE scope = ? AND state = 'standing'", FLEET)
        status, by, why = command or ("CLEAR", "", "")
        stopped = self._one(f"SELECT count(*) FROM runs WHERE {GROUPS['halted']} AND {STOPPED}")[0]
        window = WINDOWS[SPEND_WINDOW]
        slot = now_ms // window.step_ms
        turns = self._one(
            "SELECT total(turns) FROM series WHERE step_ms = ? AND slot BETWEEN ? AND ?",
            window.step_ms, slot - RATE_MS // window.step_ms, slot - 1,  # the last is not over
        )  # fmt: skip
        spent = self._one(
            "SELECT total(cost_usd_micro) FROM series WHERE step_ms = ? AND slot BETWEEN ? AND ?",
            window.step_ms, slot - window.buckets + 1, slot,
        )  # fmt: skip
        delays = self._all(
            "SELECT delay_ms FROM controls WHERE time_ms > ? AND delay_ms IS NOT NULL ORDER BY time_ms DESC LIMIT ?",
            now_ms - RATE_MS,
            DELAYS_MAX,
        )
        ordered = sorted(delay for (delay,) in delays)
        return FleetCounts(
            at_ms=now_ms, fleet_status=status, fleet_by=by, fleet_why=why,
            working=sum(by_shown.get(SHOWN[one], 0) for one in ("others", "warned")) - lost.total(),
            warned=by_shown.get(SHOWN["warned"], 0) - lost[SHOWN["warned"]],
            halted=by_shown.get(SHOWN["halted"], 0), stopped=stopped, lost=lost.total(),
            turns_per_second=turns[0] * 1000 / RATE_MS,
            spend_usd_micro_per_hour=int(spent[0]) * HOUR_MS // window.span_ms,
            delay_ms=ordered[len(ordered) // 2] if ordered else None,
            behind_records=sum(one.behind for one in self.health()), caught_up=self.caught_up,
            read_share=1.0 if self.caught_up else self.read_share,
        )  # fmt: skip

    def runs(
        self,
        group: RunGroup,
        filter: RunFilter,  # noqa: A002
        *,
        limit: int = 120,
        offset: int = 0,
        since_ms: int = 0,
        before_ms: int = 0,
        sort: str = "",
        stopped: bool | None = None,
    ) -> FleetPage:
        """Return runs of a group, the most urgent first; of the others, running ones before finished ones.

        `sort` is one of `SORTS`, with a minus before it from the largest on; anything else sorts by urgency.
        Of halted runs, `since_ms` and `before_ms` (log times, 0: any) choose those that were halted in between, and
        `stopped` those that people have stopped, or the others.
        """
        if filter.status == LOST and group != LOST:
            return FleetPage(rows=(), total=0)
        where, values = run_filter(filter)
        lost_ms = self._lost_ms()
        if group != "halted":
            values.insert(0, str(lost_ms))
        if group == "halted" and (since_ms or before_ms):
            where.append("rank >= CAST(? AS INTEGER) AND rank < CAST(? AS INTEGER)")
            values += [str(since_ms), str(before_ms or LATEST_MS)]
        if stopped is not None:
            where.append(STOPPED if stopped else f"NOT {STOPPED}")
        condition = " AND ".join([GROUPS[group], *where])
        rows = self._all(
            f"SELECT run_id, state FROM runs WHERE {condition} ORDER BY {run_order(sort)} LIMIT ? OFFSET ?",
            *values, min(limit, ROWS_MAX), max(0, offset),
        )  # fmt: skip
        count = f"SELECT count(*) FROM runs WHERE {condition}"
        if not where:
            count = COUNTS.get(group, count)
        total = self._one(count, *values)[0]
        found = (self._shown(run_id, state, lost_ms) for run_id, state in rows)
        return FleetPage(rows=tuple(row for row in found if row is not None), total=total)

    def run(self, run_id: str) -> LiveRun | None:
        """Return a run; None if no worker knows it."""
        row = self._one("SELECT state FROM runs WHERE run_id = ?", bound(run_id))
        return None if row is None else self._shown(run_id, row[0], self._lost_ms())

    def session_runs(self, session: str, limit: int) -> list[LiveRun]:
        """Return the runs of a session, the oldest first. `session` is its name as statuses have it."""
        rows = self._all(
            "SELECT run_id, state FROM runs WHERE session = ? ORDER BY started_ms, run_id LIMIT ?",
            bound(session),
            limit,
        )
        found = [self._shown(run_id, state, self._lost_ms()) for run_id, state in rows]
        return [run for run in found if run is not None]

    def decisions(self, filter: DecisionFilter, *, limit: int = 200) -> tuple[DecisionRow, ...]:  # noqa: A002
        """Return decisions, the newest first."""
        where, values = decision_filter(filter)
        if filter.before:
            where.append("(time_ms, id) < (SELECT time_ms, id FROM controls WHERE id = ?)")
            values.append(bound(filter.before))
        rows = self._all(
            f"SELECT {DECISION_COLUMNS} FROM controls WHERE {' AND '.join(where) or '1'} "
            "ORDER BY time_ms DESC, id DESC LIMIT ?",
            *values, min(limit, ROWS_MAX),
        )  # fmt: skip
        return tuple(map(_decision, rows))

    def decision(self, id: str) -> DecisionRow | None:  # noqa: A002
        """Return a decision; None if it is not known, or no longer."""
        row = self._one(f"SELECT {DECISION_COLUMNS} FROM controls WHERE id = ?", bound(id))
        return None if row is None else _decision(row)

    def commands(self, *, standing: bool) -> tuple[CommandRow, ...]:
        """Return commands, the newest first: the latest of each scope (which may be a CLEAR), or all that were seen."""
        rows = self._all(
            "SELECT id, scope, status, by, why, at_ms, state, reason, (SELECT count(DISTINCT run_id) FROM controls "
            "WHERE command = commands.id AND command != '') FROM commands "
            "WHERE state = 'standing' OR NOT ? ORDER BY time_ms DESC, id LIMIT ?",
            standing,
            ROWS_MAX,
        )
        names = ("id", "scope", "status", "by", "why", "at_ms", "state", "reason", "obeyed_runs")
        return tuple(CommandRow(**dict(zip(names, row, strict=True))) for row in rows)

    def series(self, window: str, *, now_ms: int | None = None) -> tuple[SeriesBucket, ...]:
        """Return what the fleet did in each bucket of a window (`WINDOWS`), the oldest first."""
        return buckets_of(self._all, WINDOWS[window], int(time.time() * 1000) if now_ms is None else now_ms)

    def spend_by(
        self, field: SpendField, window: str, *, now_ms: int | None = None, limit: int = 10
    ) -> tuple[SpendShare, ...]:
        """Return what workflows or users have spent in a window, the largest first."""
        at_ms = int(time.time() * 1000) if now_ms is None else now_ms
        return spend_shares(self._all, WINDOWS[window], field, at_ms, limit)

    def accounts(self, *, now_ms: int | None = None) -> tuple[AccountRow, ...]:
        """Return what sessions, users and tenants have spent, by limit: those nearest to a limit first."""
        at_ms = int(time.time() * 1000) if now_ms is None else now_ms
        rows = self._all(
            "SELECT account, state, marks FROM accounts WHERE state IS NOT NULL "
            "ORDER BY share DESC, at_ms DESC, account LIMIT ?",
            ROWS_MAX,
        )
        return tuple(row for name, state, marks in rows for row in account_rows(name, state, marks, at_ms))

    def policies(self) -> tuple[PolicyRow, ...]:
        """Return the policies that decided, the latest first. Two at once are a roll-out, or a forgotten worker."""
        rows = self._all("SELECT * FROM policies ORDER BY last_ms DESC, hash LIMIT ?", ROWS_MAX)
        return tuple(
            PolicyRow(name=name, version=version, hash=hash_, first_ms=first, last_ms=last, decisions=count)
            for name, version, hash_, first, last, count in rows
        )

    def refused(self, *, limit: int = 200) -> tuple[RefusedRow, ...]:
        """Return dead letters, the newest first."""
        rows = self._all(
            "SELECT partition, position, at_ms, reason, headers FROM refused "
            "ORDER BY at_ms DESC, partition, position DESC LIMIT ?",
            min(limit, ROWS_MAX),
        )
        return tuple(_refused(row) for row in rows)

    def names(self, field: Field) -> tuple[str, ...]:
        """Return the values of a field of runs, for a filter's menu: the first 500."""
        if field not in FIELDS:
            raise ValueError(f"{field} is no field to filter by: choose one of {', '.join(FIELDS)}")
        # Jumps from one value to the next in the index, however many runs have it.
        rows = self._all(
            f"WITH RECURSIVE found(name) AS (SELECT min({field}) FROM runs WHERE {field} > '' UNION ALL "
            f"SELECT (SELECT min({field}) FROM runs WHERE {field} > found.name) FROM found WHERE name IS NOT NULL) "
            "SELECT name FROM found WHERE name IS NOT NULL LIMIT ?",
            NAMES_MAX,
        )
        return tuple(name for (name,) in rows)

    def runs_in_scope(self, scope: str) -> int:
        """Return the number of running runs that a command to this scope would stop."""
        where, values = in_scope(scope)
        count: int = self._one(f"SELECT count(*) FROM runs WHERE {STATUSES['running']} AND {where}", *values)[0]
        return count

    def stops(self, scope: str, since_ms: int) -> StopCounts:
        """Return what has come of a command that was given then to stop a scope: of the runs that were at work."""
        where, values = in_scope(scope)
        found = (
            f"WITH found AS (SELECT run_id, shown = {FINISHED} AS over, count(host) AS guards, "
            "coalesce(sum(stopped_ms < ?1), 0) AS open, min(CASE WHEN stopped_ms < ?1 THEN host END) AS host "
            f"FROM runs LEFT JOIN guards USING (run_id) WHERE ({STATUSES['running']} OR ({STATUSES['halted']} AND "
            f"rank >= ?1) OR ({STATUSES['finished']} AND at_ms >= ?1)) AND {where} GROUP BY run_id)"
        )
        expected, stopped, silent, mute = self._one(
            f"{found} SELECT count(*), total(over OR (guards AND NOT open)), total(NOT over AND open), "
            "total(NOT over AND NOT guards) FROM found", since_ms, *values,
        )  # fmt: skip
        rows = self._all(
            f"{found} SELECT run_id, host FROM found WHERE NOT over AND open ORDER BY run_id LIMIT {SILENT_SHOWN}",
            since_ms, *values,
        ) if silent else ()  # fmt: skip
        names = tuple(f"{run_id} ({host})" for run_id, host in rows)
        return StopCounts(expected=expected, stopped=int(stopped), silent=int(silent), names=names, mute=int(mute))

    def health(self) -> tuple[PartitionHealth, ...]:
        """Return how far each partition was read."""
        read, fetched, ends = dict(self._next), self.fetched, self.ends
        found = []
        for role, number in sorted(read.keys() | ends.keys()):
            at, last_ms = read.get((role, number), (0, 0))
            at = max(at, fetched.get((role, number), 0))
            end = ends.get((role, number), -1)
            found.append(PartitionHealth(topic=role, partition=number, position=at, end=end, last_ms=last_ms))
        return tuple(found)

    def point_before(self, run_id: str, turns_back: int) -> Point | None:
        """Return where the last turns of a run begin, at least `turns_back` if so many were read; None: none was."""
        last = self._one("SELECT max(number) FROM points WHERE run_id = ?", bound(run_id))
        if last is None or last[0] is None:
            return None
        row = self._one(
            "SELECT number, partition, position FROM points WHERE run_id = ? AND number <= ? "
            "ORDER BY number DESC LIMIT 1",
            bound(run_id), max(last[0] - turns_back, 0),
        )  # fmt: skip
        return None if row is None else Point(*row)

    def last_offset(self, run_id: str) -> int:
        """Return the offset of the last event of a run that was read from the turns topic; -1: none was."""
        row = self._one("SELECT state FROM runs WHERE run_id = ?", bound(run_id))
        return -1 if row is None else unpack_facts(row[0]).last_offset

    def _all(self, sql: str, *values: Any) -> list[Any]:
        with self._read_lock:
            return self._reader.execute(sql, values).fetchall()

    def _one(self, sql: str, *values: Any) -> Any:
        with self._read_lock:
            return self._reader.execute(sql, values).fetchone()


def _decision(row: Any) -> DecisionRow:
    names = DECISION_COLUMNS.replace("position", "offset").split(", ")
    fields = dict(zip(names, row, strict=True))
    return DecisionRow(**fields | {"body": unpacked(fields["body"])})


def _refused(row: Any) -> RefusedRow:
    partition, position, at_ms, reason, raw = row
    headers = unpack_headers(raw)
    named = dict(headers)
    return RefusedRow(
        partition=partition, offset=position, at_ms=at_ms, reason=reason, field_path=named.get("field", ""),
        source_topic=named.get("source.topic", ""), source_partition=_number(named.get("source.partition")),
        source_offset=_number(named.get("source.offset")), headers=headers,
    )  # fmt: skip


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else -1
