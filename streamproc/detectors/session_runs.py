"""TREE001 session_runs: more runs were born in a session than it may have.

Sees: the births of all runs of a session (`session_id`; without one, the run named by `parent_run_id`), against
`maxSessionRuns`. At 80 % the newborn and its ancestors are warned. Above the limit a newborn is halted at once and
counts nowhere; after ten refused births, all runs of the session are halted, and it takes no births until an operator
resumes one of them.

Why: an orchestrator that misreads its own progress starts agents without end: 242, 361 and 905 out of one request.

False alarms: a limit below the honest fan-out refuses honest children. Without a limit nothing is reported. With
`STREAMPROC_RUN_TOKEN`, runs of other publishers that name the session count nothing in it.

Tuning: declare `maxSessionRuns` on the `run.started` of the root, or set it in the policy, where it applies to every
session; of several declared limits the lowest applies, and no run can raise that of the policy. `warn_percent` is the
share of the limit that warns, `halt_refusals` how many births are refused before the session halts; 0 turns either off.

Reference: 242 agents from one call (claude-code#69332), 361 where 5 were planned (#72566), 905 (#69395).
"""

from __future__ import annotations

from streamproc.detectors.base import Example
from streamproc.detectors.tree_detector import LimitDetector, family


class SessionRuns(LimitDetector):
    code, name = "TREE001", "session_runs"
    unit, budget = "runs", "maxSessionRuns"
    over = "runs born in the session"
    kept = "Work with the runs that there are."


DETECTOR = SessionRuns()
_FIVE = {"budgets": {"maxSessionRuns": 5}}
HEALTHY = [
    Example("a map over 200 files, without a limit", family(*[{}] * 200)),
    Example("fewer runs than the session may have", family(*[{}] * 2), policy=_FIVE),
]
STUCK = [
    Example("one run too many", family(*[{}] * 5), "halt", 0, policy=_FIVE),
    Example("near the limit", family(*[{}] * 3), "warn", 0, policy=_FIVE),
]
