"""What is published of a finding: with its evidence, its action, its place in the log, and who it is about."""

from __future__ import annotations

from streamproc.core.decision import BUDGET_EXCEEDED, Decision, Finding, Level, Trigger, hex16
from streamproc.core.escalation import UNDECIDED, explain_to_snitch, hash_id, identity
from streamproc.core.rules import Rules
from streamproc.core.run_state import RunState
from streamproc.core.signals.cycles import Cycle
from streamproc.core.signals.evidence import RecentHashes
from streamproc.core.status import SEVERITIES, badge_of
from streamproc.core.view import View
from streamproc.model.log_time import rfc3339
from streamproc.model.wire import Event, Turn


def decide(view: View, event: Event, rules: Rules, finding: Finding) -> Decision:
    """Return the decision that a finding about an event becomes. Its topic, partition and offset are not known here."""
    run: RunState = view.run
    cycle: Cycle | None = view.cycle
    recent: RecentHashes = run.evidence
    evidence = finding.evidence
    halts: bool = finding.level is Level.HALT
    index = max(0, run.turns - 1)
    scope = run.scope
    action, suggested = rules.actions(finding)
    if halts and action == "snitch":
        explain_to_snitch(run, finding, view.node_tag if type(event) is Turn else 0)
    if halts:
        evidence.output_hashes = [hex16(value) for value in recent.outputs.listed()] or None
        evidence.artifact_hashes = [hex16(value) for value in recent.artifacts.listed()] or None
        evidence.failing_signatures = [hex16(value) for value in recent.failing_sets.listed()] or None
        evidence.failing_trend = recent.failing_counts.listed() or None
    decision_id = identity(event.run_id, run, finding, index, rules.policy.hash)
    if halts and run.cold.halted_by == UNDECIDED:
        run.cold.halted_by = hash_id(decision_id)
    return Decision(
        id=decision_id,
        type=finding.type or ("loop.halted" if halts else _type_of_warning(finding)),
        run_id=event.run_id,
        code=finding.code,
        severity=SEVERITIES[finding.level],
        message=finding.message,
        workflow=scope.workflow or None,
        tenant=scope.tenant or None,
        user=scope.user or None,
        cycle_id=hex16(cycle.key) if cycle is not None else None,
        node=finding.node or event.node or event.agent or None,
        task_id=finding.task or event.task_id or None,
        halt_reason=finding.reason if halts else None,
        terminal_status=finding.status if halts or finding.status == "escalated" else finding.task_status or None,
        stop_reason=finding.stop or (evidence.kind if halts else None),
        action=action,
        suggested_actions=suggested,
        evidence=evidence,
        trigger=Trigger(event_id=event.event_id, turn=index),
        onset=finding.onset if finding.onset >= 0 else None,
        policy=rules.policy,
        at=rfc3339(run.at_ms) if run.at_ms else None,
        labels=event.labels,
        badge=badge_of(run, iterations_max(run, rules)) if len(run.cycles.table) else None,
    )


def _type_of_warning(finding: Finding) -> str:
    if finding.task_status:
        return "task.ended"
    return "budget.level" if finding.reason == BUDGET_EXCEEDED else "loop.warning"


def iterations_max(run: RunState, rules: Rules) -> int | None:
    """Return how many iterations a cycle of a run may take; None: any number."""
    return run.scope.budgets.get("maxCycleIterations") or rules.budgets.get("maxCycleIterations")
