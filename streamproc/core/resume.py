"""Resuming a halted run: streaks start again, budgets grow by the grant, and one iteration is on probation (half-open).

On probation, a warning of a detector that can halt becomes a halt, and every halt is final: a person must review it
(`escalated`). Probation lasts for a number of turns and, in a cycle, until one iteration is complete. It ends after
sixteen turns at the latest: no detector looks for longer loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from streamproc.core.board.state import FREE, HELD_APPROVAL
from streamproc.core.decision import BUDGET_EXCEEDED, Finding, Level
from streamproc.core.run_scope import change_scope
from streamproc.core.run_state import RunState
from streamproc.core.scope import BUDGET_BITS
from streamproc.model.budgets import BUDGETS, INTEGER_MAX

PROBATION_TURNS_MAX: Final = 16
TASK_TOKENS: Final = "maxTaskTokens"
RUN_CLOCK: Final = "BUDGET006"  # the detector of a run's clock; its limit may come from its parameters
NEVER: Final = 1 << 64  # no limit
CEILINGS: Final = {budget.name: budget.ceiling or INTEGER_MAX for budget in BUDGETS}
FINAL: Final = " The run was on probation after a resume: a person must review it."


def resume(run: RunState, grant: Mapping[str, int], limits: Mapping[str, int], last_event_ms: int) -> None:
    """Lift the halt and apply the grant. `limits` are those in force; the time since `last_event_ms` does not count as
    the run's runtime."""
    _continue_clocks(run, grant, limits, last_event_ms)
    for name, more in grant.items():
        if name == TASK_TOKENS:
            _grant_tokens(run, more)
        elif name in limits:  # without a limit, there is nothing to extend
            reached = max(limits[name], used(run, name))
            budgets = run.scope.budgets | {name: min(reached + more, CEILINGS.get(name, INTEGER_MAX))}
            change_scope(run, budgets=budgets, granted=run.scope.granted | BUDGET_BITS[name])
    run.halted = run.escalation.halted_loop_seen = run.escalation.unacknowledged_halt = -1
    run.escalation.halt_code.clear()
    run.cold.halted_by, run.cold.ended_tasks = 0, {}
    run.escalation.severity, run.finished = 0, False
    run.escalation.episodes.clear()
    run.set_open_turns([])
    run.pending.clear()
    if run.board is not None:
        run.board.empty_cycles, run.board.failed = 0, []
    run.escalation.resumes += 1
    restart_counts(run)


def restart_counts(run: RunState) -> None:
    """Start every count of repetitions again: a person has intervened, and all of them assume that no one has."""
    run.calls.reset()
    run.tools.reset()
    run.callers.reset()
    run.monologue.clear()
    run.text_streak.clear()
    run.handovers.reset(run.turns)
    run.novelty.note_progress(run.turns)
    run.cycle_memories.reset()


def _continue_clocks(run: RunState, grant: Mapping[str, int], limits: Mapping[str, int], last_event_ms: int) -> None:
    """Let clocks continue without the time in which the run was halted. A clock that had run out, and is granted no
    more, starts again: the person who resumes the run has just looked at it."""
    away_ms = run.at_ms - last_event_ms if last_event_ms else 0
    until_ms = max(last_event_ms, run.checked_ms)  # when the clock was last looked at
    if run.started_ms:
        over = until_ms - run.started_ms >= limits.get("maxRuntimeMs", NEVER)
        over = over or run.escalation.halt_code.get() == RUN_CLOCK
        again = over and "maxRuntimeMs" not in grant
        run.started_ms = run.at_ms if again else run.started_ms + away_ms
    limit_ms = NEVER if "maxCycleRuntimeMs" in grant else limits.get("maxCycleRuntimeMs", NEVER)
    for cycle in run.cycles.table.rows:
        if cycle.since_ms:
            cycle.since_ms = run.at_ms if until_ms - cycle.since_ms >= limit_ms else cycle.since_ms + away_ms
    limit_ms = NEVER if "maxRuntimeMsPerNode" in grant else limits.get("maxRuntimeMsPerNode", NEVER)
    for counts in run.node_counts.rows:
        if counts.runtime_ms >= limit_ms:
            counts.runtime_ms = 0


def _grant_tokens(run: RunState, more: int) -> None:
    """Add tokens to every task of the run that has a budget, start its escalation again, and release it."""
    for tag, spent in run.task_tokens.items():
        task = run.board.tasks.get(tag) if run.board is not None and spent.used > spent.limit else None
        if task is not None and task.flags & HELD_APPROVAL:
            task.flags = task.flags & ~HELD_APPROVAL | FREE
        spent.limit = min(max(spent.limit, spent.used) + more, INTEGER_MAX)
        spent.rung = 0


def used(run: RunState, name: str) -> int:
    """Return how much of a budget a run has used; of its nodes and cycles, the one that has used most counts."""
    counts, cycles, ledger = run.node_counts.rows, run.cycles.table.rows, run.ledger
    if name == "maxTurnsPerNode":
        return max((node.turns for node in counts), default=0)
    if name == "maxRuntimeMsPerNode":
        return max((node.runtime_ms for node in counts), default=0)
    if name == "maxCycleIterations":
        return max((cycle.iterations for cycle in cycles), default=0)
    if name == "maxCycleRuntimeMs":
        return max((run.at_ms - cycle.since_ms for cycle in cycles if cycle.since_ms), default=0)
    if name == "maxCycleCost":
        return max((ledger.cost_usd_micro - cycle.spent_before for cycle in cycles), default=0)
    if name == "maxRuntimeMs":
        return run.at_ms - run.started_ms if run.started_ms else 0
    whole = {"maxSteps": run.turns, "maxCostUsd": ledger.cost_usd_micro, "maxRounds": run.round}
    return whole.get(name, 0)


def put_on_probation(run: RunState, turns: int) -> None:
    """Put a run on probation for a number of turns, from the next turn on; 0: no probation."""
    run.escalation.probation_until = run.turns + turns if turns else -1
    run.escalation.probation_iterations = 0


def strictly(finding: Finding, limits: Any) -> Finding:
    """Return a finding as it counts on probation: a warning of a detector that can halt becomes a final halt.

    Budget warnings and silence stay warnings: a slow or waiting run has not started its loop again.
    """
    loop = finding.reason != BUDGET_EXCEEDED and finding.evidence.kind != "silence"
    if finding.level == Level.WARN and loop and _can_halt(limits):
        finding = msgspec.structs.replace(finding, level=Level.HALT, type="")
    if finding.level != Level.HALT or finding.reason == "user_stop":
        return finding
    return msgspec.structs.replace(
        finding, status="escalated", action="ask_human", message=finding.message.rstrip() + FINAL
    )


def _can_halt(limits: Any) -> bool:
    """Whether a detector has a halt threshold that is on. Other detectors only warn, and their warnings are too weak to
    end a run."""
    return any("halt" in name and getattr(limits, name) for name in getattr(limits, "__dataclass_fields__", ()))


def pass_probation(run: RunState, iterated: bool) -> None:
    """End probation after this turn if it is over."""
    until = run.escalation.probation_until
    run.escalation.probation_iterations += iterated
    over = run.turns >= until and (run.escalation.probation_iterations or not len(run.cycles.table))
    if over or run.halted >= 0 or run.turns >= until + PROBATION_TURNS_MAX:
        run.escalation.probation_until, run.escalation.probation_iterations = -1, 0
