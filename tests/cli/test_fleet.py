"""Fleet commands on the command line, on a real Kafka."""

from __future__ import annotations

import asyncio
import re

import pytest

from streamproc.fleet.issuing import read_fleet
from streamproc.kafka import topics
from streamproc.model.wire import OperatorResume
from streamproc.settings import Settings, load_settings
from tests.client.records import turns_on

KEY = "ops:0123456789abcdef"


@pytest.fixture
def settings(brokers: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("STREAMPROC_BROKERS", brokers)
    monkeypatch.setenv("STREAMPROC_TOPIC_PREFIX", topic_prefix)
    settings = load_settings()
    asyncio.run(topics.apply(settings))
    return settings


def test_fleet_commands_are_issued_and_shown_with_issuer_time_and_reason(run, settings: Settings) -> None:
    stop = run("stop-all", "--by", "ada", "--why", "the deployment is broken", "--wait", 0)
    pause = run("pause-all", "--by", "bob", "--reason", "maintenance", "--wait", 0)
    kill = run("kill", "--user", "eve", "--by", "ada", "--wait", 0)

    assert (stop.exit_code, pause.exit_code, kill.exit_code) == (0, 0, 0)
    assert re.match(r"stop the fleet: sent: the broker has stored it \(\S+\)\n", stop.stdout)
    assert "previous command, since" in pause.stderr
    assert "stopped by ada" in pause.stderr
    fleet = asyncio.run(read_fleet(settings))
    assert (fleet.status, list(fleet.users)) == ("PAUSE", ["eve"])
    assert fleet.command is not None
    assert (fleet.command.by, fleet.command.why) == ("bob", "maintenance")

    assert run("clear", "--wait", 0).exit_code == run("clear", "--user", "eve", "--wait", 0).exit_code == 0
    fleet = asyncio.run(read_fleet(settings))
    assert (fleet.status, fleet.kills) == ("CLEAR", False)


def test_the_user_of_one_tenant_is_killed_and_a_kill_without_tenant_says_that_it_is_wider(
    run, settings: Settings
) -> None:
    everywhere = run("kill", "--user", "eve", "--by", "ada", "--wait", 0)
    member = run("kill", "--user", "eve", "--tenant", "acme", "--by", "ada", "--wait", 0)

    assert "the user named eve in every tenant" in everywhere.stderr
    assert "every tenant" not in member.stderr
    assert "kill user eve of tenant acme: sent: " in member.stdout
    fleet = asyncio.run(read_fleet(settings))
    assert (list(fleet.users), list(fleet.members)) == (["eve"], [("eve", "acme")])
    assert run("clear", "--user", "eve", "--tenant", "acme", "--wait", 0).exit_code == 0
    assert list(asyncio.run(read_fleet(settings)).members) == []
    assert run("kill", "--user", "eve", "--run", "r1").exit_code == 2


def test_a_session_is_killed_until_it_is_cleared(run, settings: Settings) -> None:
    killed = run("kill", "--session", "nightly", "--by", "ada", "--why", "it starts agents without end", "--wait", 0)
    fleet = asyncio.run(read_fleet(settings))

    assert "kill session nightly: sent: " in killed.stdout
    assert fleet.killing("", "", "nightly") == fleet.killing("eve", "acme", "nightly") == fleet.sessions["nightly"]
    assert fleet.killing("", "", "other") is None
    assert fleet.killing("", "", "") is None
    assert run("clear", "--session", "nightly", "--wait", 0).exit_code == 0
    assert not asyncio.run(read_fleet(settings)).kills
    assert run("kill", "--session", "nightly", "--user", "eve").exit_code == 2


def test_a_command_with_the_settings_of_a_shadow_is_refused(run, settings: Settings, monkeypatch) -> None:
    """Its workers would answer nothing, and the real ones act on it."""
    monkeypatch.setenv("STREAMPROC_SHADOW", "stricter")
    refused = run("pause-all", "--why", "in shadow", "--wait", 0)
    assert refused.exit_code == 2
    assert "STREAMPROC_SHADOW is stricter: a command acts on the real workers; unset it here" in refused.stderr
    monkeypatch.delenv("STREAMPROC_SHADOW")
    assert asyncio.run(read_fleet(settings)).latest("fleet") is None


def test_a_run_is_resumed_with_a_grant(run, settings: Settings) -> None:
    result = run(
        "resume",
        "r1",
        "--turns",
        10,
        "--cost",
        "0.50",
        "--grant",
        "maxRuntimeMs=60000",
        "--by",
        "ada",
        "--why",
        "again",
        "--force",
        "--wait",
        0,
    )

    assert result.exit_code == 0
    [event] = asyncio.run(turns_on(settings))
    assert isinstance(event, OperatorResume)
    assert (event.run_id, event.by, event.reason) == ("r1", "ada", "again")
    assert event.grant == {"maxSteps": 10, "maxCostUsd": 500_000, "maxRuntimeMs": 60_000}


@pytest.mark.parametrize(("command", "fault"), [
    (("kill",), "name a run, --session, --user, --tenant, or --user with --tenant"),
    (("kill", "--run", "r1", "--user", "eve"), "name one of a run, --user, --tenant"),
    (("clear", "--user", ""), "has no name"), (("resume", "r1", "--grant", "lots"), "BUDGET=AMOUNT"),
    (("resume", "r1", "--grant", "lots=1"), "grant.lots: no such budget"),
    (("resume", "r1", "--turns", "-1"), "additional turns: expected a positive number"),
])  # fmt: skip
def test_an_invalid_fleet_command_gets_an_error_with_a_remedy(run, settings: Settings, command, fault: str) -> None:
    result = run(*command)

    assert result.exit_code == 2
    assert fault in result.stderr


@pytest.mark.parametrize("command", [("stop-all",), ("resume", "r1")])
def test_a_command_that_every_worker_would_refuse_is_not_issued(run, command) -> None:
    result = run(*command, "--brokers", "kafka.example:9092")

    assert result.exit_code == 2
    assert "STREAMPROC_COMMAND_KEY is not set" in result.stderr


def test_secrets_are_not_shown(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_COMMAND_KEY", KEY)
    shown = run("config").output + run("config", "--json").output

    assert "STREAMPROC_COMMAND_KEY" in shown
    assert "0123456789abcdef" not in shown
