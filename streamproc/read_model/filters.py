"""What a filter of runs or decisions, or the scope of a command, means in SQL."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streamproc.model.fleet_command import FLEET, FleetCommand
from streamproc.model.time_range import time_or_age_ms
from streamproc.read_model.run_facts import FINISHED, SHOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.read_model.rows import DecisionFilter, RunFilter

TEXT_MAX: Final = 200  # characters of a text to search for
RUNNING: Final = f"shown BETWEEN {SHOWN['warned']} AND {SHOWN['others']}"
STATUSES: Final = {
    "halted": f"shown = {SHOWN['halted']}",
    "running": RUNNING,
    "finished": f"shown = {FINISHED}",
}
LOST: Final = "lost"
FIELDS: Final = ("workflow", "tenant", "user", "code")


def scope_condition(scope: str) -> tuple[str, list[str]]:
    """Return the condition for the runs of a command's scope, and its values; no run fits a scope without a name."""
    target = FleetCommand(w=1, id="count", status="STOP", scope=scope, at=0)
    names = {"run_id": target.name if target.part == "run" else "", "user": target.user, "tenant": target.tenant}
    where, values = _equal(names)
    return " AND ".join(where) or ("1" if target.part == FLEET else "0"), values


def run_conditions(wanted: RunFilter) -> tuple[list[str], list[str]]:
    where, values = _equal({name: getattr(wanted, name) for name in FIELDS})
    if wanted.status and wanted.status != LOST:  # a group of its own
        where.append(STATUSES.get(wanted.status, "0"))
    now_ms = int(time.time() * 1000)
    if since_ms := time_or_age_ms(wanted.since, now_ms):
        where.append("at_ms >= CAST(? AS INTEGER)")
        values.append(str(since_ms))
    if until_ms := time_or_age_ms(wanted.until, now_ms):
        where.append("started_ms < CAST(? AS INTEGER)")
        values.append(str(until_ms))
    if wanted.text:
        columns = ("run_id", "workflow", "user", "code", "message")
        where.append("(" + " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in columns) + ")")
        values += [_pattern(wanted.text)] * len(columns)
    return where, values


def decision_conditions(wanted: DecisionFilter) -> tuple[list[str], list[str]]:
    fields = ("run_id", "workflow", "tenant", "code", "severity")
    where, values = _equal({name: getattr(wanted, name) for name in fields})
    now_ms = int(time.time() * 1000)
    for text, compared in ((wanted.since, ">="), (wanted.until, "<")):
        if at_ms := time_or_age_ms(text, now_ms):
            where.append(f"time_ms {compared} CAST(? AS INTEGER)")
            values.append(str(at_ms))
    if wanted.text:
        columns = ("run_id", "code", "message")
        where.append("(" + " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in columns) + ")")
        values += [_pattern(wanted.text)] * len(columns)
    return where, values


def _equal(wanted: Mapping[str, str]) -> tuple[list[str], list[str]]:
    given = {name: storable(value) for name, value in wanted.items() if value}
    return [f"{name} = ?" for name in given], list(given.values())


def _pattern(text: str) -> str:
    escaped = storable(text[:TEXT_MAX]).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def storable(text: str) -> str:
    """Return a text that SQLite can store: half of a surrogate pair cannot, and matches nothing."""
    return text.encode("utf-8", "replace").decode()
