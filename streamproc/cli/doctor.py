"""``streamproc doctor``: problems of this installation, and how to fix them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import typer

from streamproc.cli.options import Brokers, Json, Policy, Quiet, TopicPrefix
from streamproc.cli.terminal import clean, examples, json_row, paint, say
from streamproc.errors import StreamprocError, plural

if TYPE_CHECKING:
    from streamproc.model.printed import DoctorCheck
    from streamproc.settings import Settings

app = typer.Typer()

STATUS_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
STATUS_WIDTH = 5  # columns

RECORDS_MAX: Final = 500  # of each partition, the latest
STATUSES_TIMEOUT_S: Final = 15.0
SHOWN: Final = 5  # halts that are named


@app.command(epilog=examples("streamproc doctor", "streamproc doctor --brokers kafka-1:9092"))
def doctor(
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
    policy: Policy = None,
    as_json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Check Python, core, packages, policy, keys, broker, topics, workers and Redis, and name a fix for every problem.

    Exit 0: no failure; 1: at least one.
    """
    from streamproc.cli import checks
    from streamproc.cli.checks import keys_together
    from streamproc.cli.doctor import homes
    from streamproc.model.addresses import need_kafka
    from streamproc.settings import load_settings

    misspelt = [*checks.variables()]  # before the settings are loaded, which reports them as well
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, policy=policy)
    need_kafka(settings.brokers)
    found = [
        checks.python_version(),
        checks.core(),
        *checks.packages(),
        checks.demo_broker(),
        *misspelt,
        *checks.policy(settings),
        checks.fleet_commands(settings),
        checks.control_records(settings),
        *keys_together(settings),
    ]
    for result in found:
        _show(result, as_json=as_json)

    async def check_services() -> None:
        async for result in checks.services(settings):
            found.append(result)
            _show(result, as_json=as_json)
        if not any(result.status == "fail" for result in found):
            async for result in homes(settings):
                found.append(result)
                _show(result, as_json=as_json)

    asyncio.run(check_services())
    if any(result.status == "fail" for result in found):
        raise typer.Exit(1)


def _show(result: DoctorCheck, *, as_json: bool) -> None:
    if as_json:
        json_row(result)
        return
    remedy = f". To fix it: {clean(result.remedy)}" if result.remedy else ""
    status = paint(f"{result.status:<{STATUS_WIDTH}}", STATUS_COLOURS[result.status])
    say(f"{status}{clean(result.what)}{remedy}", hang=STATUS_WIDTH)


async def homes(settings: Settings) -> AsyncIterator[DoctorCheck]:
    """Compare the latest records of the turns topic, and the statuses of halted runs, with the rule."""
    from streamproc.kafka.partitioning import ANY
    from streamproc.model.printed import DoctorCheck

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
    from streamproc.model.printed import DoctorCheck

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
    from streamproc.model.printed import DoctorCheck

    found = await halts_outside_home(settings)
    for one in found[:SHOWN]:
        what = f"run {clean(one.run_id)} is halted in partition {one.partition}, which is not its home"
        todo = f"streamproc resume {clean(one.run_id)} --partition {one.partition} --why REASON"
        yield DoctorCheck("warn", f"{what}: guards obey it, and only this lifts it", todo)
    if len(found) > SHOWN:
        yield DoctorCheck(
            "warn", f"{len(found) - SHOWN} more runs are halted outside of their home", "resume the first ones"
        )
