"""All detectors. To add one, write its file and add it to the tuple: the order here is the order of decisions.

If several find the same loop in the same turn, only the first one reports it, so the most specific come first.
"""

from __future__ import annotations

from typing import Final, Protocol

from streamproc.detectors import (
    account_budget,
    artifact_flip,
    blocked_chain,
    compaction_thrash,
    concurrent_runs,
    consecutive_failures,
    cost_budget,
    cycle_budget,
    design_gate,
    dod_noncompliance,
    edge_loop,
    edits_without_effect,
    error_streak,
    flat_metric,
    growing_context,
    halted_parent,
    infrastructure,
    init_skip,
    monologue,
    near_repeat,
    no_fewer_failures,
    node_budget,
    open_findings,
    operator_resume,
    operator_stop,
    oscillation,
    oversized_batch,
    recurring_error,
    rejection_loop,
    repeated_call,
    repeated_error,
    repeated_output,
    repeated_query,
    retry_exhausted,
    round_budget,
    run_clock,
    same_children,
    same_failures,
    same_reply,
    sent_on_again,
    session_budget,
    session_loop,
    session_runs,
    silence,
    spawn_pace,
    spend_pace,
    stagnant_call,
    stale_window,
    state_oscillation,
    state_skip,
    step_budget,
    task_stalled,
    task_tokens,
    text_only,
    tree_depth,
    turn_budget,
    two_signs,
    unacknowledged,
    unchanged_artifact,
    unfinished_answer,
    unproven_success,
    unreadable_graph,
    unsafe_cycle,
    waiting_parent,
    zero_progress_cycle,
)
from streamproc.detectors.base import Detector, Example

__all__ = ["BY_CODE", "DETECTORS", "LAYERS", "MODULES"]


class DetectorFile(Protocol):
    """The module of a detector: its docstring and examples are the page of the detector."""

    __name__: str
    HEALTHY: list[Example]
    STUCK: list[Example]

    @property
    def DETECTOR(self) -> Detector: ...  # noqa: N802


MODULES: Final[tuple[DetectorFile, ...]] = (
    artifact_flip, oscillation, repeated_call, edits_without_effect, recurring_error, error_streak, repeated_output,
    repeated_error, same_failures, no_fewer_failures, unchanged_artifact, flat_metric, edge_loop, monologue,
    same_reply, text_only, near_repeat, repeated_query, stagnant_call, stale_window, infrastructure, turn_budget,
    node_budget, cycle_budget, step_budget, round_budget, run_clock, cost_budget, task_tokens, session_budget,
    account_budget, spend_pace, silence, unsafe_cycle, unreadable_graph, operator_stop, operator_resume,
    unacknowledged, state_skip, dod_noncompliance, init_skip, design_gate, oversized_batch, state_oscillation,
    rejection_loop, retry_exhausted, blocked_chain, consecutive_failures, task_stalled, zero_progress_cycle,
    session_runs, concurrent_runs, tree_depth, spawn_pace, same_children, session_loop, waiting_parent, halted_parent,
    compaction_thrash, sent_on_again, open_findings, unfinished_answer, growing_context, unproven_success, two_signs,
)  # fmt: skip
DETECTORS: Final[dict[str, Detector]] = {module.DETECTOR.code: module.DETECTOR for module in MODULES}
BY_CODE: Final[dict[str, DetectorFile]] = {module.DETECTOR.code: module for module in MODULES}
LAYERS: Final = {"BUDGET004": 1, "GRAPH001": 2, "BUDGET005": 3, "BUDGET006": 4, "BUDGET007": 5}
"""The layers of the deliberation requirement, by the codes of their detectors."""
