"""The short way of an ordinary turn gives what validation and `fingerprint` give, and leaves the rest to them."""

from __future__ import annotations

import copy
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from streamproc.errors import InvalidEvent
from streamproc.fingerprint import HashKey, fingerprint, plain_turn
from streamproc.model.nesting import DEPTH_MAX
from streamproc.model.raw_events import RawTurn, parse_raw
from streamproc.model.wire import encode
from streamproc.monitor import Monitor
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file

KEY: Final = HashKey("a key of this test")


class Text(str):
    """A text of a type that JSON does not have."""

    __slots__ = ()


def nested(levels: int, kind: type = dict) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value} if kind is dict else [value]
    return value


NAMES: Final = (
    "coder", "coder", "coder", "", "x" * 128, "x" * 129, "x" * 256, "x" * 257, "é" * 128, "é" * 129, "\ud800", None,
    7, True, b"x", Text("coder"), "password=hunter2hunter2", "ghp_0123456789abcdefghijABCDEFGHIJ012345", " ", "a\0b",
    "2998e6bd94998835dda5ba9803c61bb7", "fc-2998e6bd94998835dda5ba9803c61bb7", "2998e6bd-9499-4835-9da5-ba9803c61bb7",
)  # fmt: skip
TEXTS: Final = (
    "done", "done", "I will try again.", "", " \n", "é\ud800", "Next speaker: critic", "Handing over to coder", None,
    7,
    Text("done"), ["a"], {"a.py": "x"}, {"a.py": 1}, {}, "word " * 300, '{"b": 1, "a": [2]}',
    "--- a\n+++ b\n@@ 1 @@\n+x",
    {"type": "text", "text": "x"}, [{"type": "text", "text": "x"}], "pid 7 12:30:01",
)  # fmt: skip
VALUES: Final = (
    *TEXTS, 0, 1, False, True, 1.5, float("nan"), {}, [], {"command": "ls"}, '{"command": "sleep 20"}', "[1, 2]", "{",
    {"command": "cat >> notes.md << EOF\n" + "text " * 40}, {1: 2}, {"a": {1, 2}}, (1, 2), {"pid": 4711},
    "still running",
    "HTTP 429 Too Many Requests", "Error: no such file\nline 2", "exit code 1", "Exit code 127",
    "session 4711 is running",
    {"b": [1, {"c": None}], "a": "é"}, nested(DEPTH_MAX - 2), nested(DEPTH_MAX - 1), nested(DEPTH_MAX), nested(120,
    list),
    "Traceback (most recent call last)\n  x\nValueError: 7", {"status": 503}, "tool timed out", object,
    {"path": "\ud800"},
)  # fmt: skip
NUMBERS: Final = (
    0, 1, 7, 2**53, 2**53 + 1, -1, True, 1.0, 0.5, 1.5, float("nan"), float("inf"), "3", "0.25", None, 10**30, 1e300,
    [1],
)  # fmt: skip
TIMES: Final = (
    1762669311072, 1762669311072, 1762669311, 946_684_800_000, 946_684_799_999, 4_102_444_800_000, 4_102_444_800_001,
    True,
    1762669311072.9, "2026-01-31T12:00:00Z", "2026-01-31", "2026-01-31T12:00:00.25+01:00", "noon", "1762669311072",
    None, "",
)  # fmt: skip
USAGES: Final = (
    {"input_tokens": 10, "output_tokens": 5}, {"cost_usd": "0.01"}, {"cost_usd": 0.25}, {"cost_usd": True},
    {"cost_usd": -1},
    {"cost_usd": "x"}, {"duration_ms": 12.7}, {"duration_ms": float("inf")}, {"duration_ms": -0.5},
    {"input_tokens": True},
    {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}, {"input_tokens": None}, {"tokens": 3}, {}, None,
    7,
    {"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 3}, {"input_tokens": 1.5}, [1],
    {"prompt_tokens": 1, "input_tokens": 2}, {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}},
    {"input_tokens": 1, "cache_creation": nested(DEPTH_MAX - 1)}, {"input_tokens": 1,
    "cache_creation": nested(DEPTH_MAX)},
    {f"n{number}": 1 for number in range(300)}, OrderedDict(input_tokens=1), {"input_tokens": 2**53 + 1}, {1: 2},
)  # fmt: skip
PAIRS: Final = (
    {}, None, {"a": "b"}, {"a": 1}, {"loss": 0.5}, {"loss": 3}, {"loss": float("nan")}, {"loss": True},
    {"loss": None}, {1: 2.0},
    {"password": "hunter2hunter2"}, {"é": "b"}, {"x" * 129: 1.0}, {"x" * 129: "b"}, {str(n): "v" for n in range(251)},
    {str(n): 1.0 for n in range(1_001)}, [1], "x", {"loss": 10**400}, {"loss": 2**60},
)  # fmt: skip
CALLS: Final[tuple[Callable[[random.Random], Any], ...]] = (
    lambda dice: {"name": "Bash", "args": dice.choice(VALUES), "result": dice.choice(VALUES)},
    lambda dice: {"name": "Bash", "args": {"command": "ls"}, "result": "a.py", "error": dice.choice(VALUES)},
    lambda dice: {"name": dice.choice(NAMES), "result": "a.py", "retryable": dice.choice((True, False, None, 1,
    "no"))},
    lambda dice: {"name": "Bash", "args": None, "id": dice.choice(NAMES), "arguments": dice.choice(VALUES)},
    lambda dice: {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": dice.choice(VALUES)}},
    lambda dice: {"toolName": "Bash", "input": dice.choice(VALUES), "is_error": dice.choice((True, False)),
    "output": "x"},
    lambda dice: {"name": "Bash", "unknown": dice.choice(VALUES)},
    lambda dice: dice.choice((None, [], "Bash", {}, OrderedDict(name="Bash"), {"name": "Bash", 7: 8})),
)  # fmt: skip
FIELDS: Final[dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("run_id", "node", "event_id", "from", "from_", "model", "task_id", "session_id", "token",
    "tier"), NAMES),
    **dict.fromkeys(("output", "artifact", "docs", "query", "content"), TEXTS),
    **dict.fromkeys(("seq", "round", "convergence", "consensus"), NUMBERS),
    **dict.fromkeys(("labels", "progress"), PAIRS),
    "at": TIMES, "usage": USAGES, "structured_output": VALUES, "request": VALUES,
    "type": ("turn", "turn", None, "turns", Text("turn"), 7),
    "errors": ("boom", ["boom"], None, []), "decision": ({"next": "critic"}, {"next": ""}, None), "unknown": (1,
    None),
    "tests": ({"failed": ["a"]}, {"passed": 3, "total": 5}, None), 7: (8,), "class": ("x",),
}  # type: ignore[dict-item]  # fmt: skip


def turns(seed: int, count: int) -> Iterator[dict[Any, Any]]:
    dice = random.Random(seed)
    for _ in range(count):
        turn: dict[Any, Any] = {"run_id": "r1", "node": "coder"}
        for name in dice.sample(list(FIELDS), dice.randrange(4)):
            turn[name] = dice.choice(FIELDS[name])
        if dice.random() < 0.6:
            turn["tool_calls"] = [dice.choice(CALLS)(dice) for _ in range(dice.choice((1, 1, 1, 2, 0)))]
        if dice.random() < 0.01:
            turn["tool_calls"] = dice.choice((None, "x", {}, (), [{"name": "t"}] * 1_001, ({"name": "t"},)))
        if dice.random() < 0.02:
            del turn[dice.choice(("run_id", "node"))]
        yield turn


def differs(turn: dict[Any, Any], key: HashKey | None, *, local: bool) -> bool | None:
    """Return whether the two ways differ; None if the short one leaves the turn to the other."""
    before = copy.deepcopy(turn) if "nan" not in repr(turn) else None
    found = plain_turn(turn, key, local=local)
    assert before is None or turn == before
    if found is None:
        return None
    try:
        raw = parse_raw(turn)
    except InvalidEvent:
        return True
    expected = fingerprint(raw, key=key, local=local)
    return bool(raw.unknown_fields) or found != expected or encode(found) != encode(expected)


@pytest.mark.parametrize(("key", "local"), [(None, False), (None, True), (KEY, True)])
def test_a_turn_is_fingerprinted_alike(key: HashKey | None, local: bool) -> None:
    taken = 0
    for turn in turns(seed=5, count=12_000):
        found = differs(turn, key, local=local)
        assert found is not True, turn
        taken += found is False
    assert taken > 3_000


def test_turns_of_the_samples_take_the_short_way() -> None:
    with trajectory_file() as path:
        for line in Source(path):
            assert isinstance(line.raw, RawTurn)
            turn = line.raw.model_dump(by_alias=True, exclude_unset=True)
            assert differs(turn, None, local=True) is False


@pytest.mark.parametrize(
    "fields",
    [
        {"output": "x", "usage": {"prompt_tokens": 7, "completion_tokens": 2}, "model": "m",
        "at": "2026-01-31T12:00:00Z"},
        {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "t", "arguments": '{"a": 1}'}}]},
        {"tool_calls": [{"type": "tool_use", "id": "1", "name": "t", "input": {"a": 1}}], "labels": {"a": "b"}},
        {"structured_output": {"verdict": "ok"}, "progress": {"loss": 1}, "query": "Why?", "from": "planner"},
    ],
)  # fmt: skip
def test_usual_forms_take_the_short_way(fields: dict[str, Any]) -> None:
    assert differs({"run_id": "r", "node": "n", **fields}, None, local=True) is False


@pytest.mark.parametrize("event", [
    {"type": "run.started", "run_id": "r"}, {"run_id": "r", "node": "n", "output": "x", "ouput": "y"},
    {"run_id": "r", "node": "n", "tool_calls": [{"name": "t", "argumets": 1}]},
    {"run_id": "r", "node": "n", "from": "a", "from_": "b"}, {"run_id": "r"}, [], None,
])  # fmt: skip
def test_what_is_no_ordinary_turn_is_left_to_validation(event: Any) -> None:
    assert plain_turn(event) is None


def test_a_monitor_decides_alike_either_way() -> None:
    """With `include_content`, a monitor validates every turn."""
    ways = [Monitor(), Monitor(include_content=True)]
    with trajectory_file() as path:
        for line in Source(path):
            turn = line.raw.model_dump(by_alias=True, exclude_unset=True)
            short, long = (
                [(one.run_id, one.code, one.severity, one.message) for one in monitor.feed(turn)] for monitor in ways
            )
            assert short == long
