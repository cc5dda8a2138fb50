"""TREE002 concurrent_runs: more runs of a session are alive at once than it may have.

Sees: runs of a session that were born and have neither finished nor halted, against `maxConcurrentRuns`. At 80 % the
newborn and its ancestors are warned. Above the limit a newborn is halted at once; after ten refused births in a row,
all runs of the session are halted.

Why: agents that run side by side share rate limits, memory and money: 188 within a minute take a machine down.

False alarms: a publisher that never sends `run.finished` leaves its runs alive for ever; let it send that.

Tuning: declare `maxConcurrentRuns` on the `run.started` of the root, or set it in the policy, where it applies to every
session; of several declared limits the lowest applies, and no run can raise that of the policy. `warn_percent` is the
share of the limit that warns, `halt_refusals` how many births are refused before the session halts; 0 turns either off.

Reference: 188 agents in one minute (claude-code#69332).
"""

from __future__ import annotations

from streamproc.detectors.base import Example
from streamproc.detectors.tree_detector import LimitDetector, family


class ConcurrentRuns(LimitDetector):
    code, name = "TREE002", "concurrent_runs"
    unit, budget = "alive", "maxConcurrentRuns"
    over = "runs alive at once"
    kept = "Wait until one of them has finished."


DETECTOR = ConcurrentRuns()
_THREE = {"budgets": {"maxConcurrentRuns": 3}}
HEALTHY = [
    Example(
        "runs one after the other",
        [
            one
            for n in range(9)
            for one in (family(*[{}] * (n + 1))[n + 1], {"type": "run.finished", "run_id": f"child-{n}"})
        ],
        policy=_THREE,
    ),
    Example("many at once, without a limit", family(*[{}] * 60)),
]
STUCK = [
    Example("near the limit", family(*[{}] * 3), "warn", 0, policy={"budgets": {"maxConcurrentRuns": 4}}),
    Example("one too many at once", family(*[{}] * 3), "halt", 0, policy=_THREE),
]
