"""What is published of a finding: with its evidence, its action, its place in the log, and who it is about."""

from __future__ import annotations

from typing import Any

import msgspec
from xxhash import xxh3_128_hexdigest

from streamproc.core.decision import BUDGET_EXCEEDED, Decision, Finding, Level, Trigger, hex16
from streamproc.core.escalation import UNDECIDED, hash_id
from streamproc.core.rules import Rules
from streamproc.core.run_state import RunState
from streamproc.core.signals.cycles import Cycle
from streamproc.core.signals.evidence import RecentHashes
from streamproc.core.status import SEVERITIES, badge_of
from streamproc.core.view import View
from streamproc.model.controls import ControlType
from streamproc.model.log_time import rfc3339
from streamproc.model.wire import Event, Turn


def decide(view: View, event: Event, rules: Rules, finding: Finding) -> Decision:
    """Return the decision that a finding about an event becomes. Its topic, partition and offset are not known here."""
    run: RunState = view.run
    cycle: Cycle | None = view.cycle
    recent: RecentHashes = run.evidence
    halts: bool = finding.level is Level.HALT
    index = max(0, run.turns - 1)
    scope = run.scope
    words: Any = finding  # those of a plug-in are checked (`policy.plugin_detector`)
    action: Any
    action, suggested = rules.actions(finding)
    if halts and action == "snitch":
        _explain_to_snitch(run, finding, view.node_tag if type(event) is Turn else 0)
    evidence = finding.evidence
    if halts:
        evidence = msgspec.structs.replace(
            evidence,
            output_hashes=[hex16(value) for value in recent.outputs.listed()] or None,
            artifact_hashes=[hex16(value) for value in recent.artifacts.listed()] or None,
            failing_signatures=[hex16(value) for value in recent.failing_sets.listed()] or None,
            failing_trend=recent.failing_counts.listed() or None,
        )
    decision_id = _identity(event.run_id, run, finding, index, rules.policy.hash)
    if halts and run.cold.halted_by == UNDECIDED:
        run.cold.halted_by = hash_id(decision_id)
    return Decision(
        id=decision_id,
        type=words.type or ("loop.halted" if halts else _type_of_warning(finding)),
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
        halt_reason=words.reason if halts else None,
        terminal_status=words.status if halts or finding.status == "escalated" else words.task_status or None,
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


def _type_of_warning(finding: Finding) -> ControlType:
    if finding.task_status:
        return "task.ended"
    return "budget.level" if finding.reason == BUDGET_EXCEEDED else "loop.warning"


def iterations_max(run: RunState, rules: Rules) -> int | None:
    """Return how many iterations a cycle of a run may take; None: any number."""
    return run.scope.budgets.get("maxCycleIterations") or rules.budgets.get("maxCycleIterations")


def _explain_to_snitch(run: RunState, finding: Finding, node_tag: int) -> None:
    """Complete a finding for a planner that routes to `snitch`: the run is stuck, on the edge on which the node got
    its work."""
    if finding.status == "stalled":
        finding.status = "aborted_stuck"
    if (
        finding.reason != BUDGET_EXCEEDED
        and finding.evidence.edge is None
        and (edge := run.handovers.edge_of(run.cold.node_names, node_tag))
    ):
        finding.evidence = msgspec.structs.replace(finding.evidence, edge=edge)
        finding.message = f"{finding.message.removesuffix('.')}, after handovers from {edge[0]} to {edge[1]}."


def _identity(run_id: str, run: RunState, finding: Finding, index: int, policy_hash: str) -> str:
    """Return a decision's id. The same log and policy give the same id, whichever process decides.

    Reusing a run id and resuming a run change the ids, or readers would skip the next halt as a duplicate.
    """
    attempt = f"{run.id_reuses}.{run.escalation.resumes}" if run.escalation.resumes else run.id_reuses
    place = "" if finding.anywhere else index
    text = f"{run_id}\0{attempt}\0{finding.code}\0{finding.loop}\0{int(finding.level)}\0{place}\0{policy_hash}"
    return xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))
