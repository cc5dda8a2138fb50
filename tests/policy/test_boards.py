"""Boards in policy files: their settings, how layers merge, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamproc.core.board.config import BoardConfig
from streamproc.errors import InvalidPolicy
from streamproc.policy import load_policy
from tests.feeding import STANDARD, decisions

OWN = {"path": ["OPEN", "DOING", "DONE"], "done": "DONE"}


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def board(tmp_path: Path, **setting: Any) -> dict[str, Any]:
    """Return the board in force under a policy with this setting."""
    found: dict[str, Any] = load_policy(write(tmp_path, yaml.safe_dump({"board": setting}))).effective()["board"]
    return found


def mistakes(tmp_path: Path, text: str) -> list[tuple[int, str, str]]:
    """Return (line, field, mistake) of every mistake."""
    with pytest.raises(InvalidPolicy) as caught:
        load_policy(write(tmp_path, text))
    return [(int(one.place.rpartition(":")[2]), one.field, one.what) for one in caught.value.problems]


def test_a_board_with_a_path_inherits_nothing(tmp_path: Path) -> None:
    assert board(tmp_path, **OWN) == {"path": ["OPEN", "DOING", "DONE"], "done": ["DONE"]}


def test_a_board_without_a_path_changes_parts_of_the_board_below(tmp_path: Path) -> None:
    standard = STANDARD.effective()["board"]
    found = board(tmp_path, batch={"default": 4}, guards={"init": False, "ci": {"into": "COMMIT"}})
    assert found["path"] == standard["path"]
    assert found["batch"] == {"default": 4, "SPEC": 5}
    assert set(found["guards"]) == {"dod", "design", "ci"}
    assert found["guards"]["dod"] == standard["guards"]["dod"]


def test_the_effective_board_can_be_copied_into_a_policy(tmp_path: Path) -> None:
    shown = STANDARD.effective()["board"]
    assert board(tmp_path, **shown) == shown


def test_a_scope_can_have_its_own_board(tmp_path: Path) -> None:
    policy = load_policy(write(tmp_path, yaml.safe_dump({"workflows": {"design": {"board": OWN}}})))
    move = {"type": "task.transition", "task_id": "T1", "from": "OPEN", "to": "DONE"}
    assert decisions([move], policy) == []
    assert [one.code for one in decisions([move | {"workflow": "design"}], policy)] == ["TASK004"]


def test_boards_of_several_scopes_that_do_not_fit_break_nothing(tmp_path: Path) -> None:
    layers = {"workflows": {"w": {"board": OWN}}, "tenants": {"t": {"board": {"guards": {"ci": {"into": "COMMIT"}}}}}}
    policy = load_policy(write(tmp_path, yaml.safe_dump(layers)))
    move = {"type": "task.transition", "task_id": "T1", "workflow": "w", "tenant": "t"}
    assert decisions([move | {"from": "OPEN", "to": "DOING"}, move | {"from": "DOING", "to": "DONE"}], policy) == []


def test_all_mistakes_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    text = """
board:
  path: [OPEN, DOING, DONE, DOING]
  done: DNOE
  initial: NEW
  transitions:
    DOING: [OPEN, LATER]
  aside:
    BLOCKED: [SOMEWHERE]
  forced: { blocked: STUCK, dropped: BLOCKED }
  guards:
    review: { into: SHIPPED, back_to: NOWHERE, item: [tests] }
    demo: { from: DOING }
  batch: { default: -1, SPIKE: many }
  colour: red
"""
    found = mistakes(tmp_path, text)
    assert [line for line, _, _ in found] == sorted(line for line, _, _ in found)
    assert {(line, field.removeprefix("board.")) for line, field, _ in found} >= {
        (3, "path"), (4, "done"), (5, "initial"), (7, "transitions.DOING"), (9, "aside.BLOCKED"),
        (10, "forced.blocked"), (12, "guards.review.into"), (12, "guards.review.back_to"),
        (12, "guards.review.item"), (13, "guards.demo.into"), (14, "batch.default"), (14, "batch.SPIKE"),
        (15, "colour"),
    }  # fmt: skip
    assert any(line == 10 and "dropped" in field for line, field, _ in found)


@pytest.mark.parametrize(("setting", "field", "what"), [
    ({"path": ["A", "B"], "done": "C", "transitions": {"C": []}}, "board.done", "no transition leads from A to C"),
    ({"path": ["A", "B"], "done": "C", "aside": {"C": []}}, "board.done", "no transition leads from A to C"),
    ({"path": ["A", "B"]}, "board.done", "is missing"),
    ({"path": ["A", "B"], "done": "B", "transitions": {"REVEIW": ["A"]}}, "board.transitions.REVEIW", "no transition"),
    ({"path": [f"S{n}" for n in range(41)], "done": "S40"}, "board.path", "41 states"),
    ({**OWN, "guards": {f"g{n}": {"into": "DONE"} for n in range(13)}}, "board.guards", "13 guards"),
    ({"guards": {"ci": {"into": "SHIPPED"}}}, "board.guards.ci.into", "no such state: SHIPPED"),
    ({"initial": "DNOE"}, "board.initial", "no such state: DNOE"),
])  # fmt: skip
def test_a_board_that_cannot_work_is_refused(tmp_path: Path, setting: dict[str, Any], field: str, what: str) -> None:
    [found] = mistakes(tmp_path, yaml.safe_dump({"board": setting}))
    assert found[1] == field
    assert what in found[2]


@pytest.mark.parametrize("setting", [None, 5, [], "standard", {"path": "DOING"}, {"path": []}, {"batch": 3}])
def test_invalid_boards_are_refused_with_their_place(tmp_path: Path, setting: Any) -> None:
    if setting is None:
        assert load_policy(write(tmp_path, "board:\n")).effective()["board"] == STANDARD.effective()["board"]
        return
    assert all(field.startswith("board") for _, field, _ in mistakes(tmp_path, yaml.safe_dump({"board": setting})))


def test_every_state_of_the_standard_board_can_be_reached() -> None:
    config = BoardConfig(STANDARD.effective()["board"], frozenset())
    reached = {config.initial}
    for _ in config.states:
        reached |= {n for n in range(len(config.states)) for source in reached if config.allows(source, n)}
    assert reached == set(range(len(config.states))) - {config.find("COMPLETED")}  # only to-do lists reach it
    assert config.size("spec") == 5
    assert config.size("BUILD") == config.size("") == 3


def test_a_state_that_only_another_policys_board_has_leads_nowhere() -> None:
    config = BoardConfig(STANDARD.effective()["board"], frozenset())
    assert not config.allows(len(config.states), 0)
    assert not config.allows(-1, 0)
