"""TREE003 tree_depth: a run was started too many levels below the root of its session.

Sees: how many ancestors a newborn has in its session, against `maxDepth`: 1 allows children, 2 children of children. At
80 % it and its ancestors are warned. Above the limit a newborn is halted at once; after ten refused births, all runs of
the session are halted.

Why: agents that delegate what they were given multiply with every level.

False alarms: a run whose parent the session does not know counts as a child of the root until the parent is known.

Tuning: declare `maxDepth` on the `run.started` of the root, or set it in the policy, where it applies to every
session; of several declared limits the lowest applies, and no run can raise that of the policy. `warn_percent` is the
share of the limit that warns, `halt_refusals` how many births are refused before the session halts; 0 turns either off.

Reference: 877 agents although the depth was capped at 5 (claude-code#77361).
"""

from __future__ import annotations

from streamproc.detectors.base import Example
from streamproc.detectors.tree_detector import LimitDetector, family


class TreeDepth(LimitDetector):
    code, name = "TREE003", "tree_depth"
    unit, budget = "depth", "maxDepth"
    over = "levels below the root"
    kept = "Return the work to the parent."


DETECTOR = TreeDepth()
_TWO = {"budgets": {"maxDepth": 2}}
HEALTHY = [
    Example("a wide and flat tree", family(*[{}] * 50), policy=_TWO),
    Example("any depth, without a limit", family(*({"parent_run_id": f"child-{n - 1}"} for n in range(9)))),
]
STUCK = [
    Example("as deep as it may be", family({}, {"parent_run_id": "child-0"}), "warn", 0, policy=_TWO),
    Example(
        "a level too deep", family({}, *({"parent_run_id": f"child-{n}"} for n in range(2))), "halt", 0, policy=_TWO
    ),
]
