"""All detectors. To add one, write its file and add it to the tuple: the order here is the order of decisions.

Where several see the same loop in the same turn, the first one tells it; so the most specific come first.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from streamproc.detectors import (
    artifact_flip,
    cost_budget,
    cycle_budget,
    edge_loop,
    error_streak,
    flat_metric,
    infrastructure,
    monologue,
    near_repeat,
    no_fewer_failures,
    node_budget,
    operator_resume,
    operator_stop,
    oscillation,
    recurring_error,
    repeated_call,
    repeated_error,
    repeated_output,
    repeated_query,
    round_budget,
    run_clock,
    same_failures,
    silence,
    spend_pace,
    stagnant_call,
    stale_window,
    step_budget,
    turn_budget,
    unacknowledged,
    unchanged_artifact,
    unreadable_graph,
    unsafe_cycle,
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
    turn_budget,
    node_budget,
    cycle_budget,
    step_budget,
    round_budget,
    run_clock,
    cost_budget,
    spend_pace,
    silence,
    unsafe_cycle,
    unreadable_graph,
    operator_stop,
    operator_resume,
    unacknowledged,
)

BY_CODE: Final[dict[str, ModuleType]] = {module.DETECTOR.code: module for module in MODULES}
