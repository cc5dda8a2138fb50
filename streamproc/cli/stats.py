"""``streamproc stats``: which detectors decided how often, and how many runs ended without a timeout."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from streamproc.cli.inputs import Format, Lenient, opened
from streamproc.cli.options import Brokers, Policy, Quiet, TopicPrefix, log_settings
from streamproc.cli.ranges import RangeCommand, Since, Until, shown_batches, time_ms, within
from streamproc.cli.terminal import ProgressReporter, clean, examples, json_row, line, note, progress
from streamproc.errors import InvalidEvent, plural

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.model.controls import RunStatus
    from streamproc.replay.stats import Tally
    from streamproc.settings import Settings

app = typer.Typer()

Turns = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files of raw turns, scanned under the policy; their runs count as ended. "
        "Default: what the workers have published on the topics control and runs."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
SLOWEST_SHOWN = 5

InWindow = Callable[[str | None], bool]
T = TypeVar("T", "Decision", "RunStatus")


@app.command(
    cls=RangeCommand,
    epilog=examples(
        "streamproc stats",
        "streamproc stats --since 2026-01-01T00:00:00Z --json",
        "streamproc stats last-month.jsonl.gz --policy deliberation",
    ),
)
def stats(
    files: Turns = None,
    format_name: Format = None,
    since: Since = None,
    until: Until = None,
    policy: Policy = None,
    lenient: Lenient = False,
    acknowledgements: Annotated[
        bool,
        typer.Option("--acknowledgements", help="How long halts waited for a person; reads the turns topic as well."),
    ] = False,
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Count the decisions of each detector, and the share of runs that ended without a timeout (objective: 99.9 %).

    `layer` is the layer of the deliberation requirement: 1 steps, 2 graph, 3 rounds, 4 clock, 5 cost.
    """
    from streamproc.replay.stats import Tally

    from_ms = time_ms("--since", since)
    tally, inside = Tally(), _window(from_ms, time_ms("--until", until))
    if files:
        _count_files(tally, files, format_name, policy, lenient, inside)
    else:
        settings = log_settings(brokers, topic_prefix)
        asyncio.run(_count_topics(tally, settings, inside))
        _note_retention(settings, from_ms)
        if acknowledgements:
            asyncio.run(_count_acknowledgements(tally, settings))
    if as_json:
        json_row(tally.statistics())
        return
    for text in _table(tally, acknowledgements):
        line(text)


def _note_retention(settings: Settings, from_ms: int | None) -> None:
    """Say that the share of timeouts is not that of a period whose finished runs are partly forgotten."""
    hours = settings.status_finished_hours
    if hours and (from_ms is None or from_ms < (time.time() - hours * 3_600) * 1000):
        note(
            f"runs that finished are known for {hours:g} h, halted ones for longer: for the share without timeout, "
            "give --since within that time, or use the metric streamproc_runs_ended_total"
        )


def _window(from_ms: int | None, to_ms: int | None) -> InWindow:
    from streamproc.model.raw_fields import read_time_ms

    return lambda at: within(read_time_ms(at) if at is not None else None, from_ms, to_ms)


def _count_files(
    tally: Tally, files: list[str], format_name: str | None, policy: str | None, lenient: bool, inside: InWindow
) -> None:
    from streamproc.model.log_time import rfc3339
    from streamproc.policy import load_policy
    from streamproc.replay.scan import Scan
    from streamproc.settings import load_settings

    chosen = load_policy(load_settings(policy=policy).policy)
    with opened(files, lenient, "counting", format_name=format_name) as sources:
        scan = Scan(sources, chosen)
        decisions = list(scan)
    counted = set()
    for run_id in scan.runs:
        run = scan.runs.read(run_id)
        if run is not None and inside(rfc3339(run.at_ms) if run.at_ms else None):
            counted.add(run_id)
            used = run.turns, run.ledger.total_tokens, run.ledger.cost_usd_micro
            tally.add_run(run_id, run.scope.workflow, ended=True, used=used)
    for decision in decisions:
        if decision.run_id in counted:
            tally.add_decision(decision)


async def _count_topics(tally: Tally, settings: Settings, inside: InWindow) -> None:
    from streamproc.cli.watched import watched
    from streamproc.fleet.lost_runs import is_lost
    from streamproc.fleet.record_signing import read_decision, read_status
    from streamproc.model.raw_fields import log_ms
    from streamproc.policy import load_policy
    from streamproc.replay.published import LatestStatuses

    latest = LatestStatuses()

    def decided(decision: Decision) -> None:
        if inside(decision.at):
            tally.add_decision(decision)

    skipped = await _read(settings, "control", read_decision, decided)
    skipped += await _read(settings, "runs", read_status, latest.take, latest.forget)
    until_ms, lost_after_ms = (await watched(settings)).until_ms, load_policy(settings.policy).lost_after_s * 1000
    for status in latest.in_force().values():
        if inside(status.at) and not status.unpublished:
            tally.add_status(status, lost=is_lost(status.status, log_ms(status.at), until_ms, lost_after_ms))
    if tally.lost:
        note(f"{plural(tally.lost, 'run')} without an end {'is' if tally.lost == 1 else 'are'} lost: "
             "`streamproc runs --lost` lists them")  # fmt: skip
    if skipped:
        note(f"skipped {plural(skipped, 'record')}: not a control event or status, or not signed by a worker")


async def _count_acknowledgements(tally: Tally, settings: Settings) -> None:
    from streamproc.fingerprint import read_event
    from streamproc.kafka.reading import open_topic
    from streamproc.model.guard_report import is_guard_report
    from streamproc.model.wire import HaltAcknowledged

    async with open_topic(settings, "turns") as reader:
        async for batch in shown_batches(reader, "turns"):
            for record in batch:
                if HaltAcknowledged.type.encode() not in (record.value or b""):
                    continue
                try:
                    event = read_event(record.value or b"")
                except InvalidEvent:
                    continue  # the workers have refused it
                if isinstance(event, HaltAcknowledged) and not is_guard_report(event):
                    tally.add_acknowledgement(event.run_id, record.timestamp)


async def _read(
    settings: Settings,
    topic: str,
    read: Callable[[bytes | None], T | None],
    take: Callable[[T], None],
    forget: Callable[[bytes, int], object] = lambda _key, _partition: None,
) -> int:
    """Read a topic under a progress bar, and return the number of records that were skipped."""
    from streamproc.kafka.reading import TopicReader
    from streamproc.replay.published import read_published

    with contextlib.ExitStack() as stack:
        bars: list[ProgressReporter] = []

        def advance(reader: TopicReader, records: int) -> None:
            if not bars:
                bars.append(stack.enter_context(progress(f"reading {topic}", reader.records_total)))
            bars[0].advance(records)

        return await read_published(settings, topic, read, take, advance, forget=forget)


def _table(tally: Tally, acknowledgements: bool) -> Iterator[str]:
    yield from _ends(tally)
    yield from _detectors(tally)
    yield from _waste(tally)
    if acknowledgements:
        yield from _slowest(tally)


def _waste(tally: Tally) -> Iterator[str]:
    from streamproc.model.formats import usd

    waste = tally.waste()
    if not waste.used.turns:
        return
    yield ""
    yield f"{'halted runs':<24} {'turns':>8} {'tokens':>12} {'USD':>10}"
    rows = {
        "used": waste.used, "in the loop (estimate)": waste.looping, "after the halt (estimate)": waste.after_halt,
    }  # fmt: skip
    for name, amount in rows.items():
        yield f"{name:<24} {amount.turns:>8} {amount.tokens:>12} {usd(amount.cost_usd_micro):>10}"


def _slowest(tally: Tally) -> Iterator[str]:
    waits = tally.acknowledgements()
    open_ = sum(one.seconds is None for one in waits)
    yield ""
    yield f"{plural(len(waits), 'halt')}: {len(waits) - open_} acknowledged, {open_} not; the slowest"
    for one in [one for one in waits if one.seconds is not None][:SLOWEST_SHOWN]:
        yield f"  {one.seconds:>10.1f} s  {clean(one.code):<10} {clean(one.run_id)}"


def _ends(tally: Tally) -> Iterator[str]:
    from streamproc.replay.stats import OBJECTIVE

    yield f"{'workflow':<24} {'runs':>8} {'ended':>8} {'halted':>8} {'timed out':>10} {'without timeout':>16}"
    ends = tally.ends()
    for one in ends:
        name = clean(one.workflow or "(none)")[:24]
        share = "" if one.without_timeout is None else f"{one.without_timeout:.2%}"
        yield f"{name:<24} {one.runs:>8} {one.ended:>8} {one.halted:>8} {one.timed_out:>10} {share:>16}"
    total = ends[0].without_timeout
    met = "no run has ended" if total is None else "met" if total >= OBJECTIVE else "missed"
    yield f"objective {OBJECTIVE:.1%} of runs end without a timeout: {met}"
    yield ""


def _detectors(tally: Tally) -> Iterator[str]:
    yield f"{'layer':<5} {'code':<12} {'detector':<24} {'info':>7} {'warn':>7} {'halt':>7} {'runs halted':>12}"
    for row in tally.detectors():
        yield (
            f"{row.layer or '':<5} {clean(row.code):<12} {row.name:<24} {row.info:>7} {row.warn:>7} {row.halt:>7} "
            f"{row.runs_halted:>12}"
        )
    halts = tally.halts()
    if len({one.workflow for one in halts}) > 1:
        yield ""
        yield f"{'runs halted':>12}  {'code':<12} workflow"
        for one in halts:
            yield f"{one.runs:>12}  {clean(one.code):<12} {clean(one.workflow or '(none)')}"
