"""The halt that stands for a run: what a resume names, and what is left of runs outside of their home partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import msgspec

from streamproc.fleet.record_signing import RecordSigner, record_signer
from streamproc.kafka.partitioning import home_of
from streamproc.kafka.reading import Record, open_topic, partition_count
from streamproc.settings import Settings

NO_HALT: Final = "none"
"""What a resume names whose sender knows of no halt."""
STATUS_DELAY_S: Final = 0.5


class StandingHalt(NamedTuple):
    """A run, as the last status of a partition says. `halt` is the id of the decision that halts it; else empty."""

    run_id: str
    partition: int
    halt: str


class _Decision(msgspec.Struct):
    id: str = ""


class _Status(msgspec.Struct):
    run_id: str
    status: str
    halt: _Decision | None = None


_read: Final = msgspec.json.Decoder(_Status).decode


async def halt_to_lift(settings: Settings, run_id: str, partition: int | None = None) -> str:
    """Return the id of the decision that halts a run, in its home or another partition, for a resume that lifts it.

    A status follows its decision within milliseconds, so a run that is not halted is looked at once more. It gets
    `NO_HALT`: workers answer such a resume, and refuse it if the run is halted by then. Raises `Unavailable`.
    """
    if partition is None:
        partition = await home_partition(settings, run_id)
    found = await _halt_in(settings, run_id, partition)
    if found == NO_HALT:
        await asyncio.sleep(STATUS_DELAY_S)
        found = await _halt_in(settings, run_id, partition)
    return found


async def _halt_in(settings: Settings, run_id: str, partition: int) -> str:
    found = [one async for one in _statuses(settings, only=partition) if one.run_id == run_id]
    return (found[-1].halt if found else "") or NO_HALT


async def home_partition(settings: Settings, run_id: str) -> int:
    """Return the partition of the turns topic in which the events of a run belong. Raises `Unavailable`."""
    key = run_id.encode("utf-8", "surrogatepass")
    return home_of(settings, await partition_count(settings, "turns")).of(key)


async def halts_outside_home(settings: Settings) -> list[StandingHalt]:
    """Return the runs that are halted in a partition other than their home, where nothing can reach them but a resume
    that names the partition. Raises `Unavailable`."""
    home = home_of(settings, await partition_count(settings, "turns"))
    found: dict[tuple[str, int], StandingHalt] = {}
    async for one in _statuses(settings):
        if home.holds(one.run_id.encode("utf-8", "surrogatepass"), one.partition):
            continue
        if one.halt:
            found[one.run_id, one.partition] = one
        else:
            found.pop((one.run_id, one.partition), None)
    return list(found.values())


async def _statuses(settings: Settings, only: int | None = None) -> AsyncIterator[StandingHalt]:
    """Yield what each status on `runs` says, in log order; `halt` is empty for a run that is not halted, and for a
    tombstone."""
    signer = record_signer(settings)
    async with open_topic(settings, "runs") as reader:
        if only is not None:
            own = only % len(reader.extents)
            reader.extents = {own: reader.extents[own]}
        async for batch in reader.batches():
            for record in batch:
                found = _standing(signer, record)
                if found is not None:
                    yield found


def _standing(signer: RecordSigner, record: Record) -> StandingHalt | None:
    """Return what a record says; None if it is no status that a worker has signed."""
    key = (record.key or b"").decode("utf-8", "surrogatepass")
    if record.value is None:
        return StandingHalt(key, record.partition, "") if signer.accepts("runs", record) else None
    try:
        status = _read(record.value)
    except (ValueError, RecursionError):
        return None
    if status.run_id != key or not signer.accepts("runs", record, key):
        return None
    halted = status.status == "halted" or (status.status == "finished" and status.halt is not None)
    return StandingHalt(key, record.partition, status.halt.id if halted and status.halt is not None else "")
