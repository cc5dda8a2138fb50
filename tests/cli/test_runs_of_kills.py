"""What `status` and `resume` say of a run that a kill has halted, and of a file that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from streamproc.cli import runs
from streamproc.model.controls import ControlEvent, ControlEvidence, RunStatus

KILLED = "user zoe of tenant acme is killed: it loops"


def halted(reason: str) -> RunStatus:
    halt = ControlEvent(
        id="h", type="loop.halted", run_id="r1", code="OPERATOR001", severity="halt", message="",
        evidence=ControlEvidence(kind="operator_stop", reason=reason),
    )  # fmt: skip
    return RunStatus(run_id="r1", status="halted", halt=halt)


@pytest.mark.parametrize(("reason", "command"), [
    (KILLED, "streamproc clear --user zoe --tenant acme"), ("wrong branch", ""),
])  # fmt: skip
def test_the_kill_of_a_run_is_named_before_it_is_resumed(
    capsys: pytest.CaptureFixture[str], reason: str, command: str
) -> None:
    runs.note_kill("resume", halted(reason))
    runs.note_kill("kill", halted(reason))
    assert capsys.readouterr().err.count(command or "streamproc clear") == bool(command)
    following = " ".join(list(runs._lines(halted(reason), []))[-1].split())
    lift = f"{command}; " if command else ""
    assert following == f"next: streamproc report r1; {lift}streamproc resume r1 --turns 10 --why REASON"


def test_an_export_that_cannot_be_written_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        runs._export(tmp_path / "nowhere" / "x.json", halted(KILLED), [])
    assert ended.value.exit_code == 2
    assert "No such file or directory. Name a file that can be written with --export" in capsys.readouterr().err
