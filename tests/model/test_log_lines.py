"""The log of a process as JSON: one object a line, with what the message names as fields."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from streamproc.model.log_lines import JsonLogFormatter


def row(message: str, *arguments: object, **more: Any) -> dict[str, Any]:
    record = logging.LogRecord("streamproc.worker", logging.WARNING, "", 0, message, arguments, None)
    record.__dict__.update(more)
    text = JsonLogFormatter().format(record)
    assert text.isascii()
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_what_a_message_names_is_a_field() -> None:
    found = row("halt run=%s code=%s turn=%s partition=%s trace_id=%s", "nightly-42", "LOOP001", 7, 3, "4bf9")

    assert found.pop("at").endswith("Z")
    assert found == {
        "level": "warning", "logger": "streamproc.worker",
        "message": "halt run=nightly-42 code=LOOP001 turn=7 partition=3 trace_id=4bf9",
        "run": "nightly-42", "code": "LOOP001", "turn": 7, "partition": 3, "trace_id": "4bf9",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("message", "arguments", "fields"),
    [
        ("partition %d is %s behind", (3, "9 s"), {"partition": 3}),
        ("ready partitions=%s runs=%d (%.0f%%)", ("0,1", 5, 12.0), {"partitions": "0,1", "runs": 5}),
        ("level=%s message=%s", ("x", "y"), {}),  # fields of every line keep their meaning
        ("100 % sure", (), {}),
    ],
)
def test_values_without_a_name_stay_in_the_message(
    message: str, arguments: tuple[object, ...], fields: dict[str, Any]
) -> None:
    found = row(message, *arguments)

    assert {name: found[name] for name in found.keys() - {"at", "level", "logger", "message"}} == fields
    assert found["message"] == (message % arguments if arguments else message)
    assert found["level"] == "warning"


def test_no_name_ends_a_line_or_acts_on_a_terminal() -> None:
    assert row("halt run=%s", "a\n\x1b[2J\u202e\ud800")["run"] == "a\n\x1b[2J\u202e\ud800"


def test_a_traceback_is_a_field() -> None:
    try:
        raise ZeroDivisionError("of a detector")
    except ZeroDivisionError:
        found = row("worker crashed", exc_info=sys.exc_info())

    assert found["exception"].splitlines()[-1] == "ZeroDivisionError: of a detector"
