"""Output in a terminal: no remains of a progress bar, and every line fits and breaks between words."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import typer

from streamproc.cli import build, terminal
from streamproc.demo.agents import LOOP_RUN, DemoRun
from streamproc.demo.display import counts
from streamproc.demo.trajectories import load_trajectories
from tests.cli.conftest import ROOT, jsonl, stuck
from tests.cli.terminals import in_terminal

SAMPLES = ROOT / "streamproc" / "samples" / "trajectories.jsonl.gz"
WIDTHS = (80, 120)
BAR = "━"
NOWHERE = "127.0.0.1:1"

DEMO = """
import sys
from streamproc.cli import main
from streamproc.demo import scenario
from tests.cli.test_demo import NOW_MS, load_trajectories, ran

def outcome(display, pause_s, page=None):
    runs = [ran(one, one.halt_at) for one in load_trajectories(NOW_MS)]
    return scenario.DemoOutcome(runs, 0, 12.0)

scenario.run_demo = outcome
sys.argv = ["streamproc", "demo"]
main()
"""


def words(lines: list[str]) -> list[str]:
    return " ".join(lines).split()


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_report_of_a_scan_fits_and_nothing_of_the_bar_remains(run, columns: int) -> None:
    shown = in_terminal("scan", SAMPLES, columns=columns)

    assert shown.exit_code == 1
    assert "scanning" in shown.written
    assert BAR in shown.written
    assert not any(BAR in line or "scanning" in line for line in shown.lines)
    assert any(re.fullmatch(r"HALTED  \S+  at turn \d+ of \d+, \d+ more followed(: .+)?", line) for line in shown.lines)
    assert shown.lines[-1].endswith(("halt.", "turns"))
    assert max(map(len, shown.lines)) <= columns
    assert words(shown.lines) == run("scan", SAMPLES).stdout.split()


@pytest.mark.parametrize("columns", WIDTHS)
def test_json_lines_in_a_terminal_are_whole_and_without_a_bar(tmp_path: Path, columns: int) -> None:
    """Decisions are printed during the scan, so the bar is erased and drawn again in between."""
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl(event for number in range(200) for event in stuck(f"run-{number}", turns=3)))

    shown = in_terminal("scan", path, "--format", "jsonl", columns=columns)

    assert shown.written.count("scanning") > 1
    assert len(shown.lines) == 400
    assert all(json.loads(line)["code"] == "LOOP001" for line in shown.lines)


COMMANDS = {
    "policy check": "policy standard, version 4, hash ", "policy show": "# policy standard, version 4, hash ",
    "explain": "BUDGET001   turn ", "explain LOOP003": "LOOP003 repeated_call: ",
    "explain FLEET002": "FLEET002 fleet_refused: ", "config": "", f"doctor --brokers {NOWHERE}": "ok   Python 3.",
    f"topics apply --brokers {NOWHERE}": "error: ", f"replay --all --diff --brokers {NOWHERE}": "error: ", "--help": "",
    "resume --help": "",
}  # fmt: skip
"""Each with the beginning of its output."""

ONE_AFTER_THE_OTHER = """
import sys
from streamproc.cli import build

for command in sys.argv[1:]:
    print("$", command, flush=True)
    try:
        build()(command.split(), prog_name="streamproc")
    except SystemExit:
        sys.stdout.flush()
"""


@cache
def outputs(columns: int) -> dict[str, list[str]]:
    """The lines that each command leaves on the screen. One process runs them all: each start takes a second."""
    redis = f"redis://{NOWHERE}/0"
    shown = in_terminal(*COMMANDS, columns=columns, code=ONE_AFTER_THE_OTHER, STREAMPROC_REDIS=redis)
    found: dict[str, list[str]] = {}
    for line in shown.lines:
        if line.startswith("$ "):
            found[line.removeprefix("$ ")] = []
        else:
            found[list(found)[-1]].append(line)
    return found


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(("command", "first"), COMMANDS.items(), ids=COMMANDS)
def test_the_output_of_a_command_fits(command: str, first: str, columns: int) -> None:
    lines = outputs(columns)[command]

    assert lines[0].startswith(first)
    assert max(map(len, lines)) <= columns
    assert not any(BAR in line for line in lines)


@pytest.mark.parametrize("columns", WIDTHS)
def test_every_setting_is_shown_whole(run, columns: int) -> None:
    lines = outputs(columns)["config"]

    assert not any("…" in line for line in lines)
    assert set(json.loads(run("config", "--json").stdout)) <= set(words(lines))


def test_help_is_folded_only_at_the_end_of_a_line() -> None:
    """Typer keeps the line breaks of all paragraphs of a docstring but the first."""
    for command in typer.main.get_command(build()).commands.values():
        for each in [command, *getattr(command, "commands", {}).values()]:
            assert "\n" not in (each.help or "").partition("\n\n")[2].replace("\n\n", ""), each.name


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_summary_of_the_demo_fits_and_explains_each_halt(columns: int) -> None:
    shown = in_terminal(columns=columns, code=DEMO)

    assert shown.exit_code == 0, shown.written
    assert max(map(len, shown.lines)) <= columns
    text = " ".join(words(shown.lines))
    assert "LOOP003 kimi_k2.5/overfull-hbox__TXFvSdg, halted at turn 31 of 59 Again." in text
    assert "All 15 runs that solved their task were left alone." in text
    assert "streamproc scan YOURFILE.jsonl" in text


def test_the_progress_of_the_demo_fits_into_80_columns() -> None:
    runs = [DemoRun(one.run_id, len(one.turns), one, taken=len(one.turns)) for one in load_trajectories(0)]
    assert len(counts([DemoRun(LOOP_RUN, 24), *runs])) < 80


@pytest.mark.parametrize(("text", "hang", "folded"), [
    ("", 4, ""), ("one two", 4, "one two"), ("one two three four", 4, "one two\n    three\n    four"),
    ("  a b c d e f g", 2, "  a b c d\n  e f g"),
    ("an-id-longer-than-the-line it", 2, "an-id-longer-than-the-line\n  it"),
    ("\x1b[31mred\x1b[0m text too", 0, "\x1b[31mred\x1b[0m text\ntoo"), ("日本 語の run", 0, "日本 語の\nrun"),
    ("a\n\nb", 0, "a\n\nb"),
])  # fmt: skip
def test_lines_break_between_words_with_a_hanging_indent(text: str, hang: int, folded: str) -> None:
    assert terminal.fold(text, hang, width=9) == folded
