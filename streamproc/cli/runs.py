"""``streamproc runs`` and ``streamproc status``: the latest statuses of runs, as the workers have published them."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamproc.cli.completion import complete_runs
from streamproc.cli.options import Brokers, Json, Quiet, TopicPrefix, log_settings
from streamproc.cli.ranges import Since, Until, time_ms, within
from streamproc.cli.terminal import COLOURS, clean, examples, fail, fold, json_row, line, note, paint
from streamproc.cli.watched import show_watched
from streamproc.errors import plural

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.model.controls import RunStatus
    from streamproc.settings import Settings

app = typer.Typer()

ORDER = {"halted": 0, "running": 1, "finished": 2}

Format = Annotated[
    Literal["text", "jsonl"], typer.Option("--format", help="text: a table; jsonl: one status a line, as --json.")
]


@app.command(
    epilog=examples("streamproc runs --halted", "streamproc runs --workflow nightly --json", "streamproc runs --all")
)
def runs(
    halted: Annotated[bool, typer.Option("--halted", help="Only halted runs.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Finished and lost runs as well.")] = False,
    lost: Annotated[
        bool, typer.Option("--lost", help="Only running runs of which nothing has come for the policy's lost_after_s.")
    ] = False,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    user: Annotated[str | None, typer.Option(help="Only runs of this user.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only runs of this tenant.")] = None,
    since: Since = None,
    until: Until = None,
    format_: Format = "text",
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """List the runs that the workers know: halted ones first, then warned ones, the latest first.

    Finished runs and lost ones (their publisher seems to be gone) are only counted. A note says if no worker decides.
    """
    from streamproc.fleet.lost_runs import is_lost
    from streamproc.model.raw_fields import log_ms
    from streamproc.policy import load_policy
    from streamproc.replay.published import statuses

    wanted = {"workflow": workflow, "user": user, "tenant": tenant}
    since_ms, until_ms = time_ms("--since", since), time_ms("--until", until)

    settings = log_settings(brokers, topic_prefix)
    lost_after_ms = load_policy(settings.policy).lost_after_s * 1000

    def show(known: Mapping[str, RunStatus], now_ms: int) -> None:
        gone = {one.run_id for one in known.values() if is_lost(one.status, log_ms(one.at), now_ms, lost_after_ms)}
        shown = [
            status
            for status in known.values()
            if (status.status == "halted" or not halted)
            and (status.run_id in gone if lost else everything or status.run_id not in gone)
            and (status.status != "finished" or everything)
            and all(value is None or getattr(status, name) == value for name, value in wanted.items())
            and within(log_ms(status.at) or 0, since_ms, until_ms)
        ]
        shown.sort(key=lambda status: status.at or "", reverse=True)
        shown.sort(key=lambda status: (ORDER.get(status.status, len(ORDER)), status.severity == "info"))
        if as_json or format_ == "jsonl":
            for status in shown:
                json_row(status)
            return
        for text in _table(shown, gone):
            line(text)
        left = len(known) - len(shown)
        hidden = f", {len(gone)} of them lost (--lost)" if gone and not lost and not everything else ""
        note(f"{plural(len(shown), 'run')}" + (f"; {left} more with --all or other options{hidden}" if left else ""))

    show_watched(settings, statuses(settings, current=True), show)


@app.command(
    epilog=examples("streamproc status nightly-42", "streamproc status nightly-42 --export nightly-42.status.json")
)
def status(
    run: Annotated[str, typer.Argument(help="Id of the run.", autocompletion=complete_runs)],
    export: Annotated[
        Path | None, typer.Option(help="Also write the status and all decisions about the run to this file.")
    ] = None,
    format_: Format = "text",
    as_json: Json = False,
    _quiet: Quiet = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show the last status of a run and the decisions about it. Exit 0: running or finished; 1: halted; 2: unknown.

    The status outlives the worker and the run, until STREAMPROC_STATUS_FINISHED_HOURS or _STATUS_DAYS have passed.
    """
    settings = log_settings(brokers, topic_prefix)

    def show(read: tuple[Any, list[Decision]], _until_ms: int) -> None:
        found, decisions = read
        if found is None or found.unpublished:
            return
        if export is not None:
            _export(export, found, decisions)
        if as_json or format_ == "jsonl":
            json_row(found)
        else:
            for text in _lines(found, decisions):
                line(text)

    found, _ = show_watched(settings, _status(settings, run), show)
    if found is None or found.unpublished:
        ahead = found is not None and found.status == "halted"
        raise fail(unknown_run(settings, run) + (". A run of this id is halted as soon as it appears" if ahead else ""))
    if found.status == "halted":
        raise typer.Exit(1)


def unknown_run(settings: Settings, run: str) -> str:
    """Say that no worker knows a run, and where to look."""
    hours, days = settings.status_finished_hours, settings.status_days
    kept = [f"{hours:g} h after a run has finished"] * (hours > 0) + [f"{days:g} days after any other"] * (days > 0)
    forgotten = f" (it is kept for {', '.join(kept)})" if kept else ""
    return (
        f"{settings.topic('runs')} has no status of run {clean(run)}{forgotten}: check the id with `streamproc runs "
        f"--all`, and that a worker is running; `streamproc report {clean(run)}` reads its turns, which are kept for "
        "7 days"
    )


async def _status(settings: Settings, run: str) -> tuple[RunStatus | None, list[Decision]]:
    from streamproc.model.redaction import redact_id
    from streamproc.replay.published import decisions_of_run, status_of_run

    run_id = redact_id(run)
    found = await status_of_run(settings, run_id)
    return found, await decisions_of_run(settings, run_id) if found is not None else []


def _export(path: Path, found: RunStatus, decisions: list[Decision]) -> None:
    import msgspec

    value = {"status": found, "decisions": decisions}
    from streamproc.cli.output import written_file

    with written_file(path, "--export"):
        path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    note(f"wrote {path}")


def _table(shown: Iterable[RunStatus], lost: Container[str] = ()) -> Iterator[str]:
    from streamproc.model.formats import age
    from streamproc.model.raw_fields import log_ms

    now_ms = int(time.time() * 1000)
    rows = [("STATUS", "RUN", "TURNS", "SPENT", "LAST EVENT", "AGE", "WHY")]
    rows += [
        (
            _state(status, lost),
            clean(status.run_id),
            str(status.turns),
            _spent(status),
            f"{status.at[:19].replace('T', ' ')}Z" if status.at else "",
            age(log_ms(status.at), now_ms),
            _why(status),
        )
        for status in shown
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    for number, row in enumerate(rows):
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)) + f"  {row[-1]}"
        colour = COLOURS["halt"] if row[0] == "halted" else COLOURS["warn"] if "warned" in row[0] else ""
        text = text.rstrip()
        yield fold(paint(text, colour) if colour and number else text, sum(widths[:1]) + 2)


def _state(status: RunStatus, lost: Container[str]) -> str:
    state = "lost" if status.run_id in lost else status.status
    return state if status.severity == "info" or status.status == "halted" else f"{state}, warned"


def _why(status: RunStatus) -> str:
    badge = f"[{clean(status.badge)}] " if status.badge else ""
    return badge + (f"{clean(status.halt.code)} {clean(status.halt.message)}" if status.halt is not None else "")


def _spent(status: RunStatus) -> str:
    from streamproc.model.formats import grouped, money

    if status.cost_usd_micro:
        return money(status.cost_usd_micro)
    return f"{grouped(status.total_tokens)} tokens" if status.total_tokens else ""


def lifting_command(halt: Decision | None) -> str:
    """Return the command that lifts the kill by which a run is halted; empty for other halts."""
    from streamproc.model.fleet_command import lifting

    return lifting(halt.evidence.reason or "") if halt is not None and halt.evidence is not None else ""


def note_kill(verb: str, found: RunStatus) -> None:
    """Say before a resume that the run was halted by a kill of its user, tenant or session."""
    if verb == "resume" and (lift := lifting_command(found.halt)):
        note(f"a kill has halted it: as long as that stands, the run is halted again; lift it with `{clean(lift)}`")


def _lines(found: RunStatus, decisions: list[Decision]) -> Iterator[str]:
    halt = found.halt
    head = paint(found.status.upper(), COLOURS["halt"] if found.status == "halted" else "green", bold=True)
    yield f"{head}  {clean(found.run_id)}" + (f"  {clean(found.badge)}" if found.badge else "")
    if halt is not None:
        place = f" at turn {halt.turn}" if halt.turn is not None else ""
        yield fold(f"  halted{place}: {clean(halt.code)} {clean(halt.message)}", 4)
        if halt.terminal_status:
            reason = f", stop reason {halt.stop_reason}" if halt.stop_reason else ""
            yield f"  ends as {halt.terminal_status}{reason}"
    scope = [f"{name} {clean(value)}" for name in ("workflow", "user", "tenant") if (value := getattr(found, name))]
    facts = [plural(found.turns, "turn"), _spent(found), *scope, f"last event {found.at}" if found.at else ""]
    yield fold("  " + ", ".join(fact for fact in facts if fact), 4)
    if found.failing_trend:
        yield f"  failing tests: {' → '.join(map(str, found.failing_trend))}"
    if found.partition >= 0:
        yield f"  log: partition {found.partition}, offset {found.offset}"
    for end in found.ended_tasks:
        of = f" and of {clean(end.agent)}" if end.agent else ""
        yield fold(
            f"  {clean(end.task_id)} has ended ({end.terminal_status}, {end.code}): guards of it{of} refuse work", 4
        )
    for decision in decisions:
        severity = paint(f"{decision.severity:<4}", COLOURS.get(decision.severity, "cyan"))
        place = "" if decision.turn is None else f"turn {decision.turn}  "
        yield fold(f"  {severity}  {place}{clean(decision.code)}  {clean(decision.message)}", 8)
    run = clean(found.run_id)
    if found.status == "halted":
        lift = f"{clean(lifting_command(halt))}; " if lifting_command(halt) else ""
        yield fold(f"  next: streamproc report {run}; {lift}streamproc resume {run} --turns 10 --why REASON", 4)
