"""``streamproc publish``: send raw turns from files to the turns topic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from streamproc.cli.inputs import Files, Lenient, Strict, opened
from streamproc.cli.options import Brokers, Json, Quiet, TopicPrefix
from streamproc.cli.terminal import complain, examples, json_row, line, note, quiet_kafka, watched

if TYPE_CHECKING:
    from streamproc.client import TurnPublisher
    from streamproc.fingerprint import HashKey
    from streamproc.live.exporting import ExportedLog
    from streamproc.model.printed import PublishedCounts
    from streamproc.replay.pacing import SendingPace
    from streamproc.replay.source import Source
    from streamproc.settings import Settings

app = typer.Typer()

BROKER_WAIT_S = 60.0  # a file can wait: how long an unreachable broker may take before events count as lost
PROGRESS_S = 10.0  # between two notes where no terminal shows the progress bar
SLEEP_S_MIN = 0.005  # timers are not finer, so shorter waits are added up

Speed = Annotated[
    str, typer.Option(help="max; events per second (200); realtime; or a multiple of the recorded speed (10x).")
]
WithContent = Annotated[bool, typer.Option("--include-content", help="Send the texts as well as their fingerprints.")]


@app.command(
    epilog=examples(
        "streamproc publish trajectories.jsonl.gz",
        "streamproc publish trajectories.jsonl.gz --speed 10x --brokers kafka-1:9092",
    )
)
def publish(
    files: Files,
    speed: Speed = "max",
    lenient: Lenient = False,
    strict: Strict = False,
    include_content: WithContent = False,
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Send recorded runs to the turns topic. Exit 0: all delivered; 1: some lost; 2: unusable input."""
    from streamproc.replay.pacing import read_pace
    from streamproc.settings import load_settings

    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix)
    pace = read_pace(speed)
    quiet_kafka()
    with opened(files, lenient, "publishing", strict=strict) as sources:
        sent = send_sources(sources, settings, pace, include_content=include_content, as_json=as_json)
    fail_if_lost(sent, settings)


def send_sources(
    sources: Sequence[Source | ExportedLog],
    settings: Settings,
    pace: SendingPace | None = None,
    *,
    include_content: bool = False,
    as_json: bool = False,
) -> PublishedCounts:
    """Send events to the turns topic, and print how many."""
    from streamproc.replay.pacing import SendingPace

    sent = asyncio.run(_publish(sources, pace or SendingPace(), settings, include_content))
    if as_json:
        json_row(sent)
    else:
        rate = sent.events / sent.seconds if sent.seconds else 0.0
        counts = f"{sent.delivered} delivered, {sent.lost} lost"
        line(f"{sent.events} events in {sent.seconds:.1f} s ({rate:.0f}/s): {counts}")
    return sent


def fail_if_lost(sent: PublishedCounts, settings: Settings) -> None:
    """Exit with 1 if events were lost."""
    if sent.lost:
        complain(f"{sent.lost} events were not delivered to {settings.brokers}; run `streamproc doctor`")
        raise typer.Exit(1)


async def _publish(
    sources: Sequence[Source | ExportedLog], pace: SendingPace, settings: Settings, include_content: bool
) -> PublishedCounts:
    from streamproc.client import TurnPublisher
    from streamproc.fingerprint import HashKey
    from streamproc.kafka.reading import partition_count
    from streamproc.model.printed import PublishedCounts

    await partition_count(settings, "turns")  # reports a missing topic at once, not after BROKER_WAIT_S
    began = time.monotonic()
    publisher = TurnPublisher(
        settings=settings,
        include_content=include_content,
        on_unsafe="publish",  # the run has happened: the worker reports the graph, as `scan` does
        block_ms_max=int(BROKER_WAIT_S * 1000),
        close_timeout_s=BROKER_WAIT_S,
    )
    events, key = 0, HashKey.of(settings.hash_key.get_secret_value())
    async with publisher:
        for source in sources:
            events += await _send_all(source, pace, publisher, key, content=include_content)
    return PublishedCounts(
        events=events, delivered=publisher.delivered, lost=publisher.dropped, seconds=time.monotonic() - began
    )


async def _send_all(
    source: Source | ExportedLog, pace: SendingPace, publisher: TurnPublisher, key: HashKey | None, *, content: bool
) -> int:
    from streamproc.errors import InvalidEvent
    from streamproc.model.wire import Event
    from streamproc.replay.pacing import timed
    from streamproc.replay.source import Source

    began = said = time.monotonic()
    events = 0
    lines = source.to_publish(key) if isinstance(source, Source) and not content else source
    for due_s, found in timed(lines, pace):
        if not watched() and time.monotonic() - said >= PROGRESS_S:
            said = time.monotonic()
            note(f"{source.path}: {events} events read, {publisher.delivered} delivered of all files")
        ahead_s = due_s - (time.monotonic() - began)
        if ahead_s > SLEEP_S_MIN:
            await asyncio.sleep(ahead_s)
        try:
            if isinstance(found.raw, Event):
                await publisher.send_fingerprinted(found.raw)
            else:
                await publisher.send(found.raw)
        except InvalidEvent as error:  # larger than Kafka accepts
            if not source.lenient:
                place = f"{source.path}:{found.number}"
                raise InvalidEvent([replace(problem, place=place) for problem in error.problems]) from None
            source.bad += 1
            continue
        events += 1
    return events
