"""`streamproc doctor`: each check a line, each trouble a remedy, and the exit code to go with it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamproc.kafka import topics
from streamproc.settings import load_settings


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address where nothing listens, for as long as the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_a_broker_that_is_away_is_a_failure_with_a_remedy(run, nowhere: str) -> None:
    result = run("doctor", "--brokers", nowhere)

    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if line.startswith("fail"))
    assert nowhere in line
    assert "To mend it: start Kafka" in line
    assert "ok   Python 3." in result.stdout


def test_a_redis_that_is_away_is_only_a_warning(run, nowhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"STREAMPROC_BROKERS": "localhost:1"}, "ok   orders count that Kafka lets through"),
        ({"STREAMPROC_COMMAND_AUTH": "signed"}, "warn no order counts here"),
        ({"STREAMPROC_COMMAND_KEY": "ops:0123456789abcdef"}, "ok   orders count that are signed by ops"),
    ],
)
def test_it_is_told_which_orders_count(run, monkeypatch: pytest.MonkeyPatch, nowhere, settings, line) -> None:
    monkeypatch.setenv("STREAMPROC_BROKERS", nowhere)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    assert any(found.startswith(line) for found in run("doctor").stdout.splitlines())


def test_missing_topics_are_a_failure_and_applied_ones_are_not(run, brokers: str, topic_prefix: str) -> None:
    options = ("--brokers", brokers, "--topic-prefix", topic_prefix)

    before = run("doctor", *options)
    asyncio.run(topics.apply(load_settings(brokers=brokers, topic_prefix=topic_prefix)))
    after = run("doctor", *options)

    assert before.exit_code == 1
    assert "fail topics missing" in before.stdout
    assert "streamproc topics apply" in before.stdout
    assert after.exit_code == 0
    assert "topics" in next(line for line in after.stdout.splitlines() if "as they should be" in line)
