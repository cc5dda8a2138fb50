"""``streamproc backtest``: what policies would have done on a log, side by side."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from streamproc.cli.inputs import Format, Lenient
from streamproc.cli.options import Brokers, Json, TopicPrefix, log_settings
from streamproc.cli.output import output_to, refuse_logs, written_file
from streamproc.cli.ranges import (
    All,
    LogRange,
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
    note_passed_over,
    shown_batches,
    within,
)
from streamproc.cli.terminal import clean, examples, fail, json_line, line, note, progress
from streamproc.errors import plural

if TYPE_CHECKING:
    from streamproc.model.wire import Feedback
    from streamproc.policy import Policy
    from streamproc.replay.backtest import Candidate
    from streamproc.replay.comparison import ComparedPolicy
    from streamproc.replay.outcomes import RunLabel
    from streamproc.replay.spool import Spool, SpooledRun
    from streamproc.settings import Settings

app = typer.Typer()

SHOWN_MAX = 20  # changed runs of each policy in a report

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        help="Logs: files, directories, globs. Without any, the turns topic: then give --all or a part of it."
    ),
]
Shadow = Annotated[
    str | None,
    typer.Option(
        help="Compare what this shadow has published with what the workers have, instead of stepping a log "
        "(see `streamproc worker --shadow`)."
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="A policy file, or the name of a preset. Repeatable; the others are compared with the first. "
        "Default: STREAMPROC_POLICY, else standard.",
    ),
]
Sweeps = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Try several values of a setting on top of each policy: LOOP003.halt=2..5, maxSteps=50,100. "
        "Several make a grid of at most 200 policies.",
        metavar="SETTING=VALUES",
    ),
]
Outcomes = Annotated[
    list[str] | None,
    typer.Option(
        help="A file that says what became of runs; `-`: none. Repeatable. Default: NAME.outcomes.json beside a log."
    ),
]
Html = Annotated[Path | None, typer.Option(help="Also write the comparison to this file, as one page.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Processes. Default: one for each core.", min=0)]


class Recorded(NamedTuple):
    """A log that was read: its events on disk, the runs that count, and what is known of them."""

    spool: Spool
    chosen: set[str] | None
    labels: dict[str, RunLabel]


@app.command(
    cls=RangeCommand,
    epilog=examples(
        "streamproc backtest logs/ --policy standard --policy stricter.yaml",
        "streamproc backtest logs/ --set LOOP003.halt=2..5 --html sweep.html",
        "streamproc backtest --shadow stricter",
        "streamproc backtest --all --policy standard --policy policy.yaml --json -o comparison.jsonl",
    ),
)
def backtest(
    paths: Paths = None,
    log_format: Format = None,
    policy: Policies = None,
    sweeps: Sweeps = None,
    outcomes: Outcomes = None,
    run: Run = None,
    workflow: Workflow = None,
    user: User = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    shadow: Shadow = None,
    html: Html = None,
    jobs: Jobs = 0,
    lenient: Lenient = False,
    as_json: Json = False,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Try policies on a log: the runs that each halts, earlier, later or never, what that saves, and its false halts.

    The log is read once, without a consumer group, so no worker is disturbed, and stepped under each policy.

    A run counts if one of its events is in the part that options choose.

    Exit 0: compared; 2: nothing could be compared.
    """
    from streamproc.replay.backtest import backtest as step_all
    from streamproc.replay.comparison import compared
    from streamproc.replay.held_calls import HeldCalls, held_calls

    if log_format is not None and not paths:
        raise fail("--from is the format of files: give logs, or leave it out")
    if shadow is not None:
        rows = _compare_shadow(log_settings(brokers, topic_prefix), shadow, outcomes)
        _show(rows, html, output, as_json=as_json, quiet=quiet, verbose=verbose)
        return
    if not (paths or run or workflow or user or since or until or everything):
        raise fail("choose a log: files, or of the turns topic --all, --run ID, --workflow, --user or --since/--until")
    refuse_logs([output, html], paths or ())
    wanted = log_range(run, workflow, user, since, until, None)
    settings = log_settings(brokers, topic_prefix)
    candidates, policies = _candidates(policy or [settings.policy], sweeps or [])
    with tempfile.TemporaryDirectory(prefix="streamproc-backtest-") as folder:
        log = _record(paths, log_format, settings, wanted, outcomes, Path(folder), lenient)
        turns = {one.run_id: one.turns for one in log.spool.runs if log.chosen is None or one.run_id in log.chosen}
        if not turns:
            if log.chosen is None:
                raise fail("no events in this log; give logs with turns")
            raise fail("no run of the log is in the chosen part; check --run, --workflow, --user and --since/--until")
        note(f"stepping {plural(log.spool.events, 'event')} under {plural(len(candidates), 'policy', 'policies')}")
        results = step_all(
            log.spool.path,
            log.spool.runs,
            candidates,
            events=log.spool.events,
            chosen=log.chosen,
            processes=jobs or os.cpu_count() or 1,
        )
        held = held_calls(log.spool.path, policies) if log.spool.unavailable else [HeldCalls()] * len(policies)
    refs = [(one.ref, candidate.settings) for one, candidate in zip(policies, candidates, strict=True)]
    rows = compared(refs, results, turns, log.labels, held)
    _show(rows, html, output, as_json=as_json, quiet=quiet, verbose=verbose)


def _show(
    rows: list[ComparedPolicy], html: Path | None, output: Path | None, *, as_json: bool, quiet: bool, verbose: bool
) -> None:
    if html is not None:
        _write_page(html, rows)
    with output_to(output, quiet=quiet):
        _print_json(rows) if as_json else _print_text(rows, verbose=verbose)


def _compare_shadow(settings: Settings, shadow: str, outcomes: list[str] | None) -> list[ComparedPolicy]:
    """Compare what a shadow has published with what the workers have, on the runs that both know."""
    from streamproc.replay.comparison import compared
    from streamproc.replay.outcomes import read_outcomes
    from streamproc.replay.shadow import live_results

    labels: dict[str, RunLabel] = {}
    with _readable():
        for path in outcomes or ():
            labels |= read_outcomes(path)
    lives, turns = asyncio.run(live_results(settings, shadow))
    if not turns:
        raise fail(f"no run is known to both the workers and the shadow {clean(shadow)}: is its worker running?")
    return compared([(live.ref, {}) for live in lives], [live.result for live in lives], turns, labels)


def _candidates(sources: list[str], texts: list[str]) -> tuple[list[Candidate], list[Policy]]:
    """Return the policies to try: each as it is, then with each combination of settings."""
    from streamproc.policy.variants import grid, read_sweep
    from streamproc.replay.backtest import Candidate

    sweeps = [read_sweep(text) for text in texts]
    candidates = [Candidate(source) for source in sources]
    if sweeps:
        combinations = grid(sweeps, len(sources))
        candidates += [Candidate(source, settings) for source in sources for settings in combinations]
    return candidates, [candidate.load() for candidate in candidates]


def _record(
    paths: list[str] | None,
    log_format: str | None,
    settings: Settings,
    wanted: LogRange,
    outcomes: list[str] | None,
    folder: Path,
    lenient: bool,
) -> Recorded:
    """Read the log, and write its events to the folder."""
    from streamproc.importers.discovery import log_paths
    from streamproc.replay.outcomes import SUFFIX, beside, read_outcomes, with_feedback

    found, beside_logs = list(outcomes or ()), list[str]()
    if paths:
        with _readable():
            everything = log_paths(paths)
        beside_logs = [path for path in everything if path.endswith(SUFFIX)]
        if outcomes is None:
            logs = [path for path in everything if not path.endswith(SUFFIX)]
            found = list(dict.fromkeys([*beside(logs), *beside_logs]))
    labels: dict[str, RunLabel] = {}
    with _readable():
        for path in found:
            if path != "-":
                labels |= read_outcomes(path)
        if paths:
            spool, feedback = _spool_files(paths, log_format, beside_logs, settings, folder, lenient)
        else:
            spool, feedback = asyncio.run(_spool_topic(settings, folder))
    return Recorded(spool, _chosen(spool.runs, wanted), with_feedback(labels, feedback))


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise fail(f"{error.filename}: {error.strerror}. Give logs, and files of outcomes, that can be read") from None


def _spool_files(
    paths: list[str], log_format: str | None, outcomes: list[str], settings: Settings, folder: Path, lenient: bool
) -> tuple[Spool, list[Feedback]]:
    from streamproc.fingerprint import HashKey
    from streamproc.model.wire import Feedback
    from streamproc.replay.source import open_logs
    from streamproc.replay.spool import Spool

    key, feedback = HashKey.of(settings.hash_key.get_secret_value()), list[Feedback]()
    sources, reading = open_logs(paths, format_name=log_format, lenient=lenient, leave_out=outcomes)
    with Spool(folder / "events") as spool, progress("reading logs", len(sources)) as bar:
        for source in sources:
            for found in source.read(key):
                if type(found.event) is Feedback:
                    feedback.append(found.event)
                else:
                    spool.add(found.event, found.event.at)
            bar.advance(1)
    for source in sources:
        if source.bad:
            note(f"{source.path}: skipped {source.bad} of {source.lines} lines that cannot be used")
    for sentence in reading.sentences():
        note(sentence)
    return spool, feedback


async def _spool_topic(settings: Settings, folder: Path) -> tuple[Spool, list[Feedback]]:
    """Write the turns topic to the folder, in the order of the records' times: accounts are shared by partitions."""
    from streamproc.kafka.reading import log_time, open_topic
    from streamproc.model.wire import BudgetReached, Feedback
    from streamproc.replay.log import LogEvents
    from streamproc.replay.spool import Spool, in_time_order

    events, feedback, refused = LogEvents.of(settings), list[Feedback](), 0
    spools: dict[int, Spool] = {}
    async with open_topic(settings, "turns") as reader:
        async for batch in shown_batches(reader, "turns"):
            number = batch[0].partition
            if number not in spools:
                spools[number] = Spool(folder / f"partition-{number}").__enter__()
            for record in batch:
                event = events.read(record)
                if event is None:
                    refused += 1
                elif type(event) is Feedback:
                    feedback.append(event)
                elif type(event) is not BudgetReached:  # of the policy then; accounts are booked again
                    spools[number].add(event, log_time(record))
    note_passed_over(reader, refused)
    for one in spools.values():
        one.__exit__(None, None, None)
    with Spool(folder / "events") as spool:
        for _, event, at_ms in in_time_order(one.path for _, one in sorted(spools.items())):
            spool.add(event, at_ms)
    return spool, feedback


def _chosen(runs: list[SpooledRun], wanted: LogRange) -> set[str] | None:
    """Return the runs with an event in the chosen part; None: all."""
    if wanted.selection == (None, None, None) and wanted.from_ms is None and wanted.to_ms is None:
        return None

    def inside(one: SpooledRun) -> bool:
        return within(one.last_ms, wanted.from_ms, None) and within(one.first_ms, None, wanted.to_ms)

    return {one.run_id for one in runs if wanted.selection.holds(one) and inside(one)}


def _print_json(rows: list[ComparedPolicy]) -> None:
    from streamproc.model.printed import PolicyComparison, printed

    for row in rows:
        json_line(printed(row.as_json(), PolicyComparison))


def _print_text(rows: list[ComparedPolicy], *, verbose: bool) -> None:
    from streamproc.replay.comparison import best

    first = rows[0]
    healthy = sum(label.healthy for label in first.labels.values())
    stuck = sum(bool(label.stuck) for label in first.labels.values())
    labels = f"; labels: {plural(healthy, 'healthy run')}, {stuck} stuck" if first.labels else "; no outcomes"
    line(f"{plural(first.runs, 'run')}, {plural(first.turns, 'turn')}{labels}")
    line("")
    names = [clean(row.ref.name) for row in rows]
    width = max(6, *map(len, names))
    heads = ("halted", "earlier", "later", "never", "new", "turns saved", "tokens saved", "USD saved")
    known = ("false halts", "right halts") if first.labels else ()
    line(_row("  policy", width, [*heads, *known]))
    marked = best(rows) if first.labels and len(rows) > 1 else []
    for index, (row, name) in enumerate(zip(rows, names, strict=True)):
        cells = [
            len(row.halts), *(row.count(change) for change in ("earlier", "later", "never", "new")),
            f"{row.turns_after} ({row.share_saved:.1%})", row.tokens_after or "-", row.cost_after or "-",
        ]  # fmt: skip
        if first.labels:
            cells += [f"{len(row.false_halts)} of {healthy}", f"{len(row.right_halts)} of {stuck}"]
        line(_row(f"{'*' if index in marked else ' '} {name}", width, cells))
    if marked:
        line("* no other policy saves as many turns with fewer false halts")
    _print_held(rows)
    for row in rows[1:] if verbose or len(rows) == 2 else ():
        _print_changed(row, verbose=verbose)


def _print_held(rows: list[ComparedPolicy]) -> None:
    """Print what the breakers of providers would have held back, if any would have opened."""
    from streamproc.model.formats import duration

    if not any(row.held is not None and row.held.opened for row in rows):
        return
    line("")
    line("breakers of providers, and calls of the log that would have waited for them:")
    for row in rows:
        if (held := row.held) is not None:
            calls = f"{plural(held.failed, 'call')} that failed, {held.answered} that were answered"
            line(f"  {clean(row.ref.name)}: opened {held.opened} times, for {duration(held.held_ms)}; {calls}")


def _row(name: str, width: int, cells: Sequence[object]) -> str:
    """Return a line of the table. Columns are as wide as their headings, that of the turns wider."""
    widths = (7, 8, 6, 6, 5, 16, 13, 10, 12, 12)
    return f"{name:<{width + 2}}" + "".join(f" {cell!s:>{wide}}" for cell, wide in zip(cells, widths, strict=False))


def _print_changed(row: ComparedPolicy, *, verbose: bool) -> None:
    changed = [one for one in row.changed if one.change != "same"]
    line("")
    line(f"{clean(row.ref.name)}: {plural(len(changed), 'run is', 'runs are')} halted otherwise than under the first")
    shown = changed if verbose else changed[:SHOWN_MAX]
    for one in shown:
        here = "not halted" if one.halt is None else f"{one.halt.code} at turn {one.halt.turn}"
        before = "not halted" if one.before is None else f"{one.before.code} at turn {one.before.turn}"
        line(f"  {one.change:<8} {clean(one.run_id)}  {clean(here)}, first policy: {clean(before)}")
    if len(changed) > len(shown):
        line(f"  … and {len(changed) - len(shown)} more; --verbose shows them")


def _write_page(path: Path, rows: list[ComparedPolicy]) -> None:
    from streamproc.cli.sweep_page import page

    with written_file(path, "--html"):
        path.write_text(page(rows), encoding="utf-8", errors="backslashreplace")
