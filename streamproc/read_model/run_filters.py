"""Filters, groups and commands of runs and decisions, as conditions of SQL and as tests of one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamproc.core.scope import short_name
from streamproc.model.fleet_command import FLEET, FleetCommand
from streamproc.model.time_range import time_or_age_ms, wall_ms
from streamproc.read_model.rows import DecisionFilter, LiveRun, RunFilter
from streamproc.read_model.run_facts import FINISHED, SHOWN

TEXT_MAX: Final = 200  # characters of a text to search for
FIELDS: Final = ("workflow", "tenant", "user", "code")
LOST: Final = "lost"
RUNNING: Final = f"shown BETWEEN {SHOWN['warned']} AND {SHOWN['others']}"
LOST_MS: Final = "CAST(? AS INTEGER)"  # a running run without an event since then is lost
GROUPS: Final = {
    "halted": f"shown = {SHOWN['halted']}",
    "warned": f"shown = {SHOWN['warned']} AND at_ms >= {LOST_MS}",
    # A range, so that the index has the command.
    "others": f"shown >= {SHOWN['others']} AND (shown = {FINISHED} OR at_ms >= {LOST_MS})",
    "lost": f"{RUNNING} AND at_ms < {LOST_MS}",
}
# Those of a whole group, by what its index counts: runs that are not lost are many, lost ones few.
COUNTS: Final = {
    "warned": f"SELECT (SELECT count(*) FROM runs WHERE shown = {SHOWN['warned']}) - (SELECT count(*) FROM runs "
    f"WHERE {RUNNING} AND shown = {SHOWN['warned']} AND at_ms < {LOST_MS})",
    "others": f"SELECT (SELECT count(*) FROM runs WHERE shown >= {SHOWN['others']}) - (SELECT count(*) FROM runs "
    f"WHERE {RUNNING} AND shown = {SHOWN['others']} AND at_ms < {LOST_MS})",
}
STATUSES: Final = {"halted": f"shown = {SHOWN['halted']}", "running": RUNNING, "finished": f"shown = {FINISHED}"}
SORTS: Final[dict[str, tuple[str, ...]]] = {
    "run": ("run_id",), "state": ("shown", "code"), "what": ("message",), "loop": ("loop",), "tests": ("failing",),
    "workflow": ("workflow",), "tenant": ("tenant",), "user": ("user",), "turns": ("turns",), "cost": ("cost",),
    "heard": ("at_ms",),
}  # fmt: skip


def run_order(sort: str) -> str:
    """Return the columns to command runs by."""
    columns = SORTS.get(sort.removeprefix("-"))
    if columns is None:
        return "shown, rank DESC, run_id"
    direction = " DESC" if sort.startswith("-") else ""
    return ", ".join([*(f"{name}{direction}" for name in columns), "run_id"])


def run_filter(wanted: RunFilter) -> tuple[list[str], list[str]]:
    """Return the conditions of a filter, and their values."""
    where, values = _equal({name: getattr(wanted, name) for name in FIELDS})
    if wanted.status and wanted.status != LOST:  # a group of its own
        where.append(STATUSES.get(wanted.status, "0"))
    _between((("at_ms >=", wanted.since), ("started_ms <", wanted.until)), where, values)
    _search(wanted.text, ("run_id", "workflow", "user", "code", "message"), where, values)
    return where, values


def fits(run: LiveRun, wanted: RunFilter) -> bool:
    """Return whether a run fits a filter, as the conditions decide it."""
    for name in (*FIELDS, "status"):
        if (value := getattr(wanted, name)) and getattr(run, name) != value:
            return False
    since, until = (time_or_age_ms(one, wall_ms()) for one in (wanted.since, wanted.until))
    if run.at_ms < since or (until and run.started_ms >= until):
        return False
    texts = (run.run_id, run.workflow, run.user, run.code, run.message)
    return not wanted.text or any(wanted.text.casefold() in one.casefold() for one in texts)


def in_scope(scope: str) -> tuple[str, list[str]]:
    """Return the condition for the runs of a command's scope, and its values; no run fits a scope without a name."""
    target = FleetCommand(w=1, id="count", status="STOP", scope=scope, at=0)
    session = short_name(target.session) if target.session else ""
    run_id = target.name if target.part == "run" else ""
    names = {"run_id": run_id, "user": target.user, "tenant": target.tenant, "session": session}
    where, values = _equal(names)
    return " AND ".join(where) or ("1" if target.part == FLEET else "0"), values


def decision_filter(wanted: DecisionFilter) -> tuple[list[str], list[str]]:
    """Return the conditions of a filter of decisions, and their values."""
    where, values = _equal({name: getattr(wanted, name) for name in ("run_id", *FIELDS[:2], "code", "severity")})
    _between((("time_ms >=", wanted.since), ("time_ms <", wanted.until)), where, values)
    _search(wanted.text, ("run_id", "code", "message"), where, values)
    return where, values


def _equal(wanted: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the conditions that fields have these values; empty ones match all."""
    given = {name: bound(value) for name, value in wanted.items() if value}
    return [f"{name} = ?" for name in given], list(given.values())


def bound(text: str) -> str:
    """Return a text that SQLite can store: half of a surrogate pair cannot, and matches nothing."""
    return text.encode("utf-8", "replace").decode()


def _between(ends: tuple[tuple[str, str], ...], where: list[str], values: list[str]) -> None:
    """Add the conditions of times or ages, each with the column and the sign that it is compared by."""
    for compared, text in ends:
        if at_ms := time_or_age_ms(text, wall_ms()):
            where.append(f"{compared} CAST(? AS INTEGER)")
            values.append(str(at_ms))


def _search(text: str, columns: tuple[str, ...], where: list[str], values: list[str]) -> None:
    if not text:
        return
    escaped = bound(text[:TEXT_MAX]).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    where.append("(" + " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in columns) + ")")
    values += [f"%{escaped}%"] * len(columns)
