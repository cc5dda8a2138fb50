"""What a shell completes."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from streamproc.client import TurnPublisher
from streamproc.kafka import topics
from streamproc.settings import Settings, load_settings
from tests.cli.conftest import command
from tests.programs import clean_environment
from tests.waiting import until


def completed(words: str, **environment: str) -> list[str]:
    """Return what bash is offered for the last word."""
    asked = {"COMP_WORDS": f"streamproc {words}", "COMP_CWORD": str(len(words.split(" ")))}
    asked["_STREAMPROC_COMPLETE"] = "complete_bash"
    found = subprocess.run(
        [sys.executable, "-m", "streamproc"], env=clean_environment() | asked | environment, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    assert found.stderr == ""
    return found.stdout.split()


@pytest.mark.parametrize(("words", "offered"), [
    ("explain LOOP00", [f"LOOP00{number}" for number in range(1, 10)]), ("worker --policy loop", ["loop-safety"]),
    ("policy show del", ["deliberation"]), ("ackn", ["acknowledge"]),
])  # fmt: skip
def test_codes_and_presets_are_completed_without_a_broker(words: str, offered: list[str]) -> None:
    assert completed(words) == offered


def test_without_a_broker_no_run_is_offered_and_nothing_fails() -> None:
    assert completed("status n", STREAMPROC_BROKERS="127.0.0.1:1") == []


async def test_runs_topics_and_prefixes_come_from_kafka(brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    await topics.apply(settings)
    where = {"STREAMPROC_BROKERS": brokers, "STREAMPROC_TOPIC_PREFIX": topic_prefix}
    worker = command("worker", **where)
    try:
        await _publish(settings)

        async def offered() -> bool:
            return await asyncio.to_thread(completed, "status night", **where) == ["nightly-1", "nightly-2"]

        await until(offered, 90, "both runs to be offered", every_s=0.5)
        assert await asyncio.to_thread(completed, "kill nightly-2", **where) == ["nightly-2"]
        by_option = f"status --brokers {brokers} --topic-prefix {topic_prefix} nightly-1"
        assert await asyncio.to_thread(completed, by_option) == ["nightly-1"]
        assert await asyncio.to_thread(completed, f"runs --topic-prefix {topic_prefix}", **where) == [topic_prefix]
        assert f"{topic_prefix}.turns" in await asyncio.to_thread(completed, f"otel --topic {topic_prefix}", **where)
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


async def _publish(settings: Settings) -> None:
    async with TurnPublisher(settings=settings) as turns:
        for run_id in ("nightly-1", "nightly-2", "other"):
            await turns.turn(run_id=run_id, node="coder", output=f"work of {run_id}")
