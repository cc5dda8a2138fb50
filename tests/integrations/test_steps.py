"""Pairing what models ask for with what tools return: once by id, in bounded memory."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc import Watch
from streamproc.integrations import _steps
from streamproc.integrations._requests import Requests
from streamproc.integrations._steps import Steps, plain
from streamproc.integrations.watch import sparing
from tests.integrations.fed import fed_by


def steps_and_turns() -> tuple[Steps, list[dict[str, Any]]]:
    watch = Watch()
    return Steps(watch), fed_by(watch)


def test_a_call_that_is_made_again_after_its_step_is_not_fed_again() -> None:
    steps, fed = steps_and_turns()
    steps.answered("r1", "a", "", [("c1", "run", {})])
    for _ in range(2):
        steps.returned("r1", "a", "c1", result="done")
    steps.returned("r2", "a", "c1", result="done")  # the id of another run's call
    assert [turn["run_id"] for turn in fed] == ["r1", "r2"]


def test_a_step_that_fails_is_fed_when_the_next_begins() -> None:
    steps, fed = steps_and_turns()
    steps.answered("r1", "a", "", [("c1", "run", {})], scope="loop")
    steps.returned("r1", "a", "c1", error="no")
    steps.begins("r1", "another loop")
    assert fed == []
    steps.begins("r1", "loop")
    assert [turn["tool_calls"][0]["error"] for turn in fed] == ["no"]


def test_calls_that_nobody_seems_to_answer_are_fed_and_later_answers_are_turns() -> None:
    steps, fed = steps_and_turns()
    steps.answered("r1", "a", "", [("c1", "run", {}), ("c2", "run", {})], scope="loop")
    steps.returned("r1", "a", "c1", result="done")
    assert (steps.waits_for("r1", "c1"), steps.waits_for("r1", "c2"), steps.waiting("r1")) == (False, True, True)
    steps.dropped("r1", "loop", ["c2"])
    steps.dropped("r1", "another loop", [])
    assert fed == []
    steps.dropped("r1", "loop", [])
    for call_id in ("c1", "c2"):
        steps.returned("r1", "a", call_id, name="run", args={}, result="done")
    assert [[call.get("result") for call in turn["tool_calls"]] for turn in fed] == [["done", None], ["done"]]
    assert not steps.waiting("r1")


def test_calls_without_ids_are_turns_of_their_own() -> None:
    steps, fed = steps_and_turns()
    steps.answered("r1", "a", "", [("", "run", {}), ("", "run", {})])
    for _ in range(2):
        steps.returned("r1", "a", "", name="run", args={}, result="done")
    assert [len(turn["tool_calls"]) for turn in fed] == [1, 1]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUNS_MAX", "STEPS_MAX", "CALLS_MAX"):
        monkeypatch.setattr(_steps, name, 3)
    steps, fed = steps_and_turns()
    for number in range(20):
        steps.answered("r1", "a", "", [(f"c{number}", "run", {})])
        steps.answered(f"s{number}", "a", "", [("c", "run", {})])
        steps.person(f"s{number}", "hello")
    assert (len(steps._open), len(steps._fed), len(steps._said)) == (3, 3, 3)
    assert sum(map(len, steps._open.values())) == len(steps._by_call) <= 6
    assert len([turn for turn in fed if turn["type"] == "turn"]) == 40 - len(steps._by_call)


def test_values_become_json_and_objects_become_text() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    assert plain({"a": (1, Odd()), 2: None}) == {"a": [1, "odd"], "2": None}


def test_only_exceptions_are_spared() -> None:
    watch = Watch()
    with sparing(watch):
        raise ValueError
    with pytest.raises(KeyboardInterrupt), sparing(watch):
        raise KeyboardInterrupt
    assert watch.faults == 1


def test_a_prompt_that_goes_on_where_the_last_one_ended_is_the_same_request() -> None:
    requests, prompt = Requests(), "You are a coder. Answer with one action.\n" + "Question: what is in the file?\n" * 9
    first = requests.of(("r1", "loop", "a"), [prompt], "", goes_on=False)
    for _ in range(3):
        prompt += "Action: read\nObservation: nothing\n"
        assert requests.of(("r1", "another loop", "a"), [prompt], "", goes_on=False) == first
    assert requests.of(("r1", "loop", "b"), [prompt], "", goes_on=False) != first
    assert requests.of(("r1", "loop", "a"), [prompt.replace("what", "who")], "", goes_on=False) != first


def test_a_short_item_that_another_one_begins_with_is_another_request() -> None:
    requests = Requests()
    assert len({requests.of(("r1", "a"), [f"item 1{'0' * n}"], "", goes_on=False) for n in range(5)}) == 5
