"""A halted run goes on: streaks begin anew, budgets grow by the grant, and one iteration is on probation (half-open).

On probation a warning of a detector that could halt does halt, and every halt is final: a person has to look at it
(`escalated`). Probation ends after so many turns, and where the run is in a cycle not before one iteration of it is
through, but after sixteen turns at the latest: no loop that is looked for is longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from streamproc.core.decision import BUDGET_EXCEEDED, Finding, Level
from streamproc.core.signals.handovers import speak_to
from streamproc.core.signals.novelty import note_progress
from streamproc.model.budgets import BUDGETS, INTEGER_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.core.run_state import RunState

PROBATION_TURNS_MAX: Final = 16
TASK_TOKENS: Final = "maxTaskTokens"
CEILINGS: Final = {budget.name: budget.ceiling or INTEGER_MAX for budget in BUDGETS}
FINAL: Final = " It was on probation after it had been resumed: a person has to look at it."


def resume(run: RunState, grant: Mapping[str, int], limits: Mapping[str, int], heard_ms: int) -> None:
    """Take the halt back. `limits` are those in force; `heard_ms` is when the run was last heard of: the time since
    then is not the run's."""
    away_ms = run.at_ms - heard_ms if heard_ms else 0
    run.started_ms += away_ms if run.started_ms else 0
    for cycle in run.cycles:
        cycle.since_ms += away_ms if cycle.since_ms else 0
    for name, more in grant.items():
        if name == TASK_TOKENS:
            _grant_tokens(run, more)
        elif name in limits:  # what has no limit needs no grant
            reached = max(limits[name], used(run, name))
            run.budgets = run.budgets | {name: min(reached + more, CEILINGS.get(name, INTEGER_MAX))}
    run.halted = run.echo = run.unheeded = -1
    run.halt_code, run.severity, run.finished = "", 0, False
    run.episodes = {}
    run.begun = []
    run.pending = []
    if run.board is not None:
        run.board.zero, run.board.failed = 0, []
    run.resumes += 1
    speak_to(run, run.turns)
    note_progress(run, run.turns)


def _grant_tokens(run: RunState, more: int) -> None:
    """To every task of the run that has a budget; its ladder is climbed anew."""
    for spent in run.task_tokens.values():
        spent.limit = min(max(spent.limit, spent.used) + more, INTEGER_MAX)
        spent.rung = 0


def used(run: RunState, name: str) -> int:
    """How much of a budget a run has used: of its nodes and cycles, the one that has used most."""
    counts, cycles, ledger = run.counts.values(), run.cycles, run.ledger
    if name == "maxTurnsPerNode":
        return max((turns for turns, _ in counts), default=0)
    if name == "maxRuntimeMsPerNode":
        return max((runtime_ms for _, runtime_ms in counts), default=0)
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
    """From the next turn on, for so many turns; 0: not at all."""
    run.probation = [run.turns + turns, 0] if turns else []


def strictly(finding: Finding, limits: Any) -> Finding:
    """A finding on probation: a warning of a detector that could halt is a halt, and a halt is final.

    But a run that is slow, or waits for somebody, has not begun its loop again.
    """
    grave = finding.reason != BUDGET_EXCEEDED and finding.evidence.kind != "silence"
    if finding.level == Level.WARN and grave and _can_halt(limits):
        finding = msgspec.structs.replace(finding, level=Level.HALT, type="")
    if finding.level != Level.HALT or finding.reason == "user_stop":
        return finding
    return msgspec.structs.replace(
        finding, status="escalated", action="ask_human", message=finding.message.rstrip() + FINAL
    )


def _can_halt(limits: Any) -> bool:
    """Whether a detector has a threshold for halts that is on. Others only ever warn, and a warning of them says too
    little to end a run."""
    return any("halt" in name and getattr(limits, name) for name in getattr(limits, "__slots__", ()))


def pass_probation(run: RunState, *, iterated: bool) -> None:
    """After a turn on probation: is it over?"""
    until, iterations = run.probation
    run.probation[1] = iterations = iterations + iterated
    over = run.turns >= until and (iterations or not run.cycles)
    if over or run.halted >= 0 or run.turns >= until + PROBATION_TURNS_MAX:
        run.probation = []
