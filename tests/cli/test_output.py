r"""Untrusted text at every exit: no terminal, log, JSON line or notification gets a character that acts.

The expectation is written with Unicode's own categories, not with the escaping code's rule.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import apprise
import pytest
from hypothesis import given, settings, strategies as st
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.cli.replay import Replayed, _show
from streamproc.cli.report import run_lines
from streamproc.cli.terminal import fold, paint, printable, report_bug
from streamproc.cli.watch import _show_line, list_of
from streamproc.errors import Halted, InvalidEvent, Problem, StreamprocError, shown
from streamproc.model.controls import ControlEvent
from streamproc.model.escaping import INDENT, LogFormatter, escape, escape_json, inert
from streamproc.model.notification import Urgency, message_of, summary_of
from streamproc.model.raw_events import parse_line
from streamproc.notify.notification_config import load_notification_config
from streamproc.notify.service import Service
from streamproc.notify.triggers import BY_NAME, notice_of
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from tests.cli.conftest import ROOT, jsonl, stuck
from tests.cli.terminals import in_terminal
from tests.feeding import written
from tests.notify.controls import control
from tests.notify.receiver import Receiver

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

APP = build()
ACTING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # categories of Unicode
ATTACKS = (
    "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://evil.example\x1b\\", "\x1b[31mHALTED\x1b[0m", "\r", "\n", "\r\n",
    "\x08\x08", "\x7f", "\x85", "\x9b2J", "\u2028", "\u2029", "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\xad",
    "\U000e0041", "\u3164", "\n2026-01-31 12:00:00,000 CRITICAL streamproc.worker: all runs are stopped",
    "[red]", "[/red]", "[/]", "@everyone", "<!channel>", "<@U12345>", "![x](http://evil.example/x.png)",
    "https://evil.example", "www.evil.example", "<img src=x>", "名前", "e\u0301", "\\n",
)  # fmt: skip
hostile = st.lists(st.one_of(st.sampled_from(ATTACKS), st.text(max_size=8)), min_size=1, max_size=4).map("".join)
names = hostile.map(lambda text: text.encode("utf-8", "replace").decode()[:60]).filter(bool)


def acting(text: str, *, keep: str = "\n") -> list[str]:
    return [one for one in text if unicodedata.category(one) in ACTING and one not in keep]


def stuck_turns(name: str) -> str:
    """Return a stuck run with this text in every field that has one."""
    turn = {
        "run_id": name, "node": name, "from": name, "labels": {name: name}, "errors": [name],
        "tool_calls": [{"name": name, "args": {name: name}, "result": name}],
    }  # fmt: skip
    start = {"type": "run.started", "run_id": name, "workflow": name, "tenant": name, "user": name}
    stop = {"type": "operator.stop", "run_id": f"{name}2", "by": name, "reason": name}
    return jsonl([start, *[turn] * 4, {"run_id": f"{name}2", "node": name}, stop])


def decisions_on(text: str, file: Path) -> tuple[list[ControlEvent], dict[str, int]]:
    file.write_text(text)
    scan = Scan([Source(str(file))], load_policy("standard"))
    found = list(scan)
    return found, scan.turns_of()


def printed_by(call: Callable[[], object]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as written:
        call()
    return written.getvalue()


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if acting(attack, keep="")])
def test_an_attack_is_shown_as_an_escape(attack: str) -> None:
    shown_as = escape(f"run{attack}1")
    assert not acting(shown_as, keep="")
    assert shown_as.startswith("run")
    assert "\\" in shown_as


def test_text_of_every_script_is_shown_unchanged() -> None:
    for text in ("plain", "naïve", "名前\u3000二", "שלום", "🙂", "1\xa0000", "a\\nb"):
        assert escape(text) == inert(text) == escape_json(text) == text


@settings(max_examples=60)
@given(name=names)
def test_no_text_in_any_field_acts_in_the_output_of_scan(name: str) -> None:
    result = CliRunner().invoke(APP, ["scan", "-"], input=stuck_turns(name))

    assert result.exit_code in (1, 2), result.output
    assert not acting(result.output)
    heads = [line for line in result.stdout.splitlines() if line and not line.startswith(" ")]
    # a warning and two halts, then the two runs and their number: no line is forged
    assert len(heads) == (6 if result.exit_code == 1 else 0)


@settings(max_examples=60)
@given(name=names)
def test_jsonl_output_has_the_exact_values_and_nothing_that_acts(name: str, tmp_path_factory) -> None:
    result = CliRunner().invoke(APP, ["scan", "-", "--format", "jsonl"], input=stuck_turns(name))
    if result.exit_code == 2:
        return  # not a usable run id, as the text form reports
    decisions, _ = decisions_on(stuck_turns(name), tmp_path_factory.getbasetemp() / "turns.jsonl")

    assert decisions
    assert not acting(result.stdout)
    assert list(map(json.loads, result.stdout.splitlines())) == list(map(json.loads, written(decisions)))


@settings(max_examples=40)
@given(name=names, width=st.integers(80, 140))
def test_no_text_in_a_control_event_acts_in_watch(name: str, width: int) -> None:
    event = control(run_id=name, message=name, code=name[:20], at=f"2026-01-31T{name[:8]}")
    console = Console(file=io.StringIO(), width=width)
    console.print(list_of([event], console, 40))
    lines = console.file.getvalue().removesuffix("\n").split("\n")  # type: ignore[attr-defined]
    written = printed_by(lambda: _show_line(event))

    assert all(cell_len(line) <= width for line in lines)
    assert not acting("".join(lines), keep="")
    assert written.count("\n") == 1
    assert not acting(written)


@settings(max_examples=40)
@given(name=names)
def test_no_text_in_the_log_acts_in_replay(name: str, tmp_path_factory) -> None:
    try:
        decisions, turns = decisions_on(stuck_turns(name), tmp_path_factory.getbasetemp() / "replayed.jsonl")
    except InvalidEvent:
        return  # not a usable run id

    written = printed_by(lambda: _show(Replayed(decisions, turns, {}), "text"))
    as_json = printed_by(lambda: _show(Replayed(decisions, turns, {}), "jsonl"))

    assert not acting(written) + acting(as_json)
    assert len([line for line in written.split("\n") if line and not line.startswith(" ")]) == 3


@given(text=hostile, width=st.integers(20, 100))
def test_folded_lines_fit_the_terminal_after_escaping(text: str, width: int) -> None:
    line = f"{paint('HALTED', 'red')}  {escape(text)}  at turn 2"
    for folded in fold(line, 8, width).split("\n"):
        plain = re.sub(r"\x1b\[\d+m", "", folded)
        assert cell_len(plain) <= width or " " not in plain.strip()  # a single word stays whole


@given(text=hostile)
def test_the_last_step_before_a_terminal_lets_only_our_colours_and_line_breaks_through(text: str) -> None:
    written = printable(f"{paint('HALTED', 'red', bold=True)} {text}")
    unstyled = re.sub(r"\x1b\[(?:\d|\d\d)m", "", written)
    assert not acting(unstyled)
    assert printable(paint("HALTED", "red", bold=True)) == paint("HALTED", "red", bold=True)


@given(text=hostile)
def test_no_text_makes_a_second_log_line(text: str) -> None:
    formatter = LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    for message, arguments in ((text.replace("%", ""), ()), ("run %s failed: %r", (text, ValueError(text)))):
        line = formatter.format(logging.LogRecord("streamproc", logging.ERROR, "", 1, message, arguments, None))
        assert not acting(line, keep="")


@given(text=hostile)
def test_every_line_of_a_traceback_is_indented_and_escaped(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        record = logging.LogRecord("streamproc", logging.ERROR, "", 1, "worker crashed", (), sys.exc_info())
    first, *rest = LogFormatter("%(levelname)s %(message)s").format(record).split("\n")

    assert first == "ERROR worker crashed"
    assert rest[0] == f"{INDENT}Traceback (most recent call last):"
    assert all(line.startswith(INDENT) and not acting(line, keep="") for line in rest)


def test_a_forged_run_id_makes_one_line_in_the_log_of_a_worker() -> None:
    forged = "r1\n2026-01-31 12:00:00,000 CRITICAL streamproc.worker: all runs are stopped\x1b[2J"
    code = (
        "import logging; from streamproc.worker import logs; logs.set_up(); log = logging.getLogger('streamproc.x')\n"
        f"forged = {forged!r}\n"
        "log.warning('run %s is idle', forged)\n"
        "try:\n    raise ValueError(forged)\nexcept ValueError:\n    log.exception('run %s failed', forged)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True)
    lines = done.stderr.decode().split("\n")

    assert [line.split()[2] for line in lines if re.match(r"\d{4}-", line)] == ["WARNING", "ERROR"]
    assert not acting(done.stderr.decode())


def test_errors_quote_untrusted_text_as_escapes() -> None:
    problem = Problem("run_id", "\x1b[2J is\nbad", "send\u202e another", "a\r.jsonl:3")
    for text in (
        str(problem),
        str(InvalidEvent([problem])),
        str(StreamprocError("\x1b[2J")),
        str(Halted("r\n1", control(message="\x9bm"))),
        shown("\x1b[2J\u3164"),
    ):
        assert not acting(text, keep="")
        assert "\u3164" not in text


def test_the_traceback_of_a_bug_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("run r1\nerror: forged\x1b[2J")
    except ValueError:
        report_bug()
    written = capsys.readouterr().err

    assert written.startswith("Traceback (most recent call last):\n")
    assert "\n    error: forged\\x1b[2J\n" in written
    assert not acting(written)


def test_a_command_that_meets_a_bug_prints_an_escaped_traceback() -> None:
    """The bug is in an embedding program here: a command of its own that raises."""
    code = (
        "import streamproc.cli as cli\n"
        "class Bug:\n    def __call__(self, **_): raise ValueError('x\\n\\x1b[2J')\n"
        "cli.build = Bug\ncli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=False)

    assert done.returncode == 1
    assert b"ValueError: x" in done.stderr
    assert not acting(done.stderr.decode())


def test_warnings_of_libraries_are_escaped_in_commands() -> None:
    code = (
        "import logging, sys; from streamproc.cli import main; sys.argv = ['streamproc', '--version']\n"
        "try:\n    main()\nfinally:\n    logging.getLogger('a.library').warning('x\\n\\x1b[2J%s', '\\r')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=False)

    assert done.stderr.decode().strip() == r"x\n\x1b[2J\r"


def test_a_hostile_file_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    """A real terminal, emulated: a title, a cleared screen or a moved cursor would show."""
    file = tmp_path / "turns.jsonl"
    file.write_text(jsonl(stuck(run_id="r1\x1b[2J\x1b[H\x1b]0;owned\x07\x1b[31m\r\x08\nHALTED  r2")))

    seen = in_terminal("scan", file, columns=200)

    assert seen.exit_code == 1
    assert seen.lines[-2].startswith(r"HALTED  r1\x1b[2J\x1b[H\x1b]0;owned\x07\x1b[31m\r\x08\nHALTED  r2  at turn 2")
    assert len([line for line in seen.lines if line.startswith("HALTED")]) == 1


def test_a_hostile_line_is_refused_in_an_escaped_message(tmp_path: Path) -> None:
    file = tmp_path / "turns\x1b[2J.jsonl"
    file.write_text('{"run_id": "r1", "node": "n", "type": "\\u001b[2J\\n"}\n')
    for arguments in (["scan", str(file)], ["scan", str(file), "--lenient"], ["scan", f"{file}2"]):
        assert not acting(CliRunner().invoke(APP, arguments).output)
    with pytest.raises(InvalidEvent) as refused:
        parse_line(file.read_bytes())
    assert not acting(str(refused.value), keep="")


# Notifications


def notice(text: str):
    event = control(
        run_id=text, node=text, task_id=text, message=text, workflow=text, tenant=text, user=text,
        evidence={"kind": "repeated_call", "tool": text, "first_error": text, "failing_tests": [text]},
    )  # fmt: skip
    return notice_of(event, BY_NAME["loop"], Urgency.HIGH)


TRICKS = re.compile(r"@(?=\S)|<(?=\S)|\]\(|\]\[|\S://|www\.\S", re.IGNORECASE)


@given(text=names)
def test_no_text_in_a_notification_acts_mentions_or_links(text: str) -> None:
    one, several = message_of(notice(text)), summary_of([notice(text), notice(text)])

    assert one.body.count("\n") == message_of(notice("r1")).body.count("\n")  # no line is forged
    assert several.body.count("\n") == 1
    for message in (one, several):
        assert not acting(message.title, keep="") + acting(message.body)
        assert not TRICKS.search(message.title + "\n" + message.body)


@given(text=names)
def test_a_webhook_gets_the_exact_values_and_nothing_that_acts(text: str) -> None:
    body = message_of(notice(text), as_json=True).body

    assert not acting(body, keep="")
    assert json.loads(body)["run_id"] == text


@pytest.mark.parametrize(("scheme", "path"), [("mmost", "token"), ("ntfy", "agents"), ("xbmc", "")])
def test_a_service_gets_no_mention_and_no_link(scheme: str, path: str, receiver: Receiver) -> None:
    """Services of Apprise that render Markdown and act on mentions, and one that does not."""
    attack = "@everyone @here <!channel> <@U1> [x](http://evil.example) ![x](http://evil.example/x.png)\n@all\x1b[2J"
    [destination] = load_notification_config("", [f"{scheme}://127.0.0.1:{receiver.port}/{path}"]).destinations
    assert Service(destination, 1)._send(message_of(notice(attack))) == ""
    said = json.dumps([post for _, post in receiver.posts], ensure_ascii=False)

    assert "@ everyone" in said
    assert not re.search(r"@(everyone|here|all|U1)|<!|\]\(|\S://evil|\\u001b", said)


def test_apprise_does_not_turn_escapes_back_into_characters() -> None:
    assert not apprise.AppriseAsset().interpret_escapes


def test_report_lines_are_escaped_before_they_are_folded(tmp_path: Path) -> None:
    decisions, turns = decisions_on(jsonl(stuck(run_id="r\n1\x1b[1m")), tmp_path / "turns.jsonl")

    [head, *_] = run_lines("r\n1\x1b[1m", decisions, turns["r\n1\x1b[1m"])

    assert r"r\n1\x1b[1m" in head
