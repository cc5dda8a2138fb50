"""All detectors. To add one, write its file and add it to the tuple: the order here is the order of decisions.

Where several see the same loop in the same turn, the first one tells it; so the most specific come first.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from streamproc.detectors import (
    artifact_flip,
    blocked_chain,
    consecutive_failures,
    cost_budget,
    cycle_budget,
    design_gate,
    dod_noncompliance,
    edge_loop,
    error_streak,
    flat_metric,
    infrastructure,
    init_skip,
    monologue,
    near_repeat,
    no_fewer_failures,
    node_budget,
    oscillation,
    oversized_batch,
    recurring_error,
    rejection_loop,
    repeated_call,
    repeated_error,
    repeated_output,
    repeated_query,
    retry_exhausted,
    same_failures,
    stagnant_call,
    stale_window,
    state_oscillation,
    state_skip,
    step_budget,
    task_stalled,
    unchanged_artifact,
    unreadable_graph,
    unsafe_cycle,
    zero_progress_cycle,
)

MODULES: Final[tuple[ModuleType, ...]] = (
    artifact_flip,
    oscillation,
    repeated_call,
    recurring_error,
    error_streak,
    repeated_output,
    repeated_error,
    same_failures,
    no_fewer_failures,
    unchanged_artifact,
    flat_metric,
    edge_loop,
    monologue,
    near_repeat,
    repeated_query,
    stagnant_call,
    stale_window,
    infrastructure,
    node_budget,
    cycle_budget,
    step_budget,
    cost_budget,
    unsafe_cycle,
    unreadable_graph,
    state_skip,
    dod_noncompliance,
    init_skip,
    design_gate,
    oversized_batch,
    state_oscillation,
    rejection_loop,
    retry_exhausted,
    blocked_chain,
    consecutive_failures,
    task_stalled,
    zero_progress_cycle,
)

BY_CODE: Final[dict[str, ModuleType]] = {module.DETECTOR.code: module for module in MODULES}
