"""The list of `streamproc watch` in a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from streamproc.cli.watch import list_of
from streamproc.model.controls import ControlEvent
from tests.cli.terminals import in_terminal


def control(run_id: str, message: str, turn: int = 1234) -> ControlEvent:
    return ControlEvent.model_validate(
        {"id": "1", "type": "loop.halted", "run_id": run_id, "code": "BUDGET007", "severity": "halt",
         "message": message, "trigger": {"turn": turn}, "at": "2026-01-31T12:34:56.789Z"}
    )  # fmt: skip


def shown(width: int, *controls: ControlEvent, height: int = 40) -> list[str]:
    return list_of(controls, Console(file=io.StringIO(), width=width), height).plain.splitlines()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_ids_are_whole_and_reasons_are_folded_between_words(width: int) -> None:
    lines = shown(width, control("run-" + "x" * 100, "Because of this. " * 10))

    assert "12:34:56  halt  run-" + "x" * 100 + "  turn 1234  BUDGET007" in "".join(lines)
    assert " ".join(" ".join(lines).split()).endswith(" ".join(("Because of this. " * 10).split()))
    assert max(map(len, lines)) <= width


def test_untrusted_names_are_neither_markup_nor_control_sequences() -> None:
    text = "\n".join(shown(120, control("[bold]run[/bold]", "evil\x1b[2J")))

    assert "[bold]run[/bold]" in text
    assert "\x1b" not in text


def test_a_severity_of_a_newer_worker_is_shown() -> None:
    assert "fatal  run" in shown(80, control("run", "Why.").model_copy(update={"severity": "fatal"}))[0]


def test_the_last_events_that_fit_are_shown() -> None:
    controls = [control("run", "Why.", turn) for turn in range(50)]
    assert shown(80, *controls, height=7)[::2] == [
        f"12:34:56  halt  run  turn {turn}  BUDGET007" for turn in (47, 48, 49)
    ]


RESIZED = """
import fcntl, os, signal, struct, sys, termios
from streamproc.cli.watch import _live_list
from tests.cli.test_watch_list import control
with _live_list() as show:
    show(control("run", "word " * 30))
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 60, 0, 0))
    os.kill(os.getpid(), signal.SIGWINCH)
"""


def test_the_list_is_folded_again_when_the_terminal_is_resized() -> None:
    terminal = in_terminal(columns=120, code=RESIZED)
    assert terminal.exit_code == 0, terminal.written
    last = terminal.lines[-4:]
    assert max(map(len, last)) <= 60
    assert sum(line.count("word") for line in last) == 30
