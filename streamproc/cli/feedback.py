"""``streamproc feedback``: say whether the halt of a run was right, and list what was said."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamproc.cli.completion import complete_runs
from streamproc.cli.fleet import issuer_name
from streamproc.cli.options import Brokers, Json, TopicPrefix, kafka_settings
from streamproc.cli.output import output_to
from streamproc.cli.ranges import Output, Quiet, shown_batches
from streamproc.cli.terminal import clean, examples, fail, json_line, line, note, say
from streamproc.errors import plural

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.model.wire import Feedback
    from streamproc.settings import Settings

app = typer.Typer()

PATIENCE_S = 20.0  # for the broker; after that, the feedback counts as not given

RunId = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="Id of the halted run.", autocompletion=complete_runs)
]
Judgement = Annotated[
    Literal["false-alarm", "right"] | None,
    typer.Argument(metavar="[VERDICT]", help="false-alarm: the run should not have been halted; right: it was stuck."),
]
Why = Annotated[str, typer.Option("--why", "--reason", help="Reason, kept with the label.")]
DecisionId = Annotated[str | None, typer.Option("--decision", help="Id of the halt. Default: the run's last one.")]
By = Annotated[str | None, typer.Option("--by", help="Your name. Default: your login name.")]
Listed = Annotated[bool, typer.Option("--list", help="Print all feedback in the log, oldest first.")]
Export = Annotated[
    bool, typer.Option("--export", help="Print the labels that result, as a file of outcomes for `backtest`.")
]


@app.command(
    epilog=examples(
        'streamproc feedback nightly-42 false-alarm --why "it polls a build"',
        "streamproc feedback nightly-43 right",
        "streamproc feedback --list --json",
        "streamproc feedback --export -o outcomes.json",
    )
)
def feedback(
    run: RunId = None,
    verdict: Judgement = None,
    why: Why = "",
    decision: DecisionId = None,
    by: By = None,
    listed: Listed = False,
    export: Export = False,
    as_json: Json = False,
    output: Output = None,
    quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Say whether a halt was right: an event of the run's log, which changes no decision and is counted by `backtest`.

    Exit 0: the broker has stored it; 2: the run has no such halt, or the broker cannot be reached.
    """
    settings = kafka_settings(brokers, topic_prefix)
    if listed or export:
        if run is not None:
            raise fail("--list and --export print all feedback: leave out the run")
        found = asyncio.run(read_feedback(settings))
        with output_to(output, quiet=quiet):
            _print_labels(found) if export else _print_list(found, as_json)
        return
    if run is None or verdict is None:
        raise fail("give a run and a verdict: streamproc feedback RUN false-alarm|right; or --list, or --export")
    halt = asyncio.run(_halt_of(settings, run, decision))
    name = issuer_name(by)
    event_id = asyncio.run(_send(settings, halt, verdict, name, why))
    with output_to(output, quiet=quiet):
        if as_json:
            _print_json(run, verdict, halt.id, name, why, event_id)
            return
        turn = f" at turn {halt.turn}" if halt.turn is not None else ""
        say(f"{verdict}: {clean(halt.code)}{turn} of run {clean(run)}, says {clean(name)} ({event_id})", hang=2)


def _print_json(run: str, verdict: str, decision: str, by: str, reason: str, event_id: str) -> None:
    from streamproc.model.printed import FeedbackGiven, printed

    row = {"run_id": run, "verdict": verdict, "decision": decision, "by": by, "reason": reason, "event_id": event_id}
    json_line(printed(row, FeedbackGiven))


def _print_list(found: list[Feedback], as_json: bool) -> None:
    for one in found:
        if as_json:
            _print_json(one.run_id, one.verdict, one.decision, one.by, one.reason, one.event_id)
        else:
            about = f"  {clean(one.reason)}" if one.reason else ""
            line(f"{one.verdict:<12} {clean(one.run_id)}  by {clean(one.by or 'a person')}{about}")
    if not as_json:
        counts = Counter(one.verdict for one in found)
        line(f"{plural(counts['right'], 'right halt')}, {plural(counts['false-alarm'], 'false alarm')}")


def _print_labels(found: list[Feedback]) -> None:
    from streamproc.replay.outcomes import outcomes_json, with_feedback

    for text in outcomes_json(with_feedback({}, found)).splitlines():
        json_line(text)


async def read_feedback(settings: Settings) -> list[Feedback]:
    """Return the feedback in the log, oldest first by partition; what was sent twice is one. Raises `Unavailable`."""
    from streamproc.kafka.reading import open_topic
    from streamproc.model.wire import Feedback
    from streamproc.replay.log import LogEvents

    events, found, refused = LogEvents.of(settings), dict[str, Feedback](), 0
    async with open_topic(settings, "turns") as reader:
        async for batch in shown_batches(reader, "turns"):
            for record in batch:
                if record.value is None or MARK not in record.value:
                    continue
                event = events.read(record)
                refused += event is None
                if type(event) is Feedback:
                    found.setdefault(event.event_id or f"{record.partition}@{record.offset}", event)
    if refused:
        note(f"skipped {plural(refused, 'record')} with feedback that no allowed issuer has signed, or that is invalid")
    return list(found.values())


MARK = b'"feedback"'  # in every record with feedback, and in few others


async def _halt_of(settings: Settings, run: str, decision_id: str | None) -> Decision:
    """Return the halt that feedback is about. Exits with a message if there is none."""
    from streamproc.fleet.record_signing import read_decision
    from streamproc.kafka.reading import open_topic
    from streamproc.model.redaction import redact_id

    key = redact_id(run).encode()
    found: list[Decision] = []
    async with open_topic(settings, "control") as reader:
        async for batch in shown_batches(reader, "control events"):
            own = (read_decision(record.value) for record in batch if record.key == key)
            found += [one for one in own if one is not None]
    if not found:
        raise fail(f"nothing was decided about run {run} on {settings.topic('control')}: check its id")
    halts = [one for one in found if one.severity == "halt" and decision_id in (None, one.id)]
    if not halts and decision_id is not None:
        known = ", ".join(dict.fromkeys(one.id for one in found if one.severity == "halt")) or "none"
        raise fail(f"run {run} has no halt {decision_id}; its halts: {known}")
    if not halts:
        raise fail(f"run {run} was not halted, only warned; feedback is about halts")
    return halts[-1]


async def _send(settings: Settings, halt: Decision, verdict: Literal["false-alarm", "right"], by: str, why: str) -> str:
    from streamproc.client import TurnPublisher
    from streamproc.fleet.signing import command_signer

    command_signer(settings).must_sign()
    async with TurnPublisher(settings=settings, on_undelivered="raise", close_timeout_s=PATIENCE_S) as turns:
        return await turns.feedback(run_id=halt.run_id, verdict=verdict, decision=halt.id, by=by, reason=why)
