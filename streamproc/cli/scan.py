"""``streamproc scan``: run the engine over logs, without a broker."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from streamproc.cli.finding_output import FindingOutput
from streamproc.cli.inputs import (
    DAY_S,
    RECENT_DAYS,
    Format,
    Lenient,
    OpenedLogs,
    Strict,
    known_places,
    opened,
    recent_logs,
)
from streamproc.cli.options import Policy
from streamproc.cli.output import AsJson, OutputFile, Quiet, TextOrJsonl, Verbose, output_to, refuse_logs, written_file
from streamproc.cli.terminal import UNUSABLE, examples, fail, note

if TYPE_CHECKING:
    from streamproc.policy import Policy as LoadedPolicy
    from streamproc.replay.scan import Scan
    from streamproc.replay.turn_log import TurnLog
    from streamproc.settings import Settings

app = typer.Typer()

SHOW_MAX = 100  # turns before and after a halt

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        help="Logs of agents: files, directories or patterns. .gz and .zst files are decompressed, - is standard input."
    ),
]
Recent = Annotated[
    int | None,
    typer.Option(
        min=1,
        help=f"Scan the logs of the last DAYS days ({RECENT_DAYS}) where known tools keep them in your home directory.",
        metavar="[DAYS]",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        help="Leave out what matches of directories, patterns and --recent: a path, or the name of a file or a "
        "directory, such as '*.bak.json' or archive; repeatable.",
        metavar="PATTERN",
    ),
]
FailOnSkipped = Annotated[
    bool, typer.Option("--fail-on-skipped", help="Exit with 2 if any file was skipped, or read in part.")
]
Show = Annotated[int, typer.Option(min=0, max=SHOW_MAX, help="Print so many turns before and after each halt.")]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", min=0, help="Processes that read logs; 0: one per core, if there are several logs, over 20 MiB."
    ),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Follow the logs until Ctrl-C.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", help="Also write a report of all runs to this file; the logs are read a second time."),
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        help="With --watch, an Apprise URL to notify, such as ntfy://ntfy.sh/my-agents; repeatable. Default: "
        "STREAMPROC_NOTIFY and STREAMPROC_NOTIFY_FILE."
    ),
]


class RecentCommand(TyperCommand):
    """A command whose option ``--recent`` may come without its value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        given = []
        for place, one in enumerate(args):
            given.append(one)
            if one == "--recent" and not "".join(args[place + 1 : place + 2]).isdecimal():
                given.append(str(RECENT_DAYS))
        return super().parse_args(ctx, given)


@app.command(
    cls=RecentCommand,
    epilog=examples(
        "streamproc scan trajectories.jsonl.gz",
        "streamproc scan ~/logs a.jsonl --show 3",
        "streamproc scan a.jsonl b.jsonl --policy policy.yaml --json -o findings.jsonl",
        "streamproc scan ~/logs --html report.html",
        "streamproc scan --recent",
        "streamproc scan ~/logs --exclude archive --fail-on-skipped",
        "streamproc scan ~/logs --watch",
        "my-agent | streamproc scan - --lenient",
    ),
)
def scan(
    paths: Paths = None,
    format_name: Format = None,
    recent: Recent = None,
    exclude: Exclude = None,
    policy: Policy = None,
    format_: TextOrJsonl = "text",
    as_json: AsJson = False,
    output: OutputFile = None,
    show: Show = 0,
    jobs: Jobs = 0,
    watch: Watch = False,
    html: Html = None,
    notify: Notify = None,
    lenient: Lenient = False,
    strict: Strict = False,
    fail_on_skipped: FailOnSkipped = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find loops, stalls and overspending in recorded runs.

    A bad file of several is skipped. Exit 0: no halt; 1: at least one; 2: a file that you named cannot be read.
    """
    from streamproc.policy import load_policy
    from streamproc.settings import load_settings

    settings = load_settings(policy=policy)
    chosen = load_policy(settings.policy)
    logs = list(paths or ())
    if notify and not watch:
        raise fail("--notify needs --watch; `streamproc notify` notifies about the runs of a fleet")
    if fail_on_skipped and watch:
        raise fail("--fail-on-skipped needs a scan that ends: leave --watch out")
    excluded = exclude or []
    found: list[str] = []
    if recent is not None and watch:
        logs += known_places()
    elif recent is not None:
        found = recent_logs(recent, excluded)
    if not (logs or found):
        raise fail("no logs: give files, directories or patterns, - for standard input, or --recent 7")
    if html is not None and (watch or "-" in logs):
        raise fail("--html reads the logs a second time: leave out --watch, and give files in place of -")
    refuse_logs([output, html], [*logs, *found])
    jsonl = as_json or format_ == "jsonl"
    chosen_logs = LogChoice(logs, format_name, found, excluded, lenient, strict)
    skipped: dict[str, Any] = {}
    with output_to(output):
        printing = FindingOutput(jsonl=jsonl, show=show, quiet=quiet, verbose=verbose)
        if watch:
            halted = _watched(chosen_logs, recent, chosen, settings, printing, notify)
        else:
            with chosen_logs.opened("scanning", quiet=quiet) as sources:
                halted = printing.all_of(scan_of(sources, chosen, settings, jobs, printing.turn_log), sources)
                skipped = sources.skipped
            if html is not None:
                _report(html, chosen_logs, policy, chosen, settings, quiet)
    if skipped and (fail_on_skipped or strict or not skipped.keys().isdisjoint(logs)):
        raise typer.Exit(UNUSABLE)
    if halted:
        raise typer.Exit(1)


class LogChoice(NamedTuple):
    """The logs that a scan reads, and how."""

    paths: list[str]
    format_name: str | None
    found: list[str]  # by --recent
    excluded: list[str]
    lenient: bool
    strict: bool

    def opened(self, title: str, *, quiet: bool) -> AbstractContextManager[OpenedLogs]:
        """Open them under a progress bar with this title."""
        return opened(
            self.paths, self.lenient, title, strict=self.strict, format_name=self.format_name, quiet=quiet,
            found=self.found, exclude=self.excluded, go_on=True,
        )  # fmt: skip


def _watched(
    logs: LogChoice,
    recent: int | None,
    policy: LoadedPolicy,
    settings: Settings,
    printing: FindingOutput,
    notify: list[str] | None,
) -> bool:
    """Follow logs until Ctrl-C. Return whether a run was halted."""
    from streamproc.cli.following import follow, notification_config
    from streamproc.fingerprint import HashKey
    from streamproc.replay.following import Followed
    from streamproc.replay.scan import Scan

    if "-" in logs.paths:
        raise fail("standard input is followed anyway: leave --watch out, or give files and directories")
    key = HashKey.of(settings.hash_key.get_secret_value())
    since = 0.0 if recent is None else time.time() - recent * DAY_S
    followed = Followed(
        logs.paths, key, format_name=logs.format_name, lenient=logs.lenient, strict=logs.strict, since=since,
        exclude=logs.excluded,
    )  # fmt: skip
    config = notification_config(settings, notify or [])
    scan = Scan([], policy, key, turn_log=printing.turn_log)
    return follow(followed, scan, printing, config, quiet=printing.quiet)


def _report(
    path: Path, logs: LogChoice, policy_name: str | None, policy: LoadedPolicy, settings: Settings, quiet: bool
) -> None:
    """Write the report of a scan, as `streamproc report --log` does."""
    from streamproc.cli.post_mortem import commands_of
    from streamproc.fingerprint import HashKey
    from streamproc.report import Recording, write_report

    recording = Recording(policy)
    recording.commands = commands_of([*logs.paths, *logs.found], logs.format_name, policy_name, None, None)
    with logs.opened("reporting", quiet=True) as sources:
        for _ in recording.read(sources, HashKey.of(settings.hash_key.get_secret_value())):
            pass
    with written_file(path, "--html"):
        write_report(path, recording, source=settings.policy)
    if not quiet:
        note(f"wrote {path}")


def scan_of(sources: OpenedLogs, policy: LoadedPolicy, settings: Settings, jobs: int, turn_log: TurnLog | None) -> Scan:
    """Return the scan of logs, by as many processes as are useful."""
    from streamproc.fingerprint import HashKey
    from streamproc.replay.parallel import PARALLEL_BYTES_MIN, ParallelScan
    from streamproc.replay.scan import Scan, size_of

    secret = settings.hash_key.get_secret_value()
    if jobs == 0:
        large = len(sources) > 1 and sum(size_of(one.log) for one in sources) >= PARALLEL_BYTES_MIN
        jobs = os.cpu_count() or 1 if large else 1
    if jobs == 1 or len(sources) < 2 or any(one.log.is_stream for one in sources):
        return Scan(sources, policy, HashKey.of(secret), turn_log=turn_log)
    return ParallelScan(
        sources, policy, reading=sources.reading, secret=secret, jobs=jobs, turn_log=turn_log,
        on_progress=sources.bar.advance,
    )  # fmt: skip
