"""TASK005 dod_noncompliance: a task moves on without meeting the definition of done.

Sees: a move past QA_REVIEW when an item of the definition-of-done report fails, at any depth of sections and items, or
the report is missing, or its verdict is another word than APPROVED. The finding names what the report lacks, also if it
came with an earlier event. The move is blocked and the task goes back to REWORK. At the second attempt the finding
flags the agent.

Why: unfinished work comes back from every later state, at a higher cost.

False alarms: a report sent with an earlier event of the same round of work counts. If a team publishes no reports at
all, every task is reported twice: remove the guard from the board.

Tuning: `flag` is the attempt at which the agent is flagged. The guard `dod` of the board lists the transitions that
require a report.

Reference: tickets requirement, "any item with `status: false`, or no report, or `verdict != APPROVED`".
"""

from __future__ import annotations

from streamproc.core.board.change import BoardChange
from streamproc.core.board.state import Task
from streamproc.detectors.base import Example, View, moved
from streamproc.detectors.board_detector import GuardDetector, owner


class DodNoncompliance(GuardDetector):
    code, name = "TASK005", "dod_noncompliance"

    class Limits:
        """Attempts to move on."""

        flag: int = 2  # the first may be a mistake; the second ignores the refusal

    def asks_at(self, limits: Limits) -> int:
        return limits.flag

    def problem(self, view: View, step: BoardChange, task: Task) -> str:
        to = step.config.name(step.target)
        return f"{task.id} cannot move to {to}: {', '.join(step.missing)} missing or failing"

    def advice(self, view: View, task: Task) -> str:
        return f"reassign it from {owner(view, task.id) or 'its current agent'} to another agent, or ask a person"


DETECTOR = DodNoncompliance()
_GOOD = {"verdict": "APPROVED", "items": [{"name": "tests", "status": True}, {"name": "docs", "status": True}]}
_POOR = {"verdict": "APPROVED", "items": [{"name": "tests", "status": True}, {"name": "docs", "status": False}]}
HEALTHY = [
    Example("an approved report", moved("T1", "IMPLEMENTING", "QA_REVIEW", "VALIDATION", dod=_GOOD)),
    Example("the report came with the previous move", [
        *moved("T1", "IMPLEMENTING", "QA_REVIEW", evidence={"dod_report": "approved"}),
        *moved("T1", "QA_REVIEW", "VALIDATION"),
    ]),
    Example("the review sends a failing task back", moved("T1", "IMPLEMENTING", "QA_REVIEW", "REWORK", dod=_POOR)),
]  # fmt: skip
STUCK = [
    Example("an item fails", moved("T1", "IMPLEMENTING", "QA_REVIEW", "VALIDATION", dod=_POOR), "warn", 0),
    Example(
        "an item within a section fails",
        moved(
            "T1",
            "QA_REVIEW",
            "VALIDATION",
            dod={"verdict": "APPROVED", "sections": [{"title": "1", **_POOR}]},
        ),
        "warn",
        0,
    ),
    Example("another verdict", moved("T1", "QA_REVIEW", "VALIDATION", dod=_GOOD | {"verdict": "OK"}), "warn", 0),
    Example("no report", moved("T1", "QA_REVIEW", "VALIDATION"), "warn", 0),
    Example("not approved", moved("T1", "QA_REVIEW", "VALIDATION", dod=_GOOD | {"verdict": "PENDING"}), "warn", 0),
]
