"""The complete status of a run, for the compacted `runs` topic and for dashboards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from streamproc.core.board.ends import ended_tasks
from streamproc.core.decision import Decision, hex16
from streamproc.core.run_state import RunState
from streamproc.core.scope import capped_budgets
from streamproc.core.signals.cycle_memory import CycleMemory
from streamproc.core.signals.cycles import NOT_ENTERED, Cycle
from streamproc.core.signals.periods import ARTIFACTS, NARRATION, STATEMENTS, STEPS
from streamproc.model.controls import ControlSnapshot, CycleStatus, RunStatus, Severity
from streamproc.model.log_time import rfc3339

SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warn", "halt")
STREAM_NAMES: Final = {STEPS: "steps", STATEMENTS: "statements", ARTIFACTS: "artifacts", NARRATION: "narration"}


def status_of(run: RunState, run_id: str, halt: Decision | None, iterations_max: int | None) -> RunStatus:
    """Return the status of a run; `halt` is the decision that has just halted it, if any."""
    return RunStatus(
        run_id=run_id,
        status="halted" if run.halted >= 0 else "finished" if run.finished else "running",
        severity=SEVERITIES[run.escalation.severity],
        workflow=run.scope.workflow or None,
        tenant=run.scope.tenant or None,
        user=run.scope.user or None,
        halt=halt,
        turns=run.turns,
        badge=badge_of(run, iterations_max),
        failing_trend=run.evidence.failing_counts.listed(),
        total_tokens=run.ledger.total_tokens,
        cost_usd_micro=run.ledger.cost_usd_micro,
        at=rfc3339(run.at_ms) if run.at_ms else None,
        capped_budgets=capped_budgets(run.scope),
        strangers=run.strangers,
        loop_counters=run.handovers.counters(run.cold.node_names) if len(run.handovers.fruitless) else {},
        cycles=_cycles_of(run),
        ended_tasks=ended_tasks(run),
        partition=run.partition,
        offset=run.offset,
        unpublished=is_unpublished(run),
        session=run.scope.session or None,
        parent_run_id=run.scope.parent or None,
    )


def _cycles_of(run: RunState) -> list[CycleStatus]:
    cycle: Cycle
    memory: CycleMemory | None
    found = []
    for cycle in run.cycles.table.rows:
        if cycle.spent_before == NOT_ENTERED:
            continue
        memory = run.cycle_memories.table.find(cycle.key)
        windows = memory.windows.rows if memory is not None else ()
        runtime_ms = run.at_ms - cycle.since_ms if cycle.since_ms else 0
        found.append(CycleStatus(
            cycle=hex16(cycle.key), iterations=cycle.iterations, runtime_ms=runtime_ms,
            cost_usd_micro=run.ledger.cost_usd_micro - cycle.spent_before,
            windows={STREAM_NAMES[window.key]: window.tags.size for window in windows if window.tags.size},
        ))  # fmt: skip
    return found


def is_unpublished(run: RunState) -> bool:
    """Return whether no publisher has sent an event of a run: only commands name it."""
    return not (run.owner or run.turns or run.started)


def snapshot_of(run: RunState, last_event_ms: int, budgets: Mapping[str, int]) -> ControlSnapshot:
    """Return the last known status of a run; `last_event_ms` is the log time of its last event."""
    return ControlSnapshot(
        turns=run.turns,
        round=run.round or None,
        badge=badge_of(run, budgets.get("maxCycleIterations")),
        failing_trend=run.evidence.failing_counts.listed() or None,
        total_tokens=run.ledger.total_tokens,
        cost_usd_micro=run.ledger.cost_usd_micro,
        last_node=run.handovers.previous_name.get() or None,
        heard_at=rfc3339(last_event_ms) if last_event_ms else None,
    )


def badge_of(run: RunState, iterations_max: int | None) -> str | None:
    """Return `Loop 3/8`, or `Loop 3` without a budget; None outside cycles. One iteration too many is shown as
    `Loop 8/8`, too."""
    cycle: Cycle
    iterations = 0
    for cycle in run.cycles.table.rows:
        iterations = max(iterations, cycle.iterations)
    if not iterations:
        return None
    return f"Loop {min(iterations, iterations_max)}/{iterations_max}" if iterations_max else f"Loop {iterations}"


encode_status = msgspec.json.Encoder().encode
