"""The rows of the catalogue that are about loops, progress and errors, in its order."""

from __future__ import annotations

from typing import Final

TITLES: Final[dict[str, str]] = {
    "LOOP001": "repeated_output",
    "LOOP002": "oscillation",
    "LOOP003": "repeated_call",
    "LOOP004": "stagnant_call",
    "LOOP005": "edge_loop",
    "LOOP006": "near_repeat",
    "LOOP007": "repeated_query",
    "LOOP008": "monologue",
    "LOOP009": "stale_window",
    "STALL001": "unchanged_artifact",
    "STALL002": "same_failures",
    "STALL003": "no_fewer_failures",
    "STALL004": "flat_metric",
    "STALL005": "task_stalled",
    "STALL006": "zero_progress_cycle",
    "STALL007": "silence",
    "STALL008": "artifact_flip",
    "ERROR001": "repeated_error",
    "ERROR002": "retry_exhausted",
    "ERROR003": "error_streak",
    "ERROR004": "consecutive_failures",
    "ERROR005": "recurring_error",
    "INFRA001": "infrastructure",
}
