"""The benchmark of replays on a real Kafka: it takes the whole log, and the time is not checked."""

from __future__ import annotations

from benchmarks import replay_speed
from benchmarks.sizes import TINY
from streamproc.settings import load_settings


async def test_every_copy_of_the_log_is_replayed(brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=4, timestamp_type="CreateTime")

    [row] = await replay_speed.rows(TINY, settings)  # a defect if turns or decisions are missing

    assert row.figure > 0
