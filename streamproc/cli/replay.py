"""``streamproc replay``: run the log through the engine again, and compare with what the workers decided."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from streamproc.cli.inputs import Format
from streamproc.cli.options import Brokers, Json, Policy, TopicPrefix, log_settings
from streamproc.cli.output import output_to, refuse_logs
from streamproc.cli.ranges import (
    All,
    LogRange,
    Offsets,
    Output,
    Quiet,
    RangeCommand,
    Run,
    Since,
    Until,
    User,
    Verbose,
    Workflow,
    log_range,
    note_cut,
    note_passed_over,
    shown_batches,
    within,
)
from streamproc.cli.terminal import clean, examples, fail, json_line, line, note
from streamproc.errors import Unavailable, plural

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.kafka.reading import Extent
    from streamproc.policy import Policy as LoadedPolicy
    from streamproc.replay.diff import PublishedDecision
    from streamproc.settings import Settings

app = typer.Typer()

Paths = Annotated[
    list[str] | None, typer.Argument(help="Logs to replay instead of the turns topic: files, directories, globs.")
]
Diff = Annotated[bool, typer.Option("--diff", help="Compare with the control topic, and say why decisions differ.")]
Against = Annotated[
    Path | None,
    typer.Option(help="Compare with the control events in this file, one a line, instead of the control topic."),
]
KnownPolicy = Annotated[
    list[str] | None,
    typer.Option(
        help="The policy that published, if you have it: its settings are compared with those of --policy. "
        "Presets are known. Repeatable."
    ),
]
Printed = Annotated[
    Literal["text", "jsonl"], typer.Option("--format", help="A report for people, or JSON, one object a line.")
]


class Replayed(NamedTuple):
    """The decisions of a replay, and the part of the log that it covers. Of files, there are no extents. `calls` are
    the states of providers; None if they cannot be known."""

    decisions: list[Decision]
    turns: dict[str, int]
    extents: dict[int, Extent] | None = None
    begins: dict[int, int] = {}  # noqa: RUF012  # never changed
    turn_at: dict[tuple[int, int], int] = {}  # noqa: RUF012
    calls: list[Decision] | None = None


class Published(NamedTuple):
    """The other side of a comparison: control events, and how far the workers had committed before they were read, of
    the turns topic and (`booked`) of the spend topic."""

    decisions: list[PublishedDecision]
    committed: dict[int, int] | None = None
    booked: dict[int, int] = {}  # noqa: RUF012
    begins: dict[int, int] = {}  # noqa: RUF012


@app.command(
    cls=RangeCommand,
    epilog=examples(
        "streamproc replay --run nightly-42",
        "streamproc replay --all --diff",
        "streamproc replay --since 2026-01-31T00:00:00Z --policy stricter.yaml --json -o decisions.jsonl",
        "streamproc replay trajectories.jsonl.gz --against controls.jsonl",
    ),
)
def replay(
    paths: Paths = None,
    log_format: Format = None,
    run: Run = None,
    workflow: Workflow = None,
    user: User = None,
    since: Since = None,
    until: Until = None,
    offsets: Offsets = None,
    everything: All = False,
    diff: Diff = False,
    against: Against = None,
    published_policy: KnownPolicy = None,
    policy: Policy = None,
    format_: Printed = "text",
    as_json: Json = False,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Run a log through the engine again. The same policy gives the same decision ids as the workers.

    A replay joins no consumer group, so it disturbs no worker.

    A run is always read from its beginning: options select the decisions to show or compare.

    Exit 0: done, and with --diff identical; 1: the decisions differ; 2: nothing could be replayed.
    """
    from streamproc.policy import load_policy

    if not (paths or run or workflow or user or since or until or offsets or everything):
        raise fail("choose what to replay: files, --run ID, --workflow, --user, --since/--until, --offsets, or --all")
    if log_format is not None and not paths:
        raise fail("--from is the format of files: give logs, or leave it out")
    if paths and offsets:
        raise fail("--offsets are those of the turns topic; files have none. Use --run or --since/--until")
    if paths and diff and against is None:
        raise fail("files are compared with a file: name that of the control events with --against CONTROLS.jsonl")
    refuse_logs([output], [*(paths or ()), *([str(against)] if against else [])])
    wanted = log_range(run, workflow, user, since, until, offsets)
    settings = log_settings(brokers, topic_prefix, policy=policy)
    chosen = load_policy(settings.policy)
    known = [load_policy(one) for one in published_policy or ()]
    published = None
    if against is not None:
        published = _read_controls(against, wanted)
    elif diff:
        published = asyncio.run(_read_control_topic(settings, wanted))
    if paths:
        found = _replay_files(paths, log_format, settings, chosen, wanted)
    else:
        places = published.decisions if published is not None else []
        found = asyncio.run(_replay_topic(settings, chosen, wanted, places))
        if wanted.is_whole:
            found = found._replace(calls=asyncio.run(_replay_calls(settings, chosen, published)))
    with output_to(output, quiet=quiet):
        if published is not None:
            differs = _show_difference(found, published, chosen, known, as_json or format_ == "jsonl", verbose)
        else:
            _show(found, as_json or format_ == "jsonl")
            differs = False
    if differs:
        raise typer.Exit(1)


def _replay_files(
    paths: list[str], log_format: str | None, settings: Settings, policy: LoadedPolicy, wanted: LogRange
) -> Replayed:
    from streamproc.core.local_providers import CODE, LocalProviders
    from streamproc.fingerprint import HashKey
    from streamproc.model.raw_fields import read_time_ms
    from streamproc.replay.scan import Scan
    from streamproc.replay.source import open_logs

    try:
        sources, reading = open_logs(paths, format_name=log_format)
        providers = LocalProviders(policy.providers, policy.ref)
        scan = Scan(sources, policy, HashKey.of(settings.hash_key.get_secret_value()), providers=providers)
        decisions = list(scan)
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}. Give files that can be read") from None
    for sentence in reading.sentences():
        note(sentence)
    turns = scan.turns_of()
    if not scan.events:
        raise fail("no events in these logs; give logs with turns")
    if wanted.selection.run is not None and wanted.selection.run not in turns:
        raise fail(f"run {wanted.selection.run} is not in these files")

    def inside(decision: Decision) -> bool:
        return within(read_time_ms(decision.at) if decision.at else None, wanted.from_ms, wanted.to_ms)

    kept = [one for one in decisions if wanted.selection.holds(one) and inside(one)]
    calls = [one for one in kept if one.code == CODE]
    kept = [one for one in kept if one.code != CODE]
    return Replayed(kept, _turns_of(turns, kept, wanted), calls=calls)


async def _replay_topic(
    settings: Settings, policy: LoadedPolicy, wanted: LogRange, published: list[PublishedDecision]
) -> Replayed:
    from streamproc.fleet.record_signing import record_signer
    from streamproc.fleet.signing import command_signer
    from streamproc.kafka.reading import Extent, open_topic
    from streamproc.replay.log import LogReplay
    from streamproc.replay.window import LogWindow

    run = wanted.selection.run
    places: dict[int, set[int]] = {}
    for one in published:
        if one.partition is not None and one.offset is not None:
            places.setdefault(one.partition, set()).add(one.offset)
    log = LogReplay(
        policy.engine(),
        event_bytes_max=settings.event_bytes_max,
        only=run,
        authority=command_signer(settings),
        record_signer=record_signer(settings),
        places=places,
    )
    decisions: list[Decision] = []
    async with open_topic(settings, "turns") as reader:
        begins = {number: extent.begin for number, extent in reader.extents.items()}
        whole = reader.extents
        if wanted.offsets:
            whole = _limited(reader.extents, wanted.offsets, reader.topic)
            reader.extents = {number: Extent(begins[number], extent.end) for number, extent in whole.items()}
        window = LogWindow(whole, wanted.from_ms, wanted.to_ms)
        async for batch in shown_batches(reader, "turns"):
            window.see(batch)
            decisions += log.decide(batch)
    note_cut(begins, "replayed")
    note_passed_over(reader, log.refused)
    if run is not None and run not in log.turns:
        raise fail(f"run {run} is not in {settings.topic('turns')}; it may be older than the topic's retention")
    limited = window.bounded or bool(wanted.offsets)
    kept = [one for one in decisions if wanted.selection.holds(one) and (not limited or window.holds(one))]
    return Replayed(kept, _turns_of(log.turns, kept, wanted), window.extents, begins, log.turn_at)


async def _replay_calls(settings: Settings, policy: LoadedPolicy, published: Published | None) -> list[Decision] | None:
    """Return the states of providers that follow from the calls of models on the spend topic, as far as the workers had
    booked them; None if that topic cannot be read from its beginning."""
    from msgspec import DecodeError

    from streamproc.core.local_providers import LocalProviders
    from streamproc.core.providers import read_calls
    from streamproc.kafka.reading import open_topic
    from streamproc.model.addresses import local_log
    from streamproc.model.provider_state import PREFIX

    found: list[Decision] = []
    providers = LocalProviders(policy.providers, policy.ref)
    known = {one.id for one in published.decisions} if published is not None else set()
    if local_log(settings.brokers) is not None:
        return None
    try:
        async with open_topic(settings, "spend") as reader:
            if any(extent.begin for extent in reader.extents.values()):
                return None
            async for batch in shown_batches(reader, "calls of models"):
                for record in batch:
                    if not (record.key or b"").startswith(PREFIX.encode()):
                        continue
                    try:
                        states = providers.book(read_calls(record.value or b""))
                    except DecodeError:
                        continue  # the workers refuse it, too
                    is_booked = published is None or record.offset < published.booked.get(record.partition, 0)
                    found += [state for state in states if is_booked or state.id in known]
    except Unavailable:
        return None
    return found


def _limited(extents: dict[int, Extent], offsets: dict[int, Extent], topic: str) -> dict[int, Extent]:
    from streamproc.kafka.reading import Extent

    found = {}
    for number, own in offsets.items():
        if number not in extents:
            raise fail(f"--offsets {number}:…: {topic} has the partitions 0 to {max(extents)}")
        whole = extents[number]
        found[number] = Extent(max(own.begin, whole.begin), min(own.end, whole.end))
        if found[number].begin >= found[number].end:
            has = f"{whole.begin} to {whole.end - 1}" if whole.end > whole.begin else "no records"
            raise fail(f"--offsets {number}:{own.begin}-{own.end}: partition {number} of {topic} has {has}")
    return found


def _turns_of(turns: dict[str, int], decisions: list[Decision], wanted: LogRange) -> dict[str, int]:
    """Return the turns of the runs that a report is about: all that were read, or those with a selected decision."""
    if wanted.selection == (None, None, None):
        return turns
    own = {one.run_id for one in decisions} | {wanted.selection.run}
    return {run_id: count for run_id, count in turns.items() if run_id in own}


def _show(found: Replayed, as_json: bool) -> None:
    """Print the decisions about runs, and the states of providers after them."""
    from streamproc.cli.report import by_run, run_lines, summary
    from streamproc.core.decision import encode_decision

    if as_json:
        for decision in (*found.decisions, *(found.calls or ())):
            json_line(encode_decision(decision).decode())
        return
    for run_id, own in by_run(found.decisions).items():
        for text in run_lines(run_id, own, found.turns.get(run_id, 0)):
            line(text)
    for state in found.calls or ():
        line(clean(f"{state.at}  {state.code}  {state.message}"))
    line(summary(found.decisions, Counter(found.turns)))


def _read_controls(path: Path, wanted: LogRange) -> Published:
    """Read control events from a file, such as the output of `scan --format jsonl`."""
    from streamproc.importers import LogFile
    from streamproc.replay.diff import read_published

    decisions = []
    log = LogFile(str(path))
    try:
        for number, text in log.lines():
            one = read_published(text)
            if one is None:
                raise fail(
                    f"{path}:{number}: no control event; give the output of `scan --format jsonl` or `replay --json`"
                )
            if wanted.selection.holds(one):
                decisions.append(one)
    except OSError as error:
        raise fail(f"{path}: {error.strerror}. Give a file of control events, one a line") from None
    return Published(decisions)


async def _read_control_topic(settings: Settings, wanted: LogRange) -> Published:
    from streamproc.fleet.record_signing import record_signer
    from streamproc.kafka.reading import committed_offsets, open_topic, partition_count
    from streamproc.replay.diff import read_published

    booked: dict[int, int] = {}
    with suppress(Unavailable):
        spend = list(range(await partition_count(settings, "spend")))
        booked = await committed_offsets(settings, settings.topic("spend"), spend)
    # The order matters: decisions on turns that were committed before the control topic is read are on that topic, and
    # turns that come after it was read are committed later.
    partitions = list(range(await partition_count(settings, "turns")))
    committed = await committed_offsets(settings, settings.topic("turns"), partitions)
    signer, unreadable = record_signer(settings), 0
    decisions: list[PublishedDecision] = []
    async with open_topic(settings, "control") as reader:
        begins = {number: extent.begin for number, extent in reader.extents.items()}
        async for batch in shown_batches(reader, "control events"):
            for record in batch:
                one = read_published(record.value)
                unreadable += one is None
                if one is None or not wanted.selection.holds(one):
                    continue
                decisions.append(one._replace(signed=signer.accepts("control", record, one.run_id)))
    if unreadable:
        note(f"skipped {plural(unreadable, 'record')} on {settings.topic('control')}: not a control event")
    return Published(decisions, committed, booked, begins)


def _show_difference(
    found: Replayed, published: Published, policy: LoadedPolicy, known: list[LoadedPolicy], as_json: bool, verbose: bool
) -> bool:
    """Print how both sides differ; return whether they do."""
    from streamproc.cli.differences import print_json, print_text
    from streamproc.core.local_providers import CODE
    from streamproc.replay.causes import Causes
    from streamproc.replay.diff import compare

    runs = set(found.turns) if found.extents is None else None
    theirs = published.decisions
    if found.calls is None and found.extents is not None:
        theirs = [one for one in theirs if one.code != CODE]
        if left := len(published.decisions) - len(theirs):
            why = "they are compared with --all, while the spend topic has its beginning"
            note(f"ignored {plural(left, 'state')} of providers: {why}")
    decided = [*found.decisions, *(found.calls or ())]
    difference = compare(decided, theirs, found.extents, published.committed, runs)
    causes = Causes(
        policy,
        theirs,
        turn_at=found.turn_at,
        begins=found.begins,
        control_begins=published.begins,
        known=known,
    )
    if as_json:
        print_json(difference, causes, policy)
    else:
        print_text(difference, causes, policy, verbose=verbose)
    return not difference.agrees
