"""Answers of models with their calls, for frameworks that tell no ids of calls."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc import Watch
from streamproc.integrations._answers import Answers


@pytest.fixture
def fed() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def answers(fed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Answers:
    watch = Watch()
    monkeypatch.setattr(
        watch, "turn", lambda run_id, node, **fields: fed.append({"run": run_id, "node": node, **fields})
    )
    return Answers(watch)


def test_calls_without_ids_belong_to_the_answer_before(answers: Answers, fed: list[dict[str, Any]]) -> None:
    answers.said("r1", "coder", "", None, model="m1")
    answers.said("r1", "coder", "I look.", None)
    answers.returned("r1", "coder", {"name": "ls"})
    answers.returned("r1", "coder", {"name": "cat"})
    assert fed == []
    answers.said("r1", "coder", "", None)
    calls = [{"name": "ls"}, {"name": "cat"}]
    assert fed == [
        {"run": "r1", "node": "coder", "from_": None, "model": "m1", "output": "I look.", "tool_calls": calls}
    ]


def test_what_is_open_is_reported_when_its_run_ends(answers: Answers, fed: list[dict[str, Any]]) -> None:
    for run_id in ("r1", "r2"):
        answers.said(run_id, "coder", "I look.", None)
        answers.said(run_id, "tester", "", None)
    answers.ended("r1")
    answers.ended("r1")
    assert [(turn["run"], turn["node"]) for turn in fed] == [("r1", "coder")]
