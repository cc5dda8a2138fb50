"""Unknown fields: which ones are found, what is suggested, how many are kept."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.errors import InvalidEvent
from streamproc.model.raw_events import RawRunStarted, RawTurn, parse_raw
from streamproc.model.unknown_fields import NAME_LENGTH_MAX, NAMES_MAX, UnknownFields, suggestion

TURN = {"run_id": "r", "node": "n"}


def counted(*events: dict[str, Any], strict: bool = False) -> UnknownFields:
    unknown = UnknownFields(strict=strict)
    for event in events:
        unknown.add(parse_raw(TURN | event))
    return unknown


@pytest.mark.parametrize(("fields", "names"), [
    ({"ouput": "x"}, ("ouput",)), ({"tool_calls": [{"name": "t", "argumets": 1}]}, ("tool_calls.argumets",)),
    ({"tool_calls": [{"name": "t", "argumets": 1}] * 3}, ("tool_calls.argumets",)),
    ({"usage": {"tokns": 1}}, ("usage.tokns",)), ({"tests": {"fialed": []}}, ("tests.fialed",)),
    ({"errors": [{"message": "m", "stack": "s"}]}, ("errors.stack",)),
    ({"decision": {"next": "n", "why": "w"}}, ("decision.why",)), ({"type": "run.started", "grpah": {}}, ("grpah",)),
    ({"type": "task.verdict", "verdikt": "yes"}, ("verdikt",)), ({"labels": {"anything": "goes"}}, ()),
    ({"structured_output": {"anything": "goes"}}, ()), ({"artifact": {"a.py": "x"}, "progress": {"score": 1}}, ()),
    ({"ouput": None, "tool_calls": [{"name": "t", "argumets": None}]}, ()),
])  # fmt: skip
def test_unknown_fields_of_an_event_and_of_its_parts_are_found(fields: dict[str, Any], names: tuple[str, ...]) -> None:
    raw = parse_raw(TURN | fields)
    assert raw.unknown_fields == names
    assert raw.unknown == len(names)


def test_events_are_counted_by_name_and_the_most_frequent_comes_first() -> None:
    unknown = counted({"mood": 1}, *[{"tool_calls": [{"name": "t", "argumets": 1}] * 2}] * 3)
    assert (unknown.total, unknown.counts) == (4, {"mood": 1, "tool_calls.argumets": 3})
    assert unknown.summary() == [
        "3 turns had the unknown field tool_calls.argumets; did you mean arguments?",
        "1 turn had the unknown field mood",
    ]


def test_an_event_of_another_type_is_named_by_its_type() -> None:
    unknown = counted({"type": "run.started", "grpah": {}}, {"type": "run.started", "grpah": {}}, {"grpah": {}})
    assert unknown.summary() == [
        "2 run.started events had the unknown field grpah; did you mean graph?",
        "1 turn had the unknown field grpah",
    ]
    assert unknown.counts == {"grpah": 3}


def test_an_alias_that_was_not_used_says_why() -> None:
    unknown = counted({"output": "a", "content": "b"})
    assert unknown.summary() == [
        "1 turn had the unused alias content: it stands for output, which has another value, or its value does not fit"
    ]


def test_each_name_is_reported_once_as_it_first_appears() -> None:
    unknown = UnknownFields()
    raw = parse_raw(TURN | {"ouput": "x", "mood": 1})
    assert unknown.add(raw) == ["the unknown field ouput; did you mean output?", "the unknown field mood"]
    assert unknown.add(raw) == []
    assert unknown.add(parse_raw(TURN)) == []


def test_names_are_kept_up_to_a_limit_and_others_are_counted() -> None:
    unknown = counted(*({f"id_{number}": 1} for number in range(NAMES_MAX + 7)))
    assert len(unknown.counts) == NAMES_MAX
    assert unknown.total == NAMES_MAX + 7
    assert unknown.summary()[NAMES_MAX:] == ["and 7 more unknown fields with other names"]


def test_a_name_is_shortened_and_cannot_steer_a_terminal() -> None:
    unknown = counted({"x" * 5_000: 1, "evil\x1b[2J": 1})
    assert all(len(name) <= NAME_LENGTH_MAX for name in unknown.counts)
    assert all(sentence.isprintable() for sentence in unknown.summary())


@pytest.mark.parametrize(("name", "meant"), [
    ("ouput", "output"), ("sessionId", "session_id"), ("toolcalls", "tool_calls"), ("tool_calls.argumets", "arguments"),
    ("usage.cost", "cost_usd"), ("usage.inpt_tokens", "input_tokens"), ("tests.fialed", "failed"),
    ("errors.mesage", "message"), ("input_tokens", "usage.input_tokens"), ("passed", "tests.passed"),
    ("temperature", ""), ("mood", ""), ("content.tool_use", ""), ("x" * 100_000, ""),
])  # fmt: skip
def test_the_field_that_was_probably_meant_is_suggested(name: str, meant: str) -> None:
    assert suggestion(RawTurn, name) == meant


def test_a_suggestion_is_a_field_of_that_event() -> None:
    assert suggestion(RawRunStarted, "budgts") == "budgets"
    assert suggestion(RawRunStarted, "ouput") == ""


def test_strict_refuses_every_unknown_field_with_a_remedy() -> None:
    with pytest.raises(InvalidEvent) as refusal:
        counted({"tool_calls": [{"name": "t", "argumets": 1}], "mood": 1, "output": "a", "content": "b"}, strict=True)
    assert [str(problem) for problem in refusal.value.problems] == [
        "mood: unknown field (leave it out, or send it in labels)",
        "content: stands for output, which has another value, or its value does not fit (send output only)",
        "tool_calls.argumets: unknown field (did you mean arguments? Rename it, or leave it out)",
    ]


def test_strict_accepts_known_names_aliases_and_labels() -> None:
    event = {"content": "x", "labels": {"team": "red"}, "tool_calls": [{"function": {"name": "t", "arguments": "{}"}}]}
    assert counted(event, strict=True).total == 0
