"""Which tasks have ended while their run goes on, and what lets them go on as well: the status of the run says so."""

from __future__ import annotations

from typing import Final

import pytest

from streamproc import Monitor
from streamproc.model.controls import ControlEvent
from tests.core.board.board_events import cycle, given, moves
from tests.feeding import Raw

SWINGS: Final = ("IMPLEMENTING", *("QA_REVIEW", "REWORK", "IMPLEMENTING") * 3)


def rejected(task: str) -> Raw:
    return {"type": "task.verdict", "task_id": task, "verdict": "REJECTED", "validator": "qa"}


ENDS: Final[dict[str, list[Raw]]] = {
    "blocked": [given("ada", "T1"), *moves("T1", *SWINGS)],
    "stalled": [given("ada", "T1"), *moves("T1", "LOCKED", "IMPLEMENTING"), cycle(), cycle(), cycle()],
    "escalated": [given("ada", "T1"), *moves("T1", "IMPLEMENTING", "QA_REVIEW"), *[rejected("T1")] * 3],
    "budget_exceeded": [
        given("ada", "T1", max_token_budget=100), given("bob", "T2"), *moves("T2", "LOCKED", "IMPLEMENTING"),
        {"node": "ada", "task_id": "T1", "usage": {"total_tokens": 97}},
    ],
}  # fmt: skip


class Team(Monitor):
    """A run under `tickets`."""

    def __init__(self) -> None:
        super().__init__("tickets")

    def play(self, raws: list[Raw]) -> list[ControlEvent]:
        return [control for raw in raws for control in self.feed({"run_id": "r", **raw})]

    def ended(self) -> list[tuple[str, str, str]]:
        status = self.status("r")
        assert status.status == "running"
        return [(end.task_id, end.terminal_status, end.agent) for end in status.ended_tasks]


@pytest.mark.parametrize("how", ENDS)
def test_a_task_ends_and_the_run_goes_on(how: str) -> None:
    team = Team()
    end = team.play(ENDS[how])[-1]
    assert (end.severity, end.terminal_status, end.task_id) == ("warn", how, "T1")
    assert end.type == ("task.escalated" if how == "escalated" else "task.ended")
    assert end.evidence.agent == "ada"
    assert team.ended() == [("T1", how, "ada")]
    assert team.play([{"node": "bob", "task_id": "T2", "output": "I go on with T2."}]) == []
    assert team.ended() == [("T1", how, "ada")]


DECIDED: Final = {"type": "decision.recorded", "task_id": "T1", "decision": "APPROVED", "approvals": [{"by": "eve"}]}


@pytest.mark.parametrize(("how", "raw"), [
    ("blocked", moves("T1", "BLOCKED", "IMPLEMENTING", evidence=[{"name": "root_cause", "status": True}])[0]),
    ("blocked", DECIDED), ("stalled", moves("T1", "STALLED", "IMPLEMENTING")[0]), ("stalled", given("bob", "T1")),
    ("escalated", DECIDED), ("budget_exceeded", given("ada", "T1", max_token_budget=500)), ("budget_exceeded", DECIDED),
])  # fmt: skip
def test_what_lets_a_task_go_on(how: str, raw: Raw) -> None:
    team = Team()
    team.play(ENDS[how])
    team.play([cycle(), given("bob", "T9")])  # about other tasks
    assert team.ended() == [("T1", how, "ada")]

    team.play([raw])

    assert team.ended() == []


@pytest.mark.parametrize(("how", "raw"), [
    ("blocked", moves("T1", "BLOCKED", "IMPLEMENTING")[0]), ("escalated", moves("T1", "ESCALATED", "IMPLEMENTING")[0]),
    ("budget_exceeded", moves("T1", "IMPLEMENTING", "QA_REVIEW")[0]),
])  # fmt: skip
def test_a_move_alone_does_not(how: str, raw: Raw) -> None:
    team = Team()
    team.play(ENDS[how])
    team.play([raw])
    assert [end[:2] for end in team.ended()] == [("T1", how)]


def test_more_tasks_than_are_kept_forget_the_oldest_and_the_state_stays_bounded() -> None:
    team = Team()
    for number in range(12):
        task = f"{'task' * 20}-{number}"
        team.play([given("a" * 100, task), *moves(task, *SWINGS)])
    ended = [task for task, _, _ in team.ended()]
    assert ended
    assert len(ended) <= 8
    assert ended[-1].endswith("-11")
