"""`streamproc doctor`: a line for each check, a remedy for each problem, and a matching exit code."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from aiokafka.admin import NewPartitions

from streamproc.cli import checks
from streamproc.errors import InvalidSettings
from streamproc.fleet import worker_listener
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.record_signing import RecordSigner
from streamproc.fleet.watching import Watching, watching_of
from streamproc.fleet.workers import Workers
from streamproc.kafka import topics
from streamproc.settings import Settings, load_settings
from streamproc.worker.readiness import wait_until_ready
from tests.fleet.heartbeats import as_record, heartbeat
from tests.waiting import until


def test_an_unreachable_broker_is_a_failure_with_a_remedy(run, nowhere: str) -> None:
    result = run("doctor", "--brokers", nowhere)

    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if line.startswith("fail"))
    assert nowhere in line
    assert "To fix it: start Kafka" in line
    assert "ok   Python 3." in result.stdout


def test_where_nothing_can_be_installed_no_remedy_installs_anything(run, nowhere, monkeypatch) -> None:
    """As in the image: its files belong to root, it has neither pip nor make, and the demo is not part of it."""
    monkeypatch.setattr(sys, "prefix", "/nonexistent")
    monkeypatch.setattr(checks, "version", missing)

    lines = run("doctor", "--brokers", nowhere).stdout.splitlines()

    assert "ok   no embedded broker, which only the demo needs" in lines
    [line] = [line for line in lines if line.startswith("fail missing packages: ")]
    assert line.endswith("To fix it: build this image again: nothing can be installed in /nonexistent")
    assert not [line for line in lines for word in ("pip install", "make ", "`streamproc demo`") if word in line]


def missing(name: str) -> str:
    raise PackageNotFoundError(name)


def test_an_unreachable_redis_is_only_a_warning(run, nowhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_REDIS", f"redis://:secret@{nowhere}/0")

    line = next(line for line in run("doctor", "--brokers", nowhere).stdout.splitlines() if "Redis" in line)

    assert line.startswith("warn")
    assert "secret" not in line


def test_a_policy_with_mistakes_is_a_failure(run, nowhere: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("detectors: {LOOP999: true}\n")

    result = run("doctor", "--brokers", nowhere, "--policy", path)

    assert result.exit_code == 1
    assert any(line.startswith("fail policy") and "LOOP999" in line for line in result.stdout.splitlines())


@pytest.mark.parametrize(("settings", "line"), [
    ({"STREAMPROC_BROKERS": "localhost:1"}, "ok   fleet commands are accepted unsigned"),
    ({"STREAMPROC_COMMAND_AUTH": "signed"}, "warn fleet commands are refused"),
    ({"STREAMPROC_COMMAND_KEY": "ops:0123456789abcdef"}, "ok   fleet commands are accepted if signed by ops"),
    ({}, "ok   decisions and statuses are not signed: every client that can write"),
    ({"STREAMPROC_BROKERS": "kafka.invalid:1"}, "warn decisions and statuses are not signed"),
    ({"STREAMPROC_CONTROL_KEY": "w:0123456789abcdef"}, "ok   decisions and statuses are believed if signed by w"),
    ({"STREAMPROC_CONTROL_AUTH": "signed"}, "fail STREAMPROC_CONTROL_AUTH is signed"),
])  # fmt: skip
def test_the_report_says_which_commands_and_decisions_are_accepted(
    run, monkeypatch: pytest.MonkeyPatch, nowhere, settings, line
) -> None:
    monkeypatch.setenv("STREAMPROC_BROKERS", nowhere)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    assert any(found.startswith(line) for found in run("doctor").stdout.splitlines())


def test_missing_topics_are_a_failure_until_they_are_created(run, brokers: str, topic_prefix: str) -> None:
    options = ("--brokers", brokers, "--topic-prefix", topic_prefix)

    before = run("doctor", *options)
    asyncio.run(topics.apply(load_settings(brokers=brokers, topic_prefix=topic_prefix)))
    after = run("doctor", *options)

    assert before.exit_code == 1
    assert "fail missing topics" in before.stdout
    assert "streamproc topics apply" in before.stdout
    assert after.exit_code == 0
    assert "topics" in next(line for line in after.stdout.splitlines() if "right configuration" in line)


def test_partitions_that_were_added_need_a_new_prefix(run, brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)

    async def added() -> None:
        await topics.apply(settings)
        async with topics.administering(settings) as admin:
            await admin.create_partitions({settings.topic("turns"): NewPartitions(settings.partitions + 1)})

        async def known() -> bool:
            return (await topics.partitions(settings))[settings.topic("turns")] > settings.partitions

        await until(known, 30, "the broker to know its new partition")

    asyncio.run(added())
    seen = run("doctor", "--brokers", brokers, "--topic-prefix", topic_prefix).stdout
    assert "create topics under a new prefix: runs have other homes" in " ".join(seen.split())
    with pytest.raises(
        InvalidSettings, match="partitions were added, so runs have other homes: create topics under a new"
    ):
        asyncio.run(wait_until_ready(settings, 5))


@pytest.mark.parametrize(("hashes", "said"), [(("aa11", "aa11"), False), (("aa11", "bb22"), True)])
def test_workers_that_decide_by_different_policies_are_named(
    monkeypatch: pytest.MonkeyPatch, hashes: tuple[str, str], *, said: bool
) -> None:
    workers = Workers(RecordSigner(Keyring(), "streamproc", required=False), "")
    workers.contact(1_000.0)
    for number, policy_hash in enumerate(hashes):
        beat = heartbeat(f"w{number}", owned=(2 * number, 2 * number + 1), policy="night", policy_hash=policy_hash)
        workers.apply(as_record(beat), 1_000.0)

    async def listen(_: Settings) -> Watching:
        return watching_of(workers, 1_000.0, lag_warn_s=30)

    monkeypatch.setattr(worker_listener, "listen_for_workers", listen)

    async def lines() -> list[str]:
        return [check.what async for check in checks._workers(load_settings())]

    different = [line for line in asyncio.run(lines()) if "different policies" in line]
    assert different == ["workers decide by different policies: night aa11 (w0), night bb22 (w1)"] * said
