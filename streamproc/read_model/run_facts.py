"""What is known of one run from three topics, and the row that follows from it.

The topics `runs`, `control` and `turns` are read side by side, so what one of them says may arrive before or after what
another says about the same event. Each has a part of its own here, for each partition of the turns topic that it
follows from, and the row is a function of the parts: reading in another order gives the same row. A run is halted while
any partition says so.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.core.decision import Decision
from streamproc.core.status import SEVERITIES
from streamproc.fleet.record_signing import LogPlace
from streamproc.model.control_types import ABOUT_NO_RUN
from streamproc.model.controls import RunStatus
from streamproc.model.raw_fields import log_ms
from streamproc.read_model.rows import LiveRun

AMOUNT_MAX: Final = 2**62  # a sum of hostile amounts must still fit into a column
MESSAGE_MAX: Final = 1_000  # characters of a sentence that a row keeps
NOWHERE: Final = -1
HIDDEN: Final = 0  # values of the column `shown`: no worker has published a status of the run, it was evicted, or only
# commands name it
SHOWN: Final = {"halted": 1, "warned": 2, "others": 3}
FINISHED: Final = 4


class StatusFacts(msgspec.Struct, array_like=True, frozen=True):
    """The latest status on `runs`."""

    place: LogPlace
    status: str
    severity: str
    workflow: str
    tenant: str
    user: str
    badge: str
    failing_trend: tuple[int, ...]
    turns: int
    tokens: int
    cost_usd_micro: int
    at_ms: int
    capped_budgets: tuple[str, ...]
    halt_code: str
    halt_message: str
    halted_at_ms: int
    unpublished: bool = False
    session: str = ""
    parent: str = ""


class FindingFacts(msgspec.Struct, array_like=True, frozen=True):
    """The latest warning, halt or resume on `control`."""

    place: LogPlace
    severity: str  # `info`: the run was resumed
    code: str
    message: str
    badge: str
    at_ms: int

    @property
    def rank(self) -> int:
        """Of several decisions on one event, the most severe is in force."""
        return SEVERITIES.index(self.severity)


class PartitionFacts(msgspec.Struct, array_like=True):
    """What follows from the events of a run in one partition of the turns topic."""

    status: StatusFacts | None = None
    finding: FindingFacts | None = None


class RunFacts(msgspec.Struct, array_like=True):
    """All that is known of a run. The fields from `turns` on are of its turns, as far back as they were read.

    Nearly every run has one partition, its home. Findings that name none are those of `NOWHERE`.
    """

    parts: dict[int, PartitionFacts] = {}
    turns: int = 0
    tokens: int = 0
    cost_usd_micro: int = 0
    heard_ms: int = 0
    last_offset: int = -1  # of an event of the run on the turns topic
    workflow: str = ""  # by its events: they are read before its first status
    user: str = ""
    trace_id: str = ""  # of the last event that was published in a span
    first_ms: int = 0  # of the first sign of life that was read
    doing: str = ""  # what its last turn did


def status_facts(status: RunStatus, at_ms: int) -> StatusFacts:
    """Return what a record of `runs` says; `at_ms` is the broker's time of the record."""
    halt = status.halt
    return StatusFacts(
        LogPlace(status.partition, status.offset, at_ms), status.status, status.severity, status.workflow or "",
        status.tenant or "", status.user or "", status.badge or "", tuple(status.failing_trend), amount(status.turns),
        amount(status.total_tokens), amount(status.cost_usd_micro), log_ms(status.at), tuple(status.capped_budgets),
        halt.code if halt else "", halt.message[:MESSAGE_MAX] if halt else "", log_ms(halt.at) if halt else 0,
        status.unpublished, status.session or "", status.parent_run_id or "",
    )  # fmt: skip


def finding_facts(decision: Decision, at_ms: int) -> FindingFacts | None:
    """Return what a record of `control` says about its run; None if it changes nothing that a row shows."""
    resumed = decision.type == "run.resumed"
    if decision.type in ABOUT_NO_RUN or not (resumed or decision.severity in ("warn", "halt")):
        return None
    severity = "info" if resumed else decision.severity
    return FindingFacts(
        place_of(decision, at_ms), severity, decision.code, decision.message[:MESSAGE_MAX], decision.badge or "",
        log_ms(decision.at) or at_ms,
    )  # fmt: skip


def place_of(decision: Decision, at_ms: int) -> LogPlace:
    """Return the event of the turns topic that a decision follows from; partition `NOWHERE`: it names none."""
    trigger = decision.trigger
    if (
        trigger is None
        or trigger.partition is None
        or trigger.offset is None
        or min(trigger.partition, trigger.offset) < 0
    ):
        return LogPlace(NOWHERE, -1, at_ms)
    return LogPlace(amount(trigger.partition), amount(trigger.offset), at_ms)


def note_status(run: RunFacts, status: StatusFacts | int) -> None:
    """Use a status, unless a later one is known: a worker that has lost a partition may publish once more.

    A number is a tombstone in that partition: the workers have evicted the run.
    """
    if isinstance(status, int):
        if (evicted := run.parts.get(status)) is not None:
            evicted.status = None
        return
    part = run.parts.setdefault(status.place.partition, PartitionFacts())
    if part.status is None or not status.place.before(part.status.place):
        part.status = status


def note_current(run: RunFacts, status: StatusFacts) -> None:
    """Use a current status of a run that works: it says more than the one on `runs`, and never whether it works."""
    part = run.parts.get(status.place.partition)
    known = part.status if part is not None else None
    if part is not None and known is not None and known.status == status.status == "running":
        part.status = status if known.place.before(status.place) else known


def note_finding(run: RunFacts, finding: FindingFacts) -> None:
    """Use a decision, unless one that is known follows from a later event, or is more severe on the same one."""
    part = run.parts.setdefault(finding.place.partition, PartitionFacts())
    known = part.finding
    if known is not None:
        if finding.place.before(known.place):
            return
        if finding.place[:2] == known.place[:2] and finding.place.partition >= 0 and finding.rank < known.rank:
            return
    part.finding = finding


def scope_of(run: RunFacts) -> tuple[str, str]:
    """Return the workflow and the user of a run, by its status, or by its events before there is one."""
    statuses = [part.status for part in run.parts.values() if part.status is not None]
    workflow = next((one.workflow for one in statuses if one.workflow), run.workflow)
    return workflow, next((one.user for one in statuses if one.user), run.user)


def live_run(run_id: str, run: RunFacts) -> LiveRun | None:
    """Return the row of a run; None while no worker has published a status of it, or if only commands name it.

    Of several partitions, one that halts the run is shown, and the one that was heard of last.
    """
    rows = [row for number in run.parts if (row := _row(run_id, run, number)) is not None]
    return max(rows, key=lambda row: (row.status == "halted", row.at_ms, row.partition), default=None)


def _row(run_id: str, run: RunFacts, partition: int) -> LiveRun | None:
    """Return the row of a run as one partition tells it."""
    status, finding = run.parts[partition].status, finding_of(run, partition)
    if status is None or (status.unpublished and not run.heard_ms):
        return None
    state, severity, code, message = status.status, status.severity, status.halt_code, status.halt_message
    halted_at_ms, badge, place = status.halted_at_ms, status.badge, status.place
    newer = finding is not None and status.place.before(finding.place)
    if finding is not None and newer:
        place, badge = finding.place, finding.badge or badge
        severity = finding.severity
        state = "halted" if severity == "halt" else state if state == "finished" else "running"
        code, message, halted_at_ms = finding.code, finding.message, finding.at_ms
        if severity == "info":
            code = message = ""
    elif finding is not None and state == "running" and finding.severity == severity == "warn":
        code, message = finding.code, finding.message
    elif finding is not None and state == "halted" and finding.severity == "halt" and not code:
        code, message, halted_at_ms = finding.code, finding.message, finding.at_ms
    if state != "halted":
        halted_at_ms = 0
    return LiveRun(
        run_id=run_id, status=state, severity=severity, workflow=status.workflow, tenant=status.tenant,
        user=status.user, badge=badge, code=code, message=message, failing_trend=status.failing_trend,
        turns=max(status.turns, run.turns), total_tokens=max(status.tokens, run.tokens),
        cost_usd_micro=max(status.cost_usd_micro, run.cost_usd_micro),
        at_ms=max(status.at_ms, run.heard_ms, finding.at_ms if finding else 0),
        halted_at_ms=halted_at_ms or (status.at_ms if state == "halted" else 0),
        partition=place.partition, offset=place.offset, capped_budgets=status.capped_budgets, trace_id=run.trace_id,
        started_ms=run.first_ms, doing=run.doing if state == "running" else "", session=status.session,
        parent=status.parent,
    )  # fmt: skip


def finding_of(run: RunFacts, partition: int) -> FindingFacts | None:
    """Return the latest finding of a partition: its own, or one that names no partition."""
    found = [part.finding for number in {partition, NOWHERE} if (part := run.parts.get(number)) and part.finding]
    return max(found, key=lambda one: one.place.signed_ms, default=None)


def order_of(row: LiveRun | None, run: RunFacts) -> tuple[int, int]:
    """Return the columns `shown` and `rank` of a row: halted and warned runs by time, others by spend."""
    if row is None:
        return HIDDEN, run.heard_ms
    if row.group == "halted":
        return SHOWN["halted"], row.halted_at_ms
    if row.group == "warned":
        finding = finding_of(run, row.partition)
        return SHOWN["warned"], finding.at_ms if finding is not None else row.at_ms
    return FINISHED if row.status == "finished" else SHOWN["others"], row.cost_usd_micro


def figures_of(row: LiveRun | None) -> tuple[int, int, int, int]:
    """Return the columns by which people sort: turns, cost, iterations, failing tests (-1: none is known)."""
    if row is None:
        return 0, 0, 0, -1
    iterations = row.badge.removeprefix("Loop ").partition("/")[0]
    loop = int(iterations) if iterations.isascii() and iterations.isdigit() else 0
    failing = row.failing_trend[-1] if row.failing_trend else -1
    return row.turns, row.cost_usd_micro, amount(loop), amount(failing)


def amount(value: int) -> int:
    """Return a number that fits into a column."""
    return max(-AMOUNT_MAX, min(AMOUNT_MAX, value))
