"""TREE005 same_children: children of a session are started with the same prompt again and again.

Sees: the `prompt` of each `run.started` of a session (without one, the `request` of its first turn), as a hash after
masking. The newborn above `maxSameChildren` is halted at once; after ten refused births, all runs of the session are
halted. Prompts that are only almost equal (SimHash) warn and never halt.

Why: a parent that does not accept an answer asks for it again; each child costs what the first one cost.

False alarms: a panel of reviewers, or retries, may share a prompt on purpose: set the limit above that.

Tuning: declare `maxSameChildren` on the `run.started` of the root, or set it in the policy, where it applies to every
session; of several declared limits the lowest applies, and no run can raise that of the policy. `warn_percent` is the
share of the limit that warns, `halt_refusals` how many births are refused before the session halts; 0 turns either off.

Reference: 361 agents where 5 were planned (claude-code#72566).
"""

from __future__ import annotations

from streamproc.detectors.base import Example
from streamproc.detectors.tree_detector import LimitDetector, family


class SameChildren(LimitDetector):
    code, name = "TREE005", "same_children"
    unit, budget = "same", "maxSameChildren"
    over = "runs with the same prompt"
    kept = "Use the answer of one of them, or change the prompt."


DETECTOR = SameChildren()
_FOUR = {"budgets": {"maxSameChildren": 4}}
_ASKED = {"prompt": "Find the cause of the failing login test."}
HEALTHY = [
    Example("retries, of which the last succeeds", family(*[_ASKED] * 3), policy=_FOUR),
    Example("a panel of twelve, without a limit", family(*[_ASKED] * 12)),
    Example(
        "a map over files", family(*({"prompt": f"Translate file {chr(97 + n)}.md."} for n in range(20))), policy=_FOUR
    ),
]
STUCK = [
    Example("as many as there may be", family(*[_ASKED] * 4), "warn", 0, policy=_FOUR),
    Example("the same child once too often", family(*[_ASKED] * 5), "halt", 0, policy=_FOUR),
]
