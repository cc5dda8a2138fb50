"""All detectors. To add one, write its file and add it to the tuple: the order here is the order of decisions.

Where several see the same loop in the same turn, the first one tells it; so the most specific come first.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from streamproc.detectors import (
    cost_budget,
    cycle_budget,
    no_fewer_failures,
    node_budget,
    oscillation,
    repeated_call,
    repeated_error,
    repeated_output,
    same_failures,
    step_budget,
    unchanged_artifact,
)

MODULES: Final[tuple[ModuleType, ...]] = (
    oscillation,
    repeated_call,
    repeated_output,
    repeated_error,
    same_failures,
    no_fewer_failures,
    unchanged_artifact,
    node_budget,
    cycle_budget,
    step_budget,
    cost_budget,
)

BY_CODE: Final[dict[str, ModuleType]] = {module.DETECTOR.code: module for module in MODULES}
