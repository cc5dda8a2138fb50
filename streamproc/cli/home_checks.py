"""What ``streamproc doctor`` says about homes: whether publishers choose partitions as workers expect, and which halts
lie where only a resume that names the partition reaches them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from streamproc.cli.terminal import clean
from streamproc.errors import StreamprocError, plural
from streamproc.model.printed import DoctorCheck

if TYPE_CHECKING:
    from streamproc.settings import Settings

RECORDS_MAX: Final = 500  # of each partition, the latest
STATUSES_TIMEOUT_S: Final = 15.0
SHOWN: Final = 5  # halts that are named


async def homes(settings: Settings) -> AsyncIterator[DoctorCheck]:
    """Compare the latest records of the turns topic, and the statuses of halted runs, with the rule."""
    from streamproc.kafka.partitioning import ANY

    if settings.partitioner == ANY:
        what = (
            "STREAMPROC_PARTITIONER is any: a run may live in several partitions, and each guarantee about it is kept"
        )
        yield DoctorCheck("warn", f"{what} in each of them only", "name the partitioner of your publishers")
        return
    try:
        async with asyncio.timeout(STATUSES_TIMEOUT_S):
            yield await _records(settings)
            async for result in _halts(settings):
                yield result
    except (StreamprocError, TimeoutError) as problem:
        why = str(problem) or f"it takes longer than {STATUSES_TIMEOUT_S:g} s"
        yield DoctorCheck("warn", f"homes of runs: not compared with the log: {why}", "")


async def _records(settings: Settings) -> DoctorCheck:
    from streamproc.kafka.partitioning import EVERYWHERE, find_strays
    from streamproc.kafka.reading import open_topic

    found: list[tuple[bytes, int]] = []
    async with open_topic(settings, "turns") as reader:
        home, reader.home = reader.home, EVERYWHERE
        reader.extents = {
            number: extent._replace(begin=max(extent.begin, extent.end - RECORDS_MAX))
            for number, extent in reader.extents.items()
        }
        async for batch in reader.batches():
            found += [(record.key, record.partition) for record in batch if record.key is not None]
    strays = find_strays(home, found)
    if not strays.strays:
        records = plural(len(found), "latest record")
        return DoctorCheck("ok", f"partitioner {home.partitioner}: the {records} of {reader.topic} fit")
    what = f"{strays.strays} of the {len(found)} latest records of {reader.topic} are not at home and are refused"
    explained = strays.fitting or strays.strays_fit or strays.earlier_count
    return DoctorCheck("fail" if explained else "warn", what, strays.cause(home))


async def _halts(settings: Settings) -> AsyncIterator[DoctorCheck]:
    from streamproc.fleet.standing_halts import halts_outside_home

    found = await halts_outside_home(settings)
    for one in found[:SHOWN]:
        what = f"run {clean(one.run_id)} is halted in partition {one.partition}, which is not its home"
        todo = f"streamproc resume {clean(one.run_id)} --partition {one.partition} --why REASON"
        yield DoctorCheck("warn", f"{what}: guards obey it, and only this lifts it", todo)
    if len(found) > SHOWN:
        yield DoctorCheck(
            "warn", f"{len(found) - SHOWN} more runs are halted outside of their home", "resume the first ones"
        )
