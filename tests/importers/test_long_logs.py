"""The work on a log grows with its length, whatever is in it: twice the calls in one message take twice the time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamproc.importers import FORMATS, Import, LogFile
from streamproc.importers.discovery import format_of
from tests.work import work_of

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

FEW, MANY = 300, 1_200
SESSION = {"sessionId": "0a6d2c9e-5d1e-4c1a-9a56-0a6d2c9e5d1e", "timestamp": "2026-01-01T00:00:00Z"}


def claude(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    asked = {"type": "user", "uuid": "u0", **SESSION, "message": {"role": "user", "content": "x"}}
    message = {"id": "m", "role": "assistant", "content": blocks}
    return [asked, {"type": "assistant", "uuid": "u1", **SESSION, "message": message}]


def otlp(number: int, **of_span: Callable[[int], Any]) -> list[dict[str, Any]]:
    spans = [
        {
            "traceId": "5" * 32, "spanId": f"{n:016x}", "startTimeUnixNano": "1000000",
            "endTimeUnixNano": f"{n + 2}000000", "name": "chat m",
            "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}],
            **{name: value(n) for name, value in of_span.items()},
        }
        for n in range(1, number)
    ]  # fmt: skip
    return [{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}]


def attributes(**values: object) -> list[dict[str, Any]]:
    found = {f"gen_ai.{name.replace('__', '.')}": value for name, value in values.items()}
    return [{"key": name, "value": {"stringValue": value}} for name, value in found.items()]


def below(number: int) -> str:
    return f"{number - 1:016x}" if number > 1 else ""


def kind(number: int) -> list[dict[str, Any]]:
    """Agents, tools and models in turn, each below the other."""
    operation = ("invoke_agent", "execute_tool", "chat")[number % 3]
    return attributes(operation__name=operation, tool__name=f"t{number}", agent__name=f"a{number}")


def spent(number: int) -> list[dict[str, Any]]:
    return [*attributes(operation__name="chat", request__model="m"),
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "7"}}]  # fmt: skip


LOGS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "calls of a message": lambda number: claude(
        [{"type": "tool_use", "id": f"toolu_{n}", "name": "b", "input": {}} for n in range(number)]
    ),
    "texts of a message": lambda number: claude([{"type": "text", "text": f"text {n}"} for n in range(number)]),
    "spans below each other": lambda number: otlp(number, parentSpanId=below, attributes=kind),
    "agents below each other": lambda number: otlp(
        number, parentSpanId=below, attributes=lambda n: attributes(operation__name="invoke_agent", agent__name=f"a{n}")
    ),
    "equal calls of a model": lambda number: otlp(number, attributes=spent),
    "messages": lambda number: [
        {"role": "assistant", "tool_calls": [{"id": f"c{n}", "function": {"name": "f"}} for n in range(number)]},
        *({"role": "tool", "tool_call_id": f"c{n}", "content": "y"} for n in range(number)),
    ],
}


def work(path: Path, rows: list[dict[str, Any]]) -> int:
    """Return how many functions are called to read a log."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = format_of(LogFile(path), FORMATS)
    assert found is not None
    log = LogFile(path)
    return work_of(lambda: list(found.read(log, Import())))[0]


@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_four_times_the_length_takes_about_four_times_the_work(name: str, tmp_path: Path) -> None:
    few, many = (work(tmp_path / "log.jsonl", LOGS[name](number)) for number in (FEW, MANY))
    assert few > FEW
    assert many < 6 * few, (few, many)
