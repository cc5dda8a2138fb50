"""``streamproc replay``: run the turns topic through the engine again, and compare with what the workers decided."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from streamproc.cli.options import Brokers, Policy, TopicPrefix, kafka_settings
from streamproc.cli.terminal import clean, examples, fail, json_line, line, note, paint, progress, say
from streamproc.errors import plural

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.kafka.reading import Extent
    from streamproc.policy import Policy as LoadedPolicy
    from streamproc.replay.diff import Difference
    from streamproc.settings import Settings

app = typer.Typer()

SHOWN_MAX = 50  # differences of each kind in a report

Run = Annotated[str | None, typer.Option(help="Replay only this run.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Replay every run in the log.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Only decisions made since then: RFC 3339, or milliseconds since 1970. Default: the log's beginning.",
        show_default=False,
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", help="Only decisions made until then. Default: the log's end.", show_default=False),
]
Diff = Annotated[
    bool, typer.Option("--diff", help="Compare with the control topic by decision id; exit 1 if they differ.")
]
Format = Annotated[
    Literal["text", "jsonl"], typer.Option("--format", help="A report for people, or one control event per line.")
]


class Replayed(NamedTuple):
    """The decisions of a replay, and the part of the log that it covers."""

    decisions: list[Decision]
    turns: dict[str, int]
    extents: dict[int, Extent]


@app.command(
    epilog=examples(
        "streamproc replay --run nightly-42",
        "streamproc replay --all --diff",
        "streamproc replay --from 2026-01-31T00:00:00Z --policy stricter.yaml --format jsonl",
    )
)
def replay(
    run: Run = None,
    everything: All = False,
    since: From = None,
    until: To = None,
    diff: Diff = False,
    policy: Policy = None,
    format_: Format = "text",
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Run the turns in the log through the engine again. The same policy gives the same decision ids as the workers.

    A replay joins no consumer group, and always reads the whole log: options select the decisions to show or compare.
    """
    from streamproc.policy import load_policy

    if not (run or everything or since or until):
        raise fail("choose what to replay: --run ID, --from/--to, or --all")
    from_ms, to_ms = time_ms("--from", since), time_ms("--to", until)
    settings = kafka_settings(brokers, topic_prefix, policy=policy)
    chosen = load_policy(settings.policy)
    found = asyncio.run(_replay(settings, chosen, run, from_ms, to_ms))
    if diff:
        _show_difference(*asyncio.run(_difference(settings, found, run)), chosen)
    else:
        _show(found, format_)


def time_ms(option: str, text: str | None) -> int | None:
    from pydantic import TypeAdapter, ValidationError

    from streamproc.model.raw_events import TimeMs

    if text is None:
        return None
    try:
        at_ms: int = TypeAdapter(TimeMs).validate_python(int(text) if text.isdigit() else text)
    except ValidationError as error:
        what = error.errors()[0]["msg"].removeprefix("Value error, ")
        remedy = "Give RFC 3339, such as 2026-01-31T12:00:00Z, or milliseconds since 1970"
        raise fail(f"{option} {text}: {what}. {remedy}") from None
    return at_ms


async def _replay(
    settings: Settings, policy: LoadedPolicy, run: str | None, from_ms: int | None, to_ms: int | None
) -> Replayed:
    from streamproc.fleet.record_signing import record_signer
    from streamproc.fleet.signing import command_signer
    from streamproc.kafka.reading import open_topic
    from streamproc.replay.log import LogReplay
    from streamproc.replay.window import LogWindow

    log = LogReplay(
        policy.engine(),
        event_bytes_max=settings.event_bytes_max,
        only=run,
        authority=command_signer(settings),
        record_signer=record_signer(settings),
    )
    decisions: list[Decision] = []
    async with open_topic(settings, "turns") as reader:
        window = LogWindow(reader.extents, from_ms, to_ms)
        with progress("reading turns", reader.records_total) as bar:
            async for batch in reader.batches():
                window.see(batch)
                decisions += log.decide(batch)
                bar.advance(len(batch))
        extents = sorted(reader.extents.items())
    if cut := [f"{number} at offset {extent.begin}" for number, extent in extents if extent.begin]:
        note(f"the log no longer has its beginning (partition {', '.join(cut)}): older runs are replayed in part")
    if log.refused:
        note(f"skipped {plural(log.refused, 'invalid record')}; the dead-letter topic has the reasons")
    if run is not None and run not in log.turns:
        raise fail(f"run {run} is not in {settings.topic('turns')}; it may be older than the topic's retention")
    return Replayed([one for one in decisions if window.holds(one)], log.turns, window.extents)


def _show(found: Replayed, format_: str) -> None:
    from streamproc.cli.report import by_run, run_lines, summary
    from streamproc.core.decision import encode_decision

    if format_ == "jsonl":
        for decision in found.decisions:
            json_line(encode_decision(decision).decode())
        return
    for run_id, own in by_run(found.decisions).items():
        for text in run_lines(run_id, own, found.turns[run_id]):
            line(text)
    line(summary(found.decisions, found.turns))


async def _difference(settings: Settings, found: Replayed, run: str | None) -> tuple[Difference, set[str]]:
    """Compare with the control topic; also return the hashes of the policies of the published decisions."""
    from streamproc.kafka.reading import committed_offsets, open_topic
    from streamproc.replay.diff import PublishedDecision, compare, read_published

    # The order matters: decisions on turns that were committed before the control topic was read are on that topic.
    committed = await committed_offsets(settings, settings.topic("turns"), sorted(found.extents))
    published: list[PublishedDecision] = []
    unreadable = 0
    async with open_topic(settings, "control") as reader:
        with progress("reading control events", reader.records_total) as bar:
            async for batch in reader.batches():
                for record in batch:
                    control = read_published(record.value)
                    unreadable += control is None
                    if control is not None and (run is None or control.run_id == run):
                        published.append(control)
                bar.advance(len(batch))
    if unreadable:
        note(f"skipped {plural(unreadable, 'record')} on {settings.topic('control')}: not a control event")
    difference = compare(found.decisions, published, found.extents, committed)
    return difference, {one.policy_hash for one in published}


def _show_difference(difference: Difference, hashes: set[str], policy: LoadedPolicy) -> None:
    for kind, colour, events in (
        ("missing", "red", difference.missing),
        ("extra", "yellow", difference.extra),
    ):
        for one in events[:SHOWN_MAX]:
            text = "  ".join(clean(part) for part in (one.id, one.run_id, f"{one.severity} {one.code}", one.message))
            say(f"{paint(f'{kind:<8}', colour)}{text}", hang=8)
        if len(events) > SHOWN_MAX:
            say(f"{kind:<8}… and {len(events) - SHOWN_MAX} more")
    say(
        f"{difference.same} the same; {len(difference.missing)} missing from the control topic; "
        f"{len(difference.extra)} only on the control topic"
    )
    if difference.pending:
        note(f"{plural(len(difference.pending), 'decision')} still pending: the workers have not read that far")
    if difference.outside:
        note(
            f"ignored {plural(len(difference.outside), 'control event')} for turns outside the replayed part of the log"
        )
    if difference.repeated:
        note(f"ignored {plural(difference.repeated, 'repeat')} of control events, as a worker crash leaves them")
    if not difference.agrees:
        if others := hashes - {policy.hash}:
            note(f"the published decisions come from other policies ({', '.join(sorted(others))}), not {policy.hash}")
        raise typer.Exit(1)
