"""The content of a run never leaves its process: no record of any topic contains any of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition

from streamproc.client import HaltListener, TurnPublisher
from streamproc.errors import Halted
from streamproc.kafka import topics
from streamproc.kafka.reading import Extent, Record, TopicReader, open_consumer
from streamproc.settings import Settings
from tests.listening import listening
from tests.secured.broker import SecureBroker
from tests.waiting import until
from tests.worker.running import WorkerProcess

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

MARK = "Zx7MarkerThatNobodyElseWrites9q"
LONG = "nothing happened here, and continued for a while; " * 4  # longer than the excerpt of an error


def everything(path: Path) -> dict[str, Any]:
    """Return a turn with content in every field that can have some, and secrets in the excerpts of errors."""
    return {
        "output": f"I think that {MARK}",
        "structured_output": {MARK: [MARK]},
        "artifact": {"path": str(path)},
        "docs": f"# {MARK}",
        "query": f"what is {MARK}?",
        "tool_calls": [
            {"name": "bash", "args": {MARK: MARK}, "result": MARK},
            {"name": "bash", "args": MARK, "error": f"denied: Authorization: Bearer {MARK}"},
        ],
        "errors": [{"message": f"password={MARK} was refused. {LONG} {MARK}"}, f"{LONG} {MARK}"],
    }


async def records_of(settings: Settings) -> dict[str, list[Record]]:
    """Return all records of all topics."""
    found: dict[str, list[Record]] = {}
    for topic, count in (await topics.partitions(settings)).items():
        async with open_consumer(settings) as consumer:
            places = [TopicPartition(topic, number) for number in range(count)]
            ends = await consumer.end_offsets(places)
            reader = TopicReader(consumer, topic, {place.partition: Extent(0, ends[place]) for place in places})
            found[topic] = [record async for batch in reader.batches() for record in batch]
    return found


def bytes_of(record: Record) -> bytes:
    parts = [record.key, record.value, *(part for name, value in record.headers for part in (name.encode(), value))]
    return b"\n".join(filter(None, parts))


async def test_a_run_is_halted_over_mutual_tls_and_no_content_is_on_any_topic(
    secured: SecureBroker,
    topic_prefix: str,
    tmp_path: Path,
    start_worker: Callable[[Settings], WorkerProcess],
) -> None:
    settings = secured.by_certificate("admin", topic_prefix=topic_prefix)
    await topics.apply(settings)
    worker = start_worker(settings)
    artifact = tmp_path / "patch.diff"
    artifact.write_text(f"+ {MARK}\n")
    turn = everything(artifact)

    async with TurnPublisher(settings=settings) as turns, HaltListener(settings=settings) as halts:
        await turns.run_started(run_id="r1", user="u1", tenant="t1")
        await turns.event("task.created", run_id="r1", task_id="T1")
        reason = f"secret: {MARK}. {LONG} {MARK}"
        await turns.event("task.verdict", run_id="r1", task_id="T1", verdict="REJECTED", reason=reason)
        with pytest.raises(Halted):
            async with halts.guard("r1"):
                await until(lambda: _again(turns, turn), 60, "the halt", every_s=0.05)
    assert listening(worker.pid) == set()
    assert worker.end() == 0
    found = await records_of(settings)

    for topic in ("turns", "control", "runs"):
        assert found[settings.topic(topic)]
    assert found[topics.changelog_topic(settings)]
    assert not [topic for topic, records in found.items() if any(MARK.encode() in bytes_of(one) for one in records)]
    assert MARK not in worker.text
    assert not [secret for secret in secured.secrets if secret in worker.text]


async def test_content_is_on_the_turns_topic_with_include_content(secured: SecureBroker, topic_prefix: str) -> None:
    """Proves that the other test would find content."""
    settings = secured.by_certificate("admin", topic_prefix=topic_prefix)
    await topics.apply(settings)

    async with TurnPublisher(settings=settings, include_content=True) as turns:
        await turns.turn(run_id="r1", node="coder", output=f"I think that {MARK}")

    [record] = (await records_of(settings))[settings.topic("turns")]
    assert MARK.encode() in bytes_of(record)


async def _again(turns: TurnPublisher, turn: dict[str, Any]) -> None:
    await turns.turn(run_id="r1", node="coder", **turn)
    await turns.flush()
