"""``streamproc report``: why a run was halted, as one file to send."""

from __future__ import annotations

import asyncio
import shlex
import sys
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamproc.cli.completion import complete_runs
from streamproc.cli.inputs import Lenient, opened
from streamproc.cli.options import Brokers, Json, Policy, TopicPrefix, log_settings
from streamproc.cli.output import refuse_logs, written_file
from streamproc.cli.ranges import note_cut, note_passed_over, shown_batches
from streamproc.cli.terminal import examples, fail, note
from streamproc.errors import plural

if TYPE_CHECKING:
    from streamproc.policy import Policy as LoadedPolicy
    from streamproc.report import Recording
    from streamproc.settings import Settings

app = typer.Typer()

Run = Annotated[
    str | None,
    typer.Argument(help="The run to report on. Without it, all runs: stuck ones first.", autocompletion=complete_runs),
]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        help="A log to read instead of the turns topic: a file, a directory, a glob, or - for standard input. May be "
        "given several times.",
    ),
]
From = Annotated[str | None, typer.Option("--from", help="The format of the logs. Default: found by their content.")]
Out = Annotated[
    str | None,
    typer.Option("--output", "-o", help="The file to write; - is standard output. Default: run.html, or runs.html."),
]
Format = Annotated[
    Literal["html", "md", "json"],
    typer.Option("--format", help="html: one page; md: for a ticket; json: for a program."),
]
Dated = Annotated[bool, typer.Option("--dated", help="Add when the report was made. Two reports then differ.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not name the file that was written.")]


@app.command(
    epilog=examples(
        "streamproc report nightly-42",
        "streamproc report nightly-42 --log turns.jsonl.gz -o nightly-42.html",
        "streamproc report --log 'logs/*.jsonl' --policy policy.yaml --format md -o -",
    )
)
def report(
    run: Run = None,
    log: Log = None,
    from_: From = None,
    policy: Policy = None,
    output: Out = None,
    format_: Format = "html",
    dated: Dated = False,
    lenient: Lenient = False,
    quiet: Quiet = False,
    as_json: Json = False,
    brokers: Brokers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Explain why a run was halted: what repeated, since when, what it cost, and what to do.

    Reads the turns topic, or logs. Exit 0: written; 2: unusable input, or no such run.
    """
    from streamproc.policy import load_policy
    from streamproc.report.writing import report_text
    from streamproc.settings import load_settings

    if as_json:
        format_, output = "json", output or "-"
    if log:
        refuse_logs([output], log)
        settings = load_settings(policy=policy)
    else:
        settings = log_settings(brokers, topic_prefix, policy=policy)
    chosen = load_policy(settings.policy)
    if log:
        recording = _read_logs(settings, chosen, run, log, from_, lenient)
    else:
        recording = asyncio.run(_read_topic(settings, chosen, run))
    recording.commands = commands_of(log, from_, policy, brokers, topic_prefix)
    if run is not None and (run not in recording.histories or recording.histories[run].unpublished):
        raise fail(_unknown(run, recording))
    if not recording.histories:
        raise fail(f"{', '.join(log or ()) or settings.topic('turns')} has no turns")
    single = run is not None or len(recording.histories) == 1
    made_at = _now() if dated else ""
    text = report_text(recording, run, settings.policy, format_=format_, dated=made_at)
    _write(text, output or f"{'run' if single else 'runs'}.{format_}", quiet)


def _read_logs(
    settings: Settings, policy: LoadedPolicy, run: str | None, log: list[str], format_name: str | None, lenient: bool
) -> Recording:
    from streamproc.fingerprint import HashKey
    from streamproc.report import Recording

    recording = Recording(policy, only=run)
    with opened(log, lenient, "reading logs", format_name=format_name, go_on=True) as sources:
        for _ in recording.read(sources, HashKey.of(settings.hash_key.get_secret_value())):
            pass
    return recording


async def _read_topic(settings: Settings, policy: LoadedPolicy, run: str | None) -> Recording:
    from streamproc.kafka.reading import open_topic
    from streamproc.report import Recording

    recording = Recording(policy, only=run)
    log = recording.replay(settings)
    async with open_topic(settings, "turns") as reader:
        async for batch in shown_batches(reader, "turns"):
            recording.feed(log, batch)
        begins = {number: extent.begin for number, extent in reader.extents.items()}
    note_cut(begins, "shown")
    note_passed_over(reader, log.refused)
    return recording


def commands_of(
    log: list[str] | None, from_: str | None, policy: str | None, brokers: str | None, topic_prefix: str | None
) -> tuple[str, ...]:
    """Return the commands that show the same again, with `RUN` for the run."""
    under = ["--policy", policy] if policy else []
    if log:
        named = [*(part for path in log for part in ("--log", path)), *(["--from", from_] if from_ else []), *under]
        return (f"streamproc report RUN {shlex.join(named)}", f"streamproc scan {shlex.join([*log, *under])}")
    place = ["--brokers", brokers] if brokers else []
    place += ["--topic-prefix", topic_prefix] if topic_prefix else []
    return (
        " ".join(["streamproc report RUN", shlex.join([*place, *under])]).rstrip(),
        " ".join(["streamproc replay --run RUN", shlex.join([*place, *under])]).rstrip(),
        " ".join(["streamproc replay --all --diff", shlex.join([*place, *under])]).rstrip(),
    )


def _unknown(run: str, recording: Recording) -> str:
    if run in recording.histories:
        return f"run {run} is unknown: only commands name it, and it has no turn in {' and '.join(recording.logs[:3])}"
    known = sorted(recording.run_ids)
    close = get_close_matches(run, known, n=3, cutoff=0.5) or known[:3]
    what = f"; it has {plural(len(known), 'run')}, such as {', '.join(close)}" if known else "; it has no runs"
    return f"no run {run} in {' and '.join(recording.logs[:3]) or 'the log'}{what}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _write(text: str, output: str, quiet: bool) -> None:
    data = text.encode("utf-8", "replace")
    if output == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    with written_file(output):
        Path(output).write_bytes(data)
    if not quiet:
        note(f"wrote {output}")
