"""The table of `streamproc watch` in a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from streamproc.cli.watch import table_of
from streamproc.model.controls import ControlEvent


def control(run_id: str, message: str) -> ControlEvent:
    return ControlEvent.model_validate(
        {"id": "1", "type": "loop.halted", "run_id": run_id, "code": "BUDGET007", "severity": "halt",
         "message": message, "trigger": {"turn": 1234}, "at": "2026-01-31T12:34:56.789Z"}
    )  # fmt: skip


def shown(width: int, *controls: ControlEvent) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table_of(controls))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_an_event_takes_one_line_and_short_cells_are_never_cut(width: int) -> None:
    head, row = shown(width, control("run-" + "x" * 300, "Why. " * 100))

    assert head.split() == ["at", "what", "run", "turn", "code", "why"]
    assert all(cell in row for cell in ("12:34:56", "halt", "1234", "BUDGET007", "run-x", "Why."))


def test_untrusted_names_are_neither_markup_nor_control_sequences() -> None:
    _, row = shown(120, control("[bold]run[/bold]", "evil\x1b[2J"))

    assert "[bold]run[/bold]" in row
    assert "\x1b" not in row
