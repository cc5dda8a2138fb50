"""`streamproc demo`, end to end, as on a machine with nothing but Python packages."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from streamproc.demo.agents import LOOP_RUN, Play
from streamproc.demo.display import Lines, Screen, audience
from streamproc.demo.scenario import DemoOutcome
from streamproc.demo.summary import sentences
from streamproc.demo.trajectories import Trajectory, load_trajectories, spared
from streamproc.model.controls import ControlEvent
from tests.cli.conftest import ROOT, command
from tests.listening import public

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW_MS = 1_790_000_000_000


def alive(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_demo_halts_what_a_scan_halts_and_ends_by_itself_with_a_summary() -> None:
    """Also where the environment names a real Kafka, another prefix, and a policy that does not exist."""
    elsewhere = {"STREAMPROC_BROKERS": "127.0.0.1:1", "STREAMPROC_TOPIC_PREFIX": "prod", "STREAMPROC_POLICY": "nope"}
    process = command("demo", "--turns-per-second", "40", NO_COLOR="1", **elsewhere)
    stdout, stderr = process.communicate(timeout=120)

    assert (process.returncode, stderr) == (0, "")
    assert re.search(r"HALT demo/coder-verifier, turn \d+ of 24: STALL002 The same 2 tests have failed", stdout)
    assert "40 recorded runs and a scripted loop" in stdout
    assert "11 halted, 30 ended by themselves." in stdout
    assert "All 15 runs that had solved their task were left alone." in stdout
    assert "Each was halted at the turn at which `streamproc scan` halts it" in stdout
    assert re.search(r"What that saved: \d+ of 1215 recorded turns were not taken", stdout)
    assert "streamproc scan YOURFILE.jsonl" in stdout
    assert "\x1b" not in stdout


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Tests that were started in the background ignore Ctrl-C, and so would whatever they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_demo_and_everything_it_started() -> None:
    process = command("demo", "--turns-per-second", "1")
    assert process.stdout is not None
    for line in process.stdout:
        if "turns 1 of" in line or "each under a guard" in line:
            break
    children = _children(process.pid)
    open_to_others = [address for pid in (process.pid, *children) for address in public(pid)]

    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "stopped; the broker and the worker are gone, too" in stdout
    assert "Traceback" not in stderr
    assert len(children) == 2
    assert not open_to_others
    assert not any(alive(pid) for pid in children)


def test_without_the_package_that_carries_the_broker_the_demo_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError\n")

    process = command("demo", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == 2
    assert "the embedded broker did not start" in stderr
    assert "pip install 'streamproc[demo]'" in stderr
    assert "Traceback" not in stderr


def _children(pid: int) -> list[int]:
    return [int(child) for child in subprocess.check_output(["pgrep", "-P", str(pid)], text=True).split()]


@pytest.fixture(scope="module")
def trajectories() -> list[Trajectory]:
    return load_trajectories(NOW_MS)


def test_recorded_times_are_moved_and_their_gaps_stay(trajectories: list[Trajectory]) -> None:
    for trajectory in trajectories:
        times = [turn.at for turn in trajectory.turns if turn.at is not None]
        assert not times or max(times) == NOW_MS


def test_what_was_spared_is_counted_only_where_the_recording_says(trajectories: list[Trajectory]) -> None:
    timed = next(one for one in trajectories if one.run_id == "kimi_k2.5/fix-git__cCozJVA")
    timeless = next(one for one in trajectories if one.run_id == "0_trial0")

    assert spared(timed, 22).turns == len(timed.turns) - 22
    assert spared(timed, 22).tokens > 0
    assert spared(timed, 22).time_ms == timed.turns[-1].at - timed.turns[21].at
    assert spared(timeless, 3) == (len(timeless.turns) - 3, None, None)
    assert spared(timed, len(timed.turns)).turns == 0


def halt(run_id: str, turn: int) -> ControlEvent:
    return ControlEvent.model_validate(
        {"id": "1", "type": "loop.halted", "run_id": run_id, "code": "LOOP003", "severity": "halt",
         "message": "Again.", "trigger": {"turn": turn}}
    )  # fmt: skip


def played(trajectory: Trajectory, turn: int | None) -> Play:
    """A run that was halted at this turn; None: it ended by itself."""
    play = Play(trajectory.run_id, len(trajectory.turns), trajectory, taken=len(trajectory.turns))
    play.halt = None if turn is None else halt(trajectory.run_id, turn)
    return play


def test_what_is_not_as_expected_is_a_surprise(trajectories: list[Trajectory]) -> None:
    stuck = next(one for one in trajectories if one.halt_at is not None)
    honest = next(one for one in trajectories if one.halt_at is None)
    loop = Play(LOOP_RUN, 24, taken=6)
    loop.halt = halt(LOOP_RUN, 5)

    def surprises(*plays: Play, dropped: int = 0) -> list[str]:
        return DemoOutcome(plays, dropped, 1.0).surprises()

    assert surprises(loop, played(stuck, stuck.halt_at), played(honest, None)) == []
    assert "the guard did not stop" in surprises(Play(LOOP_RUN, 24, taken=24))[0]
    assert f"{stuck.run_id} was halted at turn None" in surprises(played(stuck, None))[0]
    assert f"{honest.run_id} was halted at turn 3" in surprises(played(honest, 3))[0]
    assert surprises(dropped=2) == ["2 turns did not reach the broker"]


def test_a_solved_run_that_was_halted_is_named(trajectories: list[Trajectory]) -> None:
    solved = next(one for one in trajectories if one.solved)

    told = list(sentences(DemoOutcome([played(solved, 3)], 0, 1.0)))

    assert f"1 were halted: {solved.run_id}." in told[1]
    assert not any("at which `streamproc scan` halts it" in sentence for sentence in told)


def test_the_screen_shows_every_run_and_why_it_was_halted(trajectories: list[Trajectory]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    plays = [
        played(trajectories[0], 10),
        played(trajectories[1], None),
        Play("waiting", 7),
        Play("running", 9, taken=2),
    ]
    plays[1].done = True
    screen = Screen(console)

    with screen.show(plays):
        screen.said("something to read")
        screen.ended(plays[0])

    shown = console.file.getvalue()
    for text in ("running 1", "ended by themselves 1", "halted 1", "■", "✓", "▪", "·", "something to read", "LOOP003"):
        assert text in shown


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"force_terminal": True}, Screen),
        ({"force_terminal": False}, Lines),
        ({"force_terminal": True, "_environ": {"TERM": "dumb"}}, Lines),
    ],
)
def test_a_screen_is_drawn_only_where_there_is_one(options, kind, monkeypatch: pytest.MonkeyPatch) -> None:
    utf8 = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", utf8)

    assert type(audience(Console(file=utf8, **options))) is kind


def test_no_screen_is_drawn_where_its_signs_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    latin = io.TextIOWrapper(io.BytesIO(), encoding="iso-8859-1")
    monkeypatch.setattr("sys.stdout", latin)

    assert type(audience(Console(file=latin, force_terminal=True))) is Lines
