"""`streamproc notify` without Kafka: errors, and the test message."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import command, run
from tests.notify.receiver import Receiver

__all__ = ["run"]  # a fixture
pytestmark = pytest.mark.usefixtures("nobodys_settings")


def test_without_a_destination_the_error_says_how_to_name_one(run) -> None:
    result = run("notify")

    assert result.exit_code == 2
    assert "--to URL" in result.stderr


def test_every_destination_gets_a_test_message(run, receiver: Receiver) -> None:
    result = run("notify", "--test", "--to", receiver.json_url, "--to", receiver.ntfy_url)

    assert result.exit_code == 0
    assert result.stdout == "json #1 accepted the test message\nntfy #2 accepted the test message\n"
    assert len(receiver.posts) == 2


def test_a_destination_that_rejects_the_test_message_is_named(run, receiver: Receiver) -> None:
    receiver.statuses.append(403)

    result = run("notify", "--test", "--to", receiver.json_url)

    assert result.exit_code == 1
    assert "json #1 did not accept the test message: status 403" in result.stderr


def test_destinations_come_from_the_environment_and_stay_secret(
    run, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPROC_NOTIFY", f"{receiver.json_url}/hunter2 {receiver.json_url}/hunter3")

    result = run("notify", "--test")
    shown = run("config").stdout + run("config", "--json").stdout

    assert result.exit_code == 0
    assert [path for path, _ in receiver.posts] == ["/hook/hunter2", "/hook/hunter3"]
    assert "hunter" not in shown + result.output
    assert json.loads(run("config", "--json").stdout)["STREAMPROC_NOTIFY"]["source"] == "environment"


def test_the_notifier_waits_for_an_unreachable_broker(receiver: Receiver) -> None:
    process = command("notify", "--to", f"{receiver.json_url}/hunter2", "--brokers", "127.0.0.1:1")
    assert process.stderr is not None
    with process:
        line = process.stderr.readline()
        process.terminate()
        rest = process.stderr.read()

    assert "cannot read control events" in line
    assert "127.0.0.1:1" in line
    assert process.returncode == 0
    assert "hunter2" not in line + rest
