"""Errors of the commands when no broker answers, when one stops, and for invalid options."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from streamproc.cli import publish
from streamproc.kafka.reading import open_topic
from streamproc.settings import load_settings
from tests.cli.conftest import jsonl, stuck
from tests.waiting import until


@pytest.mark.parametrize(
    "arguments", [("publish", "-"), ("replay", "--all"), ("topics", "apply"), ("topics", "check"), ("watch",)]
)
def test_an_unreachable_broker_is_one_error_with_its_address_and_a_remedy(run, nowhere: str, arguments) -> None:
    result = run(*arguments, "--brokers", nowhere, input=jsonl(stuck()))

    assert result.exit_code == 2
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert nowhere in errors[0]
    assert "STREAMPROC_BROKERS" in errors[0]


@pytest.mark.parametrize(("arguments", "message"), [
    (("replay",), "choose what to replay: files, --run ID"),
    (("replay", "--since", "yesterday"), "--since 'yesterday': not a time. Give an age such as"),
    (("replay", "--until", "9" * 5_000), "not a time. Give an age"),
    (("replay", "--until", "7"), "--until '7': outside the years 2000 to 2100. Give an age"),
    (("watch", "--since", "yesterday"), "--since 'yesterday': not a time. Give an age such as"),
    (("publish", "-", "--speed", "fast"), "speed 'fast': use max"), (("worker", "--policy", "nope"), "nope"),
    (("replay", "--all", "--policy", "nope"), "nope"),
])  # fmt: skip
def test_an_invalid_option_is_reported_before_anything_is_tried(run, nowhere: str, arguments, message: str) -> None:
    result = run(*arguments, "--brokers", nowhere)

    assert result.exit_code == 2
    assert message in result.stderr


def test_the_stock_path_of_the_worker_is_deprecated(run, nowhere: str) -> None:
    result = run("worker", "--path", "stock", "--policy", "nope", "--brokers", nowhere)

    assert result.exit_code == 2
    assert "--path stock is deprecated and has no effect" in result.stderr


@pytest.mark.long
async def test_publishing_fails_with_the_number_of_lost_events_when_the_broker_stops(
    own_broker: Any, run, tmp_path: Path, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "BROKER_WAIT_S", 0.5)
    address = f"127.0.0.1:{own_broker.start().port}"
    settings = load_settings(brokers=address, topic_prefix=topic_prefix)
    where = ("--brokers", address, "--topic-prefix", topic_prefix)
    assert (await asyncio.to_thread(run, "topics", "apply", *where)).exit_code == 0
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl(stuck(turns=400)))
    results: list[Any] = []
    sending = threading.Thread(target=lambda: results.append(run("publish", path, "--speed", "100", *where)))
    sending.start()

    async def some_arrived() -> bool:
        async with open_topic(settings, "turns") as reader:
            return reader.records_total > 0

    await until(some_arrived, 60, "the first events to arrive")
    own_broker.kill()
    await asyncio.to_thread(sending.join)

    assert results[0].exit_code == 1
    assert "400 events" in results[0].stdout
    assert "were not delivered to" in results[0].stderr
