"""`streamproc doctor` fails on every combination of keys that leaves a way to release a halted run."""

from __future__ import annotations

import itertools
import socket
from typing import Any

import pytest
from msgspec.structs import astuple
from pydantic import SecretStr

from streamproc.cli.checks import keys_together
from streamproc.fleet.keyring import new_keys
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.signing import command_signer
from streamproc.settings import Settings

COMMANDS, CONTROL = "ops:0123456789abcdef", "workers:fedcba9876543210"


def found(**given: Any) -> tuple[str, str, str]:
    """The status, the text and the remedy of the only result; empty ones if there is none."""
    results = list(keys_together(Settings(**given)))
    assert len(results) <= 1
    return astuple(results[0]) if results else ("", "", "")


ALL = list(
    itertools.product(
        ("", COMMANDS), ("auto", "signed", "channel"), ("", CONTROL), ("auto", "signed", "off"),
        ("localhost:9092", "kafka.example.com:9092"),
    )
)  # fmt: skip


@pytest.mark.parametrize(("key", "auth", "control", "control_auth", "brokers"), ALL)
def test_a_fleet_with_a_key_is_protected_on_both_ways_or_fails(
    key: str, auth: str, control: str, control_auth: str, brokers: str
) -> None:
    settings = Settings(
        command_key=SecretStr(key), command_auth=auth, control_key=SecretStr(control), control_auth=control_auth,
        brokers=brokers,
    )  # type: ignore[arg-type]  # fmt: skip
    results = list(keys_together(settings))
    if not key and not control:
        assert results == []  # other lines of the report say what that means
        return
    [result] = results
    protected = bool(key and control) and auth != "channel" and control_auth != "off"
    assert (result.status == "ok") == protected
    assert protected or result.remedy
    if protected:
        assert command_signer(settings).required
        assert record_signer(settings).required


@pytest.mark.parametrize(
    ("settings", "what", "remedy"),
    [
        ({"command_key": COMMANDS}, "commands are signed and decisions are not", "set STREAMPROC_CONTROL_KEY"),
        ({"control_key": CONTROL}, "decisions are signed and commands are not", "set STREAMPROC_COMMAND_KEY"),
        ({"control_key": CONTROL, "command_auth": "channel"}, "commands are not", "set STREAMPROC_COMMAND_KEY"),
        ({"control_key": CONTROL, "command_auth": "signed"}, "no one can stop", "set STREAMPROC_COMMAND_KEY"),
        (
            {"command_key": COMMANDS, "control_key": CONTROL, "command_auth": "channel"},
            "commands are not: every client that can write to streamproc.turns", "unset STREAMPROC_COMMAND_AUTH",
        ),
        (
            {"command_key": COMMANDS, "control_key": CONTROL, "control_auth": "off"},
            "streamproc.control or streamproc.runs", "unset STREAMPROC_CONTROL_AUTH",
        ),
        ({"command_key": COMMANDS, "command_auth": "channel"}, "protects nothing", "STREAMPROC_COMMAND_AUTH"),
        ({"control_key": CONTROL, "control_auth": "off"}, "protects nothing", "STREAMPROC_CONTROL_AUTH"),
    ],
)  # fmt: skip
def test_a_failure_says_what_to_set(settings: dict[str, str], what: str, remedy: str) -> None:
    status, text, todo = found(**settings)
    assert status == "fail"
    assert what in text
    assert todo.startswith(remedy) or remedy in todo
    assert not [secret for secret in (COMMANDS, CONTROL) if secret.partition(":")[2] in text + todo]


def test_the_same_key_for_both_fails_in_whatever_form() -> None:
    private, public = (key.line() for key in new_keys("ops", ed25519=True))
    renamed = public.replace("ops:", "workers:")
    for commands, control in ((private, renamed), (public, private), (COMMANDS, COMMANDS.replace("ops", "w"))):
        status, text, _ = found(command_key=commands, control_key=control)
        assert (status, "the same key" in text) == ("fail", True)
    other = new_keys("workers", ed25519=True)[1].line()
    assert found(command_key=f"{private},{COMMANDS.replace('ops', 'bob')}", control_key=other)[0] == "ok"


def test_doctor_fails_with_one_key_only(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("STREAMPROC_BROKERS", f"127.0.0.1:{bound.getsockname()[1]}")
        monkeypatch.setenv("STREAMPROC_CONTROL_KEY", CONTROL)
        result = run("doctor")
    assert result.exit_code == 1
    [line] = [line for line in result.stdout.splitlines() if "commands are not" in line]
    assert line.startswith("fail decisions are signed")
    assert "To fix it: set STREAMPROC_COMMAND_KEY" in line
