"""`streamproc demo`, end to end, as on a machine with Python packages and nothing else."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from streamproc.demo.agents import LOOP_RUN, DemoRun
from streamproc.demo.display import LineDisplay, ScreenDisplay, display_for
from streamproc.demo.scenario import DemoOutcome
from streamproc.demo.summary import sentences
from streamproc.demo.trajectories import Trajectory, load_trajectories, savings
from streamproc.model.controls import ControlEvent
from tests.cli.conftest import ROOT, command
from tests.listening import public

NOW_MS = 1_790_000_000_000


def alive(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.long
def test_the_demo_halts_the_same_runs_as_a_scan_and_ends_with_a_summary() -> None:
    """Even if the environment names a real Kafka, another prefix, and a policy that does not exist."""
    elsewhere = {"STREAMPROC_BROKERS": "127.0.0.1:1", "STREAMPROC_TOPIC_PREFIX": "prod", "STREAMPROC_POLICY": "nope"}
    process = command("demo", "--turns-per-second", "40", NO_COLOR="1", **elsewhere)
    stdout, stderr = process.communicate(timeout=120)

    assert (process.returncode, stderr) == (0, "")
    assert re.search(r"HALT demo/coder-verifier, turn \d+ of 24: STALL002 The same 2 tests have failed", stdout)
    assert "40 recorded runs and a scripted loop" in stdout
    assert "11 halted, 30 ended by themselves." in stdout
    assert "All 15 runs that solved their task were left alone." in stdout
    assert "Every recorded run was halted at the same turn as in `streamproc scan`" in stdout
    assert re.search(r"The halts saved \d+ of 1215 recorded turns: \d+ minutes of agent time", stdout)
    assert "streamproc scan YOURFILE.jsonl" in stdout
    assert "\x1b" not in stdout


@pytest.mark.long
def test_ctrl_c_ends_the_demo_and_its_child_processes() -> None:
    process = command("demo", "--turns-per-second", "1")
    assert process.stdout is not None
    for line in process.stdout:
        if "turns 1/" in line or "under guards" in line:
            break
    children = _children(process.pid)
    open_to_others = [address for pid in (process.pid, *children) for address in public(pid)]

    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "stopped, together with the embedded broker and the worker" in stdout
    assert "Traceback" not in stderr
    assert len(children) == 2
    assert not open_to_others
    assert not any(alive(pid) for pid in children)


def test_without_the_package_of_the_broker_the_demo_names_the_extra_to_install(tmp_path: Path) -> None:
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError\n")  # hides the installed package

    process = command("demo", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == 2
    assert stderr == (
        "error: the package of the embedded broker is missing. Install it with: pip install 'streamproc[demo]'\n"
    )


def _children(pid: int) -> list[int]:
    return [int(child) for child in subprocess.check_output(["pgrep", "-P", str(pid)], text=True).split()]


@pytest.fixture(scope="module")
def trajectories() -> list[Trajectory]:
    return load_trajectories(NOW_MS)


def test_recorded_times_are_shifted_to_now(trajectories: list[Trajectory]) -> None:
    for trajectory in trajectories:
        times = [turn.at for turn in trajectory.turns if turn.at is not None]
        assert not times or max(times) == NOW_MS


def test_savings_are_counted_only_where_they_were_recorded(trajectories: list[Trajectory]) -> None:
    timed = next(one for one in trajectories if one.run_id == "kimi_k2.5/fix-git__cCozJVA")
    timeless = next(one for one in trajectories if one.run_id == "0_trial0")

    assert savings(timed, 22).turns == len(timed.turns) - 22
    assert savings(timed, 22).tokens > 0
    assert savings(timed, 22).time_ms == timed.turns[-1].at - timed.turns[21].at
    assert savings(timeless, 3) == (len(timeless.turns) - 3, None, None)
    assert savings(timed, len(timed.turns)).turns == 0


def halt(run_id: str, turn: int) -> ControlEvent:
    return ControlEvent.model_validate(
        {"id": "1", "type": "loop.halted", "run_id": run_id, "code": "LOOP003", "severity": "halt",
         "message": "Again.", "trigger": {"turn": turn}}
    )  # fmt: skip


def ran(trajectory: Trajectory, turn: int | None) -> DemoRun:
    """A run that was halted at this turn, or ended by itself (None)."""
    run = DemoRun(trajectory.run_id, len(trajectory.turns), trajectory, taken=len(trajectory.turns))
    run.halt = None if turn is None else halt(trajectory.run_id, turn)
    return run


def test_every_deviation_is_a_surprise(trajectories: list[Trajectory]) -> None:
    stuck = next(one for one in trajectories if one.halt_at is not None)
    honest = next(one for one in trajectories if one.halt_at is None)
    loop = DemoRun(LOOP_RUN, 24, taken=6)
    loop.halt = halt(LOOP_RUN, 5)

    def surprises(*runs: DemoRun, dropped: int = 0) -> list[str]:
        return DemoOutcome(runs, dropped, 1.0).surprises()

    assert surprises(loop, ran(stuck, stuck.halt_at), ran(honest, None)) == []
    assert "the guard did not stop" in surprises(DemoRun(LOOP_RUN, 24, taken=24))[0]
    assert (
        f"{stuck.run_id}: not halted in the demo, halted at turn {stuck.halt_at} in a scan"
        == surprises(ran(stuck, None))[0]
    )
    assert f"{honest.run_id}: halted at turn 3 in the demo, not halted in a scan" == surprises(ran(honest, 3))[0]
    assert surprises(dropped=2) == ["2 turns did not reach the broker"]
    assert surprises(dropped=1) == ["1 turn did not reach the broker"]


def test_a_halted_run_that_solved_its_task_is_named(trajectories: list[Trajectory]) -> None:
    solved = next(one for one in trajectories if one.solved)

    text = list(sentences(DemoOutcome([ran(solved, 3)], 0, 1.0)))

    assert f"1 halted: {solved.run_id}." in text[1]
    assert not any("as in `streamproc scan`" in sentence for sentence in text)


def test_the_screen_shows_every_run_and_the_reason_of_each_halt(trajectories: list[Trajectory]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    runs = [
        ran(trajectories[0], 10), ran(trajectories[1], None), DemoRun("waiting", 7), DemoRun("running", 9, taken=2),
    ]  # fmt: skip
    runs[1].done = True
    screen = ScreenDisplay(console)

    with screen.show(runs):
        screen.message("coder, attempt 1")
        screen.run_ended(runs[0])

    shown = console.file.getvalue()
    for text in ("running 1", "ended 1", "halted 1", "■", "✓", "▪", "·", "coder, attempt 1", "LOOP003"):
        assert text in shown


@pytest.mark.parametrize(("options", "kind"), [
    ({"force_terminal": True}, ScreenDisplay), ({"force_terminal": False}, LineDisplay),
    ({"force_terminal": True, "_environ": {"TERM": "dumb"}}, LineDisplay),
])  # fmt: skip
def test_the_screen_is_only_for_terminals_that_can_draw(options, kind, monkeypatch: pytest.MonkeyPatch) -> None:
    utf8 = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", utf8)

    assert type(display_for(Console(file=utf8, **options))) is kind


def test_an_encoding_without_the_marks_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    latin = io.TextIOWrapper(io.BytesIO(), encoding="iso-8859-1")
    monkeypatch.setattr("sys.stdout", latin)

    assert type(display_for(Console(file=latin, force_terminal=True))) is LineDisplay
