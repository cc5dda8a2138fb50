"""`streamproc protect`: from install to removal, in an empty home directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamproc.errors import InvalidSettings
from streamproc.live import hook_settings
from streamproc.live.hook_settings import CLIS
from streamproc.live.places import places
from tests.live.conftest import Run, Up

EVENT = {"session_id": "s1", "hook_event_name": "SessionStart", "cwd": "/srv/app"}


def protect(*arguments: str, code: int = 0, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "streamproc", "protect", *arguments],
        capture_output=True, text=True, check=False, env=os.environ | more,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def first_command(settings: Path) -> str:
    found = json.loads(settings.read_text())["hooks"]["SessionStart"][-1]["hooks"][0]["command"]
    assert isinstance(found, str)
    return found


def test_from_install_to_removal(home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": "opus"}')
    assert "+  " not in protect("status")
    shown = protect("claude", "--dry-run")
    assert "with the change" in shown
    assert settings.read_text() == '{"model": "opus"}'
    assert "added our hooks" in protect("claude")
    assert "as it should be" in protect("claude")
    assert json.loads(settings.read_text())["model"] == "opus"
    subprocess.run(first_command(settings), shell=True, input=json.dumps(EVENT), text=True, check=True)
    shown = protect("status")
    assert "streamproc up is running" in shown
    assert "claude: protected, 1 sessions, 0 stopped" in shown
    assert "removed our hooks" in protect("claude", "--remove")
    assert settings.read_text() == '{"model": "opus"}'


def test_settings_that_were_not_there_are_gone_again(home: Path) -> None:
    protect("codex")
    assert (home / ".codex" / "hooks.json").exists()
    assert "trusted" in protect("status", code=1)
    protect("codex", "--remove")
    assert not (home / ".codex" / "hooks.json").exists()


def test_all_means_those_that_are_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert "neither claude, codex nor gemini" in protect("all", code=1)
    (home / ".gemini").mkdir()
    assert "gemini: added" in protect("all")
    assert not (home / ".claude").exists()


def test_settings_that_cannot_be_read_are_named_and_kept(home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": ')
    assert str(settings) in protect("claude", code=2)
    assert settings.read_text() == '{"model": '


@pytest.mark.parametrize("damaged", ["claude", "codex", "gemini"])
def test_one_that_cannot_be_changed_keeps_no_other_from_protection(home: Path, damaged: str) -> None:
    for cli in CLIS.values():
        cli.settings("user").parent.mkdir()
        cli.settings("user").write_text('{"hooks": {}, "hooks": {}}' if cli.name == damaged else " \n")
    said = protect("all", "--observe", code=2)
    assert str(CLIS[damaged].settings("user")) in said
    assert "hooks is there twice" in said
    assert places().observing.exists()
    for cli in CLIS.values():
        assert ("hook.py" in cli.settings("user").read_text()) is (cli.name != damaged)
    assert "Traceback" not in said + protect("all", "--remove", code=2) + protect("status", code=1)


def test_the_settings_of_a_project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    protect("claude", "--scope", "project")
    assert (tmp_path / ".claude" / "settings.json").exists()
    assert not (home / ".claude").exists()


def test_hooks_that_someone_has_removed_are_seen(home: Path) -> None:
    protect("claude")
    settings = home / ".claude" / "settings.json"
    found = json.loads(settings.read_text())
    del found["hooks"]["PostToolBatch"]
    settings.write_text(json.dumps(found))
    assert "no hook for PostToolBatch" in protect("status", code=1)


def test_a_project_that_turns_hooks_off_is_seen(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protect("claude")
    monkeypatch.chdir(tmp_path)
    assert "disableAllHooks" not in protect("status")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    assert f"{tmp_path}/.claude/settings.json turns off all hooks" in protect("status", code=1).replace("\n  ", " ")


def stuck_session(up: Path, exit_code: int = 0) -> list[str]:
    """Return a command that stands for a CLI: it calls its hook with the same call and answer three times."""
    script = """
import json, subprocess, sys
for number in range(3):
    used = {"tool_name": "Bash", "tool_input": {"command": "cat x"}, "tool_use_id": str(number), "tool_response": "no"}
    event = {"session_id": "s9", "hook_event_name": "PostToolBatch", "cwd": "/", "tool_calls": [used]}
    command = json.load(open(sys.argv[1]))["hooks"]["PostToolBatch"][0]["hooks"][0]["command"]
    subprocess.run(command, shell=True, input=json.dumps(event), text=True, check=True)
sys.exit(int(sys.argv[2]))
"""
    return [sys.executable, "-c", script, str(up), str(exit_code)]


def test_an_unattended_session_that_was_stopped_has_an_exit_code_of_its_own(home: Path) -> None:
    protect("claude")
    command = stuck_session(home / ".claude" / "settings.json")
    assert "LOOP003: " in protect("run", "--", *command, code=75)


def test_observing_stops_nothing_and_says_what_it_would_have_stopped(home: Path) -> None:
    assert "observing" in protect("claude", "--observe")
    command = stuck_session(home / ".claude" / "settings.json", exit_code=3)
    found = protect("run", "--", *command, code=3)
    assert "stopReason" not in found
    assert "LOOP003: " in found
    rows: list[dict[str, Any]] = json.loads(protect("status", "--json"))["clis"]
    [session] = next(row for row in rows if row["cli"] == "claude")["sessions"]
    assert session["halt"]["code"] == "LOOP003"
    assert "in the last 7 days: 1 run, of which 1 would have been stopped" in protect("status")
    protect("claude", "--enforce")
    assert "observing" not in protect("status")


def test_a_session_that_no_hook_spoke_for_is_said(home: Path, up: Up) -> None:
    assert places().folder.is_relative_to(home)
    found = protect("run", "--", "true", code=0)
    assert "does not answer" in found
    protect("run", "--", "sh", "-c", "kill -9 $$", code=137)
    assert "cannot be run" in protect("run", "--", "/no/such/program", code=127)


@pytest.fixture
def organisation(run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return `protect` in this process, with the settings of an organisation in a folder of their own."""
    monkeypatch.setattr(hook_settings, "MANAGED_ROOT", tmp_path)
    machine = tmp_path / "etc" / "streamproc"
    monkeypatch.setattr("streamproc.live.places.MACHINE", (machine, machine))
    monkeypatch.setattr(hook_settings, "managed_command", lambda cli: managed_command(cli, open_to_all=True))
    return partial(run, "protect")


def managed_command(cli: str, *, open_to_all: bool) -> str:
    """Return the command of hooks for all users, wherever this checkout is."""
    assert open_to_all
    return hook_settings.hook_command(cli, Path(hook_settings.MANAGED_SOCKET[sys.platform == "darwin"]))


def test_an_organisation_protects_all_users(organisation: Run, home: Path, tmp_path: Path) -> None:
    settings = CLIS["claude"].settings("managed")
    assert "with the change" in organisation("claude", "--scope", "managed", "--dry-run")
    assert not list(tmp_path.iterdir())
    settings.parent.mkdir(parents=True)
    settings.write_text('{"cleanupPeriodDays": 20}')
    for name in CLIS:
        assert "added our hooks" in organisation(name, "--scope", "managed", "--observe")
    assert CLIS["codex"].settings("managed").stat().st_mode & 0o777 == 0o644
    subprocess.run(first_command(settings), shell=True, input=json.dumps(EVENT), text=True, check=True)
    assert places().socket.is_relative_to(home)  # of the user, whose folder was not there
    found = organisation("status")
    assert "streamproc up is running" in found
    assert "claude: protected, 1 sessions" in found
    assert "observing" in found
    assert "trusted" not in found
    assert "removed our hooks" in organisation("claude", "--scope", "managed", "--remove")
    assert settings.read_text() == '{"cleanupPeriodDays": 20}'


def test_hooks_of_a_user_and_of_all_count_once(organisation: Run, home: Path) -> None:
    organisation("claude", "--scope", "managed")
    organisation("claude")
    commands = [first_command(CLIS["claude"].settings(scope)) for scope in ("managed", "user")]
    assert len(set(commands)) == 2
    used = {"tool_name": "Bash", "tool_input": {"command": "cat x"}, "tool_response": "no"}
    said = {"session_id": "s1", "hook_event_name": "Stop", "last_assistant_message": "I will try again."}
    for event in (EVENT, said, said | {"hook_event_name": "PostToolBatch", "tool_calls": [used]}):
        for command in commands:
            subprocess.run(command, shell=True, input=json.dumps(event), text=True, check=True)
    [session] = next(row["sessions"] for row in status_rows() if row["cli"] == "claude")
    assert session["turns"] == 2


def status_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(protect("status", "--json", code=0))["clis"]
    return rows


def test_without_rights_it_says_who_has_them(organisation: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = CLIS["gemini"].settings("managed")
    settings.parent.mkdir(parents=True)
    settings.write_text("{}")
    monkeypatch.setattr(os, "access", lambda *_: False)  # as for a user who is not root
    assert "run it as root, or roll out what --dry-run shows" in " ".join(
        organisation("gemini", "--scope", "managed", code=2).split()
    )
    assert settings.read_text() == "{}"


def test_what_other_users_cannot_run_is_not_installed_for_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(sys, "executable", str(closed / "python"))
    (closed / "python").touch()
    with pytest.raises(InvalidSettings, match="closed to other users"):
        hook_settings.managed_command("claude")
