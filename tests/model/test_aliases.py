"""Names that other tools use for the fields of a turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamproc.client.encoding import encode_event
from streamproc.fingerprint import fingerprint, read_event
from streamproc.model import wire
from streamproc.model.aliases import (
    ERROR_ALIASES,
    TOOL_CALL_ALIASES,
    TURN_ALIASES,
    USAGE_ALIASES,
    rename,
)
from streamproc.model.nesting import DEPTH_MAX
from streamproc.model.raw_events import ErrorReport, RawTurn, ToolCall, UsageReport, parse_line, parse_raw
from streamproc.monitor import Monitor
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from tests.feeding import Feed

TURN = {"run_id": "r", "node": "n"}


def turn(**fields: Any) -> RawTurn:
    raw = parse_raw(TURN | fields)
    assert isinstance(raw, RawTurn)
    return raw


def call(**fields: Any) -> ToolCall:
    return turn(tool_calls=[fields]).tool_calls[0]


def usage(**fields: Any) -> UsageReport:
    found = turn(usage=fields)
    assert found.usage is not None
    assert found.unknown == 0, found.unknown_fields
    return found.usage


# Three writes with different arguments are not a loop; three with equal arguments are.

SPELLINGS: list[Any] = [
    lambda args: {"name": "write", "args": args},
    lambda args: {"name": "write", "arguments": args},
    lambda args: {"name": "write", "arguments": json.dumps(args)},
    lambda args: {"name": "write", "input": args},
    lambda args: {"name": "write", "parameters": args},
    lambda args: {"id": "c1", "type": "function", "function": {"name": "write", "arguments": json.dumps(args)}},
    lambda args: {"type": "tool_use", "id": "c1", "name": "write", "input": args},
    lambda args: {"toolCallId": "c1", "toolName": "write", "input": args},
    lambda args: {"id": "c1", "function": "write", "arguments": args, "type": "function"},
]


def writes(spelling: Any, *paths: str) -> list[dict[str, Any]]:
    return [TURN | {"tool_calls": [spelling({"path": path, "text": "x"}) | {"result": "ok"}]} for path in paths]


def by_monitor(turns: list[dict[str, Any]], tmp_path: Path) -> list[str]:
    monitor = Monitor()
    found = [control.severity for one in turns for control in monitor.feed(one)]
    assert monitor.unknown_fields == 0
    return found


def by_scan(turns: list[dict[str, Any]], tmp_path: Path) -> list[str]:
    path = tmp_path / "turns.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in turns))
    return [decision.severity for decision in Scan([Source(path)], load_policy())]


def on_the_wire(turns: list[dict[str, Any]], tmp_path: Path) -> list[str]:
    """What the publisher sends, as the engine of a worker reads it."""
    records = [encode_event(fingerprint(parse_raw(one)), bytes_max=10_000).value for one in turns]
    return _steps([wire.decode(record) for record in records])


def raw_on_the_topic(turns: list[dict[str, Any]], tmp_path: Path) -> list[str]:
    """What a publisher in another language sends, as the worker reads it."""
    return _steps([read_event(json.dumps(one).encode()) for one in turns])


def _steps(events: list[wire.Event]) -> list[str]:
    feed = Feed()
    return [decision.severity for event in events for decision in feed.event(event)]


READERS = [by_monitor, by_scan, on_the_wire, raw_on_the_topic]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("spelling", SPELLINGS, ids=range(len(SPELLINGS)))
def test_three_different_writes_are_not_halted(spelling: Any, reader: Any, tmp_path: Path) -> None:
    assert "halt" not in reader(writes(spelling, "a.py", "b.py", "c.py"), tmp_path)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("spelling", SPELLINGS, ids=range(len(SPELLINGS)))
def test_three_equal_writes_are_halted(spelling: Any, reader: Any, tmp_path: Path) -> None:
    assert "halt" in reader(writes(spelling, "a.py", "a.py", "a.py"), tmp_path)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=range(len(SPELLINGS)))
def test_every_spelling_of_a_call_has_one_fingerprint(spelling: Any) -> None:
    [plain], [spelt] = (writes(one, "a.py") for one in (SPELLINGS[0], spelling))
    assert fingerprint(parse_raw(spelt)) == fingerprint(parse_raw(plain))
    assert parse_raw(spelt).unknown == 0


# Tool calls.


@pytest.mark.parametrize(("sent", "args"), [
    ('{"b": 2, "a": 1}', {"a": 1, "b": 2}), (' {"a": 1}', {"a": 1}), ("[1, 2]", "[1, 2]"), ("ls -l", "ls -l"),
    ('{"a": 1', '{"a": 1'), ('{"a": NaN}', '{"a": NaN}'), ("", ""), ({"a": 1}, {"a": 1}), ([1], [1]), (0, 0),
])  # fmt: skip
def test_arguments_that_are_a_json_object_are_parsed_and_others_are_kept(sent: Any, args: Any) -> None:
    assert call(name="t", arguments=sent).args == args


def test_arguments_that_are_nested_too_deep_stay_text() -> None:
    deep = '{"a":' + "[" * DEPTH_MAX + "]" * DEPTH_MAX + "}"
    assert call(name="t", arguments=deep).args == deep


@pytest.mark.parametrize(("fields", "expected"), [
    ({"name": "t", "output": "done"}, {"result": "done"}),
    ({"name": "t", "content": [{"type": "text", "text": "done"}]}, {"result": [{"type": "text", "text": "done"}]}),
    ({"name": "t", "content": "no such file", "is_error": True}, {"result": "no such file", "error": True}),
    ({"name": "t", "content": "ok", "isError": False}, {"result": "ok", "error": False}),
    ({"name": "t", "error": "boom", "is_error": True}, {"error": "boom"}),
    ({"name": "t", "args": None, "arguments": {"a": 1}}, {"args": {"a": 1}}),
    ({"tool": "t", "input": "x"}, {"name": "t", "args": "x"}),
    ({"tool_name": "t", "tool_call_id": "c"}, {"name": "t", "id": "c"}),
    ({"function": {"name": "t", "arguments": None, "output": "done"}}, {"name": "t", "result": "done"}),
    ({"name": "t", "call_id": "c"}, {"id": "c"}),
])  # fmt: skip
def test_fields_of_a_call_by_their_other_names(fields: Any, expected: Mapping[str, Any]) -> None:
    found = turn(tool_calls=[fields])
    assert {name: getattr(found.tool_calls[0], name) for name in expected} == expected
    assert found.unknown_fields == ()


# Both names at once.


def test_the_canonical_name_wins_and_the_alias_is_shown_as_unknown() -> None:
    found = turn(tool_calls=[{"name": "t", "args": {"a": 1}, "arguments": {"a": 2}}])
    assert found.tool_calls[0].args == {"a": 1}
    assert found.unknown_fields == ("tool_calls.arguments",)


def test_an_alias_that_repeats_the_canonical_value_is_not_unknown() -> None:
    found = turn(output="x", content="x", tool_calls=[{"name": "t", "args": {"a": 1}, "arguments": '{"a":1}'}])
    assert found.unknown_fields == ()


def test_of_two_aliases_the_first_in_the_table_wins() -> None:
    found = turn(tool_calls=[{"name": "t", "parameters": {"type": "object"}, "arguments": {"a": 2}}])
    assert found.tool_calls[0].args == {"a": 2}
    assert found.unknown_fields == ("tool_calls.parameters",)


def test_python_objects_are_compared_by_identity() -> None:
    one, other = object(), object()
    assert turn(tool_calls=[{"name": "t", "args": one, "input": one}]).unknown == 0
    assert turn(tool_calls=[{"name": "t", "args": one, "input": other}]).unknown == 1


@pytest.mark.parametrize("fields", [
    {"content": {"output": "x"}}, {"content": 7}, {"content": [{"text": "no type"}]}, {"content": [{"type": "text"}]},
    {"usage_metadata": "expensive"}, {"toolCalls": "ls"}, {"toolCalls": ["ls"]}, {"toolCalls": [{"args": {}}]},
    {"usage": {"prompt_tokens": -1}}, {"usage": {"prompt_tokens": 1.5}}, {"usage": {"prompt_tokens": True}},
    {"usage": {"prompt_tokens": float("nan")}}, {"usage": {"prompt_tokens": "many"}},
    {"usage": {"input": {"text": "hello"}}}, {"usage": {"total_cost": "free"}}, {"usage": {"total_cost": -1}},
    {"tool_calls": [{"name": "t", "is_error": "no"}]}, {"tool_calls": [{"name": "t", "call_id": 7}]},
    {"errors": [{"message": "m", "type": 5}]},
], ids=str)  # fmt: skip
def test_an_alias_whose_value_does_not_fit_is_ignored_and_shown(fields: dict[str, Any]) -> None:
    """Such turns were accepted before the name was an alias."""
    assert turn(**fields).unknown == 1


# The turn.


@pytest.mark.parametrize(("content", "output", "unknown"), [
    ("hello", "hello", ()), ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb", ()),
    ([{"type": "output_text", "text": "a"}, "b"], "a\nb", ()),
    ([{"type": "text", "text": "a"}, {"type": "tool_use", "id": "c"}], "a", ("content.tool_use",)),
    ([{"type": "tool_use", "id": "c"}], None, ("content.tool_use",)), (None, None, ()),
])  # fmt: skip
def test_content_is_the_output(content: Any, output: str | None, unknown: tuple[str, ...]) -> None:
    found = turn(content=content)
    assert (found.output, found.unknown_fields) == (output, unknown)


def test_other_names_of_a_turns_fields() -> None:
    found = turn(toolCalls=[{"toolName": "t"}], usage_metadata={"input_tokens": 3})
    assert (found.tool_calls[0].name, found.usage) == ("t", UsageReport(input_tokens=3))


NAMES_OF_CLASS = ["type", "error_type", "error_class"]


@pytest.mark.parametrize("name", ["class", *NAMES_OF_CLASS])
def test_an_error_that_gives_only_its_class_is_known_by_it(name: str) -> None:
    assert turn(errors=[{name: "ApiError"}]).errors == [ErrorReport(message="ApiError", class_="ApiError")]


@pytest.mark.parametrize("name", NAMES_OF_CLASS)
def test_other_names_of_an_errors_class(name: str) -> None:
    assert turn(errors=[{"message": "m", name: "TypeError"}]).errors == [ErrorReport(message="m", class_="TypeError")]
    both = turn(errors=[{"message": "m", "class_": "A", name: "B"}])
    assert (both.errors[0].class_, both.unknown) == ("A", 1)


# Usage, as the vendors send it.

OPENAI_CHAT = {
    "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 80, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 5},
}  # fmt: skip
OPENAI_RESPONSES = {
    "input_tokens": 100, "output_tokens": 20, "total_tokens": 120, "input_tokens_details": {"cached_tokens": 80},
    "output_tokens_details": {"reasoning_tokens": 5},
}  # fmt: skip
ANTHROPIC = {
    "input_tokens": 15, "output_tokens": 20, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 80,
    "cache_creation": {"ephemeral_5m_input_tokens": 5}, "server_tool_use": None, "service_tier": "standard",
}  # fmt: skip
BEDROCK = {"inputTokens": 20, "outputTokens": 20, "totalTokens": 120, "cacheReadInputTokens": 80}
LITELLM = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "cache_read_input_tokens": 80}
GEMINI = {
    "prompt_token_count": 100, "candidates_token_count": 20, "total_token_count": 120, "cached_content_token_count": 80,
}  # fmt: skip
GEMINI_REST = {
    "promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120, "cachedContentTokenCount": 80,
}  # fmt: skip
LANGCHAIN = {
    "input_tokens": 100, "output_tokens": 20, "total_tokens": 120, "input_token_details": {"cache_read": 80},
    "output_token_details": {"reasoning": 5},
}  # fmt: skip
VERCEL_5 = {"inputTokens": 100, "outputTokens": 20, "totalTokens": 120, "cachedInputTokens": 80}


@pytest.mark.parametrize(
    "sent", [OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, BEDROCK, LITELLM, GEMINI, GEMINI_REST, LANGCHAIN, VERCEL_5],
    ids=["openai chat", "openai responses", "anthropic", "bedrock", "litellm", "gemini", "gemini rest", "langchain",
         "vercel 5"],
)  # fmt: skip
def test_a_vendors_usage_may_be_sent_as_it_is(sent: dict[str, Any]) -> None:
    found = usage(**sent)
    assert (found.input_tokens, found.output_tokens, found.cached_tokens) == (100, 20, 80)
    assert found.total_tokens in (0, 120)


def test_langfuse_and_vercel_4_have_no_cached_tokens() -> None:
    expected = UsageReport(input_tokens=100, output_tokens=20, total_tokens=120)
    assert usage(input=100, output=20, total=120) == expected
    assert usage(promptTokens=100, completionTokens=20, totalTokens=120) == expected


@pytest.mark.parametrize("name", ["cost_usd", "total_cost_usd", "total_cost"])
@pytest.mark.parametrize("cost", ["0.012", 0.012])
def test_a_cost_that_is_in_usd_by_its_documentation_is_read(name: str, cost: Any) -> None:
    assert usage(**{name: cost}).cost_usd == 12_000


def test_a_cost_without_a_unit_is_not_read() -> None:
    found = turn(usage={"cost": 5})
    assert found.usage.cost_usd is None
    assert found.unknown_fields == ("usage.cost",)


# The table.


@pytest.mark.parametrize("table", [TURN_ALIASES, TOOL_CALL_ALIASES, ERROR_ALIASES, USAGE_ALIASES])
def test_an_alias_is_listed_once_and_names_its_source(table: Any) -> None:
    names = [alias.name for alias in table]
    assert len(set(names)) == len(names)
    assert all(alias.source for alias in table)


@pytest.mark.parametrize(("model", "table"), [
    (RawTurn, TURN_ALIASES), (ToolCall, TOOL_CALL_ALIASES), (ErrorReport, ERROR_ALIASES), (UsageReport, USAGE_ALIASES),
])  # fmt: skip
def test_an_alias_stands_for_a_field_and_is_none(model: Any, table: Any) -> None:
    assert {alias.field for alias in table} <= model.known_fields
    assert not {alias.name for alias in table} & model.known_fields


def test_renaming_leaves_the_callers_mapping_as_it_is() -> None:
    sent = {"name": "t", "arguments": '{"a": 1}'}
    assert rename(sent, TOOL_CALL_ALIASES) == {"name": "t", "args": {"a": 1}}
    assert sent == {"name": "t", "arguments": '{"a": 1}'}


def test_a_turn_that_was_read_by_aliases_reads_the_same_again() -> None:
    raw = parse_line(json.dumps(TURN | {"content": "x", "tool_calls": [{"tool": "t", "arguments": "{}"}]}))
    assert parse_raw(raw.model_dump(by_alias=True)) == raw


def test_every_alias_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "publishing.md").read_text(encoding="utf-8")
    tables = (TURN_ALIASES, TOOL_CALL_ALIASES, ERROR_ALIASES, USAGE_ALIASES)
    assert not {alias.name for table in tables for alias in table if f"`{alias.name}`" not in text}
