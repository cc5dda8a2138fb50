"""``streamproc replay``: the turns topic through the engine again, beside what the workers decided."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from streamproc.cli.options import Brokers, Policy, TopicPrefix
from streamproc.cli.terminal import examples, fail, line, note, paint, progress, quiet_kafka

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.kafka.reading import Extent
    from streamproc.policy import Policy as LoadedPolicy
    from streamproc.replay.diff import Difference
    from streamproc.settings import Settings

app = typer.Typer()

SHOWN_MAX = 50  # of each kind of difference, in text

Run = Annotated[str | None, typer.Option(help="Only this run.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Every run in the log.")]
From = Annotated[
    str | None,
    typer.Option("--from", help="Only what was decided since then: RFC 3339, or epoch ms.", show_default=False),
]
To = Annotated[str | None, typer.Option("--to", help="Only what was decided until then.", show_default=False)]
Diff = Annotated[
    bool, typer.Option("--diff", help="Compare, by id, with what the control topic carries; exit 1 where they differ.")
]
Format = Annotated[Literal["text", "jsonl"], typer.Option("--format", help="A report, or one control event a line.")]


class Replayed(NamedTuple):
    """What a replay found, and the part of the log that it is about."""

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
    """Decide again on what the log holds, in no consumer group. The same policy gives the same ids as the workers.

    The engine sees each run from the beginning of the log, whatever is printed of it.
    """
    from streamproc.policy import load_policy
    from streamproc.settings import load_settings

    if not (run or everything or since or until):
        raise fail("say what to replay: --run ID, --from/--to, or --all")
    from_ms, to_ms = _time("--from", since), _time("--to", until)
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, policy=policy)
    chosen = load_policy(settings.policy)
    quiet_kafka()
    found = asyncio.run(_replay(settings, chosen, run, from_ms, to_ms))
    if diff:
        _show_difference(*asyncio.run(_difference(settings, found, run)), chosen)
    else:
        _show(found, format_)


def _time(option: str, text: str | None) -> int | None:
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
    from streamproc.fleet.signing import command_signer
    from streamproc.kafka.reading import open_topic
    from streamproc.replay.log import LogReplay
    from streamproc.replay.window import LogWindow

    log = LogReplay(
        policy.engine(), event_bytes_max=settings.event_bytes_max, only=run, authority=command_signer(settings)
    )
    decisions: list[Decision] = []
    async with open_topic(settings, "turns") as reader:
        window = LogWindow(reader.extents, from_ms, to_ms)
        with progress("reading turns", reader.records_total) as bar:
            async for chunk in reader.batches():
                window.see(chunk)
                decisions += log.decide(chunk)
                bar.advance(len(chunk))
        gone = [f"{number} at {extent.begin}" for number, extent in sorted(reader.extents.items()) if extent.begin]
    if gone:
        note(f"the log has lost its beginning (partition {', '.join(gone)}): older runs cannot be replayed whole")
    if log.refused:
        note(f"{log.refused} records cannot be used; the dead-letter topic says why")
    if run is not None and run not in log.turns:
        raise fail(f"run {run} is not in {settings.topic('turns')}; is it older than the topic's retention?")
    return Replayed([one for one in decisions if window.holds(one)], log.turns, window.extents)


def _show(found: Replayed, format_: str) -> None:
    from streamproc.cli.report import by_run, run_lines, summary
    from streamproc.core.decision import encode_decision

    if format_ == "jsonl":
        for decision in found.decisions:
            line(encode_decision(decision).decode())
        return
    for run_id, own in by_run(found.decisions).items():
        for text in run_lines(run_id, own, found.turns[run_id]):
            line(text)
    line(summary(found.decisions, found.turns))


async def _difference(settings: Settings, found: Replayed, run: str | None) -> tuple[Difference, set[str]]:
    """The difference, and the hashes of the policies that decided what is carried."""
    from streamproc.kafka.reading import committed_offsets, open_topic
    from streamproc.replay.diff import Carried, compare, read_carried

    # In this order: what the workers had confirmed before the control topic was read is on it.
    committed = await committed_offsets(settings, settings.topic("turns"), sorted(found.extents))
    carried: list[Carried] = []
    unreadable = 0
    async with open_topic(settings, "control") as reader:
        with progress("reading control events", reader.records_total) as bar:
            async for chunk in reader.batches():
                for record in chunk:
                    control = read_carried(record.value)
                    unreadable += control is None
                    if control is not None and (run is None or control.run_id == run):
                        carried.append(control)
                bar.advance(len(chunk))
    if unreadable:
        note(f"{unreadable} records on {settings.topic('control')} are no control events")
    return compare(found.decisions, carried, found.extents, committed), {one.policy_hash for one in carried}


def _show_difference(difference: Difference, hashes: set[str], policy: LoadedPolicy) -> None:
    for kind, colour, events in (
        ("missing", "red", difference.missing),
        ("extra", "yellow", difference.extra),
    ):
        for one in events[:SHOWN_MAX]:
            line(f"{paint(f'{kind:<8}', colour)}{one.id}  {one.run_id}  {one.severity} {one.code}  {one.message}")
        if len(events) > SHOWN_MAX:
            line(f"{kind:<8}… and {len(events) - SHOWN_MAX} more")
    line(
        f"{difference.same} the same; {len(difference.missing)} missing from the control topic; "
        f"{len(difference.extra)} on it that the replay does not decide"
    )
    if difference.pending:
        note(f"{len(difference.pending)} decisions are not due yet: the workers have not come so far in the log")
    if difference.beyond:
        note(f"{len(difference.beyond)} control events are about turns outside of what was replayed")
    if difference.twice:
        note(f"{difference.twice} control events are carried more than once, with the same id (a worker crashed)")
    if not difference.agrees:
        if others := hashes - {policy.hash}:
            note(f"other policies decided what is carried ({', '.join(sorted(others))}); this one is {policy.hash}")
        raise typer.Exit(1)
