"""What the workers have published: decisions and statuses, without those that no worker has signed although it must."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from streamproc.core.decision import Decision
from streamproc.errors import AccessDenied
from streamproc.fleet.record_signing import read_decision, read_status, record_signer
from streamproc.kafka import topics
from streamproc.kafka.partitioning import ANY, home_of
from streamproc.kafka.reading import TopicReader, open_topic, partition_count
from streamproc.model.controls import RunStatus
from streamproc.settings import Settings

T = TypeVar("T", Decision, RunStatus)

NO_PARTITION = -1  # of a status from a version that did not name it


async def read_published(
    settings: Settings,
    topic: str,
    read: Callable[[bytes | None], T | None],
    take: Callable[[T], None],
    advance: Callable[[TopicReader, int], None] = lambda _reader, _records: None,
    *,
    run_id: str | None = None,
    forget: Callable[[bytes, int], object] = lambda _key, _partition: None,
) -> int:
    """Read a topic to its end, and take what it holds one by one; return the number of records that were skipped.

    With a `run_id`, only the home of that run is read, and only what is about it is taken. `forget` gets the keys and
    partitions of tombstones. Raises `Unavailable`.
    """
    signer, skipped = record_signer(settings), 0
    key = None if run_id is None else run_id.encode("utf-8", "surrogateescape")
    async with open_topic(settings, topic) as reader:
        if key is not None and settings.partitioner != ANY:
            own = await _partition_of(settings, key, len(reader.extents))
            reader.extents = {own: reader.extents[own]}
        async for batch in reader.batches():
            for record in batch:
                if key is not None and record.key != key:
                    continue
                if record.value is None:
                    if record.key is not None and signer.accepts(topic, record):
                        forget(record.key, record.partition)
                    continue
                found = read(record.value)
                if found is not None and signer.accepts(topic, record, found.run_id):
                    take(found)
                else:
                    skipped += 1
            advance(reader, len(batch))
    return skipped


class LatestStatuses:
    """The latest status of each run, from each partition of the turns topic that it follows from."""

    def __init__(self) -> None:
        self._said: dict[str, dict[int, RunStatus]] = {}

    def take(self, status: RunStatus) -> None:
        """Use a status."""
        self._said.setdefault(status.run_id, {})[status.partition] = status

    def take_current(self, status: RunStatus) -> None:
        """Use a current status: it says more of a run that works, and never whether it does."""
        said = self._said.get(status.run_id, {})
        known = said.get(status.partition)
        if known is not None and known.status == status.status == "running" and status.offset > known.offset:
            said[status.partition] = status

    def forget(self, key: bytes, partition: int) -> None:
        """Use a tombstone. Statuses of versions that did not name their partition follow from the same one."""
        said = self._said.get(key.decode("utf-8", "surrogateescape"), {})
        for place in (partition, NO_PARTITION):
            said.pop(place, None)

    def in_force(self) -> dict[str, RunStatus]:
        """Return one status of each run: it is halted while any partition says so, else the latest word counts."""
        return {
            run_id: max(said.values(), key=lambda status: (status.status == "halted", status.at or ""))
            for run_id, said in self._said.items()
            if said
        }


async def statuses(settings: Settings, *, current: bool = False) -> dict[str, RunStatus]:
    """Return the latest status of each run, but not of those that only commands name. Raises `Unavailable`.

    With `current`, those of working runs are a few seconds old at most, where workers publish that and it may be read.
    """
    latest = await _latest(settings, None, current=current)
    return {run_id: status for run_id, status in latest.in_force().items() if not status.unpublished}


async def status_of_run(settings: Settings, run_id: str) -> RunStatus | None:
    """Return the current status of a run; None if the workers know none, or none any more. Raises `Unavailable`."""
    return (await _latest(settings, run_id, current=True)).in_force().get(run_id)


async def _latest(settings: Settings, run_id: str | None, *, current: bool) -> LatestStatuses:
    latest = LatestStatuses()
    await read_published(settings, "runs", read_status, latest.take, run_id=run_id, forget=latest.forget)
    if current and settings.topic("activity") in await topics.partitions(settings):
        with contextlib.suppress(AccessDenied):  # what it says is only newer
            await read_published(settings, "activity", read_status, latest.take_current, run_id=run_id)
    return latest


async def decisions_of_run(settings: Settings, run_id: str) -> list[Decision]:
    """Return the decisions about a run that the control topic holds, each once. Raises `Unavailable`."""
    found: dict[str, Decision] = {}

    def take(decision: Decision) -> None:
        found.setdefault(decision.id, decision)

    await read_published(settings, "control", read_decision, take, run_id=run_id)
    return list(found.values())


async def _partition_of(settings: Settings, key: bytes, count: int) -> int:
    """Return the partition that holds what is about a run, of a topic with `count` partitions."""
    try:
        turns = await partition_count(settings, "turns")
    except AccessDenied:  # a role that has nothing to do with turns: all topics are made with the same number
        turns = count
    return home_of(settings, turns).of(key) % count
