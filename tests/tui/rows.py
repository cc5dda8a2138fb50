"""Runs and decisions made by hand, behind the queries of the read model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from typing import Any

from streamproc.fleet.commands import StopCounts
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.record_signing import RecordSigner
from streamproc.fleet.watching import Watching, watching_of
from streamproc.fleet.workers import Workers
from streamproc.read_model.rows import (
    AccountRow,
    CommandRow,
    DecisionFilter,
    DecisionRow,
    FleetCounts,
    FleetPage,
    LiveRun,
    RefusedRow,
    RunFilter,
    RunGroup,
)
from streamproc.report.model import RunReport
from streamproc.settings import load_settings
from streamproc.tui.app import FleetApp
from streamproc.tui.host import TerminalCommands

SENTENCE = "Bash returned the same result for the same arguments at turns 29, 30 and 31, with nothing new in between."
FIELDS = ("workflow", "tenant", "user", "code", "status")


class HandMade:
    """Answers the queries from rows that a test puts in, and says who has news."""

    def __init__(self, runs: Iterable[LiveRun] = ()) -> None:
        self.all = {run.run_id: run for run in runs}
        self.decided: list[DecisionRow] = []
        self.issued: list[CommandRow] = []
        self.stopped = StopCounts(expected=0, stopped=0)
        self.fleet_status = "CLEAR"
        self.caught_up, self.progress = True, 1.0
        self.trouble: Exception | None = None
        self.missing: tuple[str, ...] = ()
        self.workers = Workers(RecordSigner(Keyring(), "streamproc", required=False))
        self._news: asyncio.Queue[set[str]] = asyncio.Queue()

    def put(self, *runs: LiveRun) -> None:
        self.all |= {run.run_id: run for run in runs}
        self._news.put_nowait({run.run_id for run in runs})

    @property
    def silent_since_ms(self) -> int | None:
        return None if self.trouble is None else 0

    def watching(self) -> Watching:
        return watching_of(self.workers, time.monotonic(), lag_warn_s=30)

    def subscribe(self) -> HandMade:
        return self

    async def changed(self) -> set[str]:
        return await self._news.get()

    def counts(self, now_ms: int) -> FleetCounts:
        groups = [run.group for run in self.all.values()]
        return FleetCounts(
            at_ms=now_ms,
            fleet_status=self.fleet_status,
            working=sum(run.group == "others" and run.status == "running" for run in self.all.values()),
            warned=groups.count("warned"),
            halted=groups.count("halted"),
            turns_per_second=41.3,
            spend_usd_micro_per_hour=18_400_000,
            delay_ms=14,
            caught_up=self.caught_up,
        )

    def runs(self, group: RunGroup, filter_: RunFilter, *, limit: int = 200, offset: int = 0) -> FleetPage:
        found = [run for run in self.all.values() if run.group == group and _matches(run, filter_)]
        found.sort(key=lambda run: (-run.halted_at_ms, -run.cost_usd_micro))
        return FleetPage(rows=tuple(found[offset : offset + limit]), total=len(found))

    def run(self, run_id: str) -> LiveRun | None:
        return self.all.get(run_id)

    def decisions(self, filter_: DecisionFilter, *, limit: int = 200) -> tuple[DecisionRow, ...]:
        return tuple(row for row in self.decided if row.run_id == filter_.run_id)[:limit]

    def commands(self, *, standing: bool) -> tuple[CommandRow, ...]:
        return tuple(row for row in self.issued if row.state == "standing" or not standing)

    def accounts(self) -> tuple[AccountRow, ...]:
        return (AccountRow(scope="user:ada", budget="per day", spent=18.4, limit=20.0, unit="USD"),)

    def refused(self, *, limit: int = 200) -> tuple[RefusedRow, ...]:
        return ()

    def stops(self, scope: str, since_ms: int) -> StopCounts:
        return self.stopped

    def runs_in_scope(self, scope: str) -> int:
        return sum(run.status == "running" for run in self.all.values())


def _matches(run: LiveRun, filter_: RunFilter) -> bool:
    text = f"{run.run_id} {run.workflow} {run.user} {run.code} {run.message}".lower()
    named = all(not getattr(filter_, name) or getattr(filter_, name) == getattr(run, name) for name in FIELDS)
    return named and filter_.text.lower() in text


def fleet(count: int = 40, now_ms: int | None = None) -> list[LiveRun]:
    """Return runs: 3 halted, 5 warned, 2 finished, the others at work."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    found = []
    for number in range(count):
        state = "halted" if number < 3 else "finished" if number in (20, 21) else "running"
        severity = "halt" if number < 3 else "warn" if number < 8 else "info"
        code = ("LOOP003", "BUDGET007", "TEST002", "LOOP001")[number % 4] if number < 8 else ""
        found.append(
            LiveRun(
                run_id=f"nightly-{number:03}" if number % 5 else f"release/2026-11/build-{number:03}/agent-7f3a",
                status=state,
                severity=severity,
                workflow=("release", "triage", "docs")[number % 3],
                tenant="acme",
                user=("ada", "grace", "linus")[number % 3],
                badge=f"Loop {2 + number}/8" if number < 6 else "",
                code=code,
                message=SENTENCE if code else "",
                failing_trend=(9, 7, 5, 5, 5, 5)[: 2 + number % 5] if number % 2 == 0 else (),
                turns=31 + 17 * number,
                total_tokens=41_000 + 900 * number,
                cost_usd_micro=420_000 + 137_000 * ((number * 7) % count),
                at_ms=now - 1_000 * (number * number + 2),
                halted_at_ms=now - 60_000 * (number + 1) if state == "halted" else 0,
                partition=number % 12,
                offset=1000 + number,
            )
        )
    return found


def decision(run_id: str, **fields: Any) -> DecisionRow:
    """Return a halt with its evidence."""
    body = {
        "code": "LOOP003", "message": SENTENCE, "action": "halt", "suggested_actions": ["ask_human"],
        "evidence": {"kind": "repeated_call", "count": 3, "turns": [29, 30, 31], "tool": "Bash", "match": "exact",
                     "args_excerpt": "git status", "first_error": "fatal: not a git repository"},
    }  # fmt: skip
    given: dict[str, Any] = {
        "id": "d1", "at_ms": 1_795_000_000_000, "code": "LOOP003", "severity": "halt", "action": "halt",
        "message": SENTENCE, "turn": 31, "body": json.dumps(body).encode(),
    }  # fmt: skip
    return DecisionRow(run_id=run_id, **given | fields)


async def no_report(run_id: str) -> RunReport | None:
    """The log no longer has the turns."""
    return None


def watching(
    model: HandMade, *, by: str = "ada", key: str = "ops:0123456789abcdef0123456789abcdef", **more
) -> FleetApp:
    """Return the application over hand-made rows; it signs commands with `key`, and has no broker to send them to."""
    settings = load_settings(brokers="127.0.0.1:1", command_key=key or None, command_auth="signed")
    return FleetApp(model, model, TerminalCommands(settings, by), more.pop("report", no_report), place="fleet", **more)
