"""Writes reports: as HTML, Markdown or JSON, each at most 2 MB."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streamproc.report.building import FLEET_TURNS, REPORTS_SHOWN, TURNS_SHOWN, ReportBuilder
from streamproc.report.markdown import markdown_of
from streamproc.report.model import FleetReport, Report, RunReport
from streamproc.report.page import html_of
from streamproc.report.recording import Recording

if TYPE_CHECKING:
    from streamproc.fingerprint import HashKey
    from streamproc.policy import Policy
    from streamproc.replay.source import Source

BYTES_MAX: Final = 2_000_000  # of a report: mails and tickets take it


def json_of(report: Report, dated: str = "") -> str:
    """Return a report as one JSON object."""
    fields = msgspec.to_builtins(report)
    return msgspec.json.encode(fields | {"dated": dated} if dated else fields).decode() + "\n"


FORMATS: Final[dict[str, Callable[[Report, str], str]]] = {"html": html_of, "md": markdown_of, "json": json_of}


def report_of(recording: Recording, run_id: str | None = None, source: Any = None, *, share: float = 1.0) -> Report:
    """Return the report of one run, or of all runs of a recording; of a single run without its id, too.

    `source` is what the policy was loaded from, so that its values have their lines. `share` scales how many turns are
    listed. Raises `KeyError` for an unknown run.
    """
    builder = ReportBuilder(recording, source)
    if run_id is None and len(recording.histories) == 1:
        run_id = next(iter(recording.histories))
    if run_id is not None:
        return builder.run(recording.histories[run_id], max(1, int(TURNS_SHOWN * share)))
    return builder.fleet(max(1, int(REPORTS_SHOWN * share)), max(1, int(FLEET_TURNS * share)))


def fleet_report(
    sources: Iterable[Source],
    policy: Policy,
    key: HashKey | None = None,
    *,
    source: Any = None,
    commands: Iterable[str] = (),
) -> FleetReport:
    """Step the engine over files, and return the report of all their runs. Raises what `Source` raises.

    `source` is what the policy was loaded from. `commands` show the same again; `RUN` in them stands for a run id.
    """
    recording = Recording(policy)
    recording.commands = tuple(commands)
    for _ in recording.read(sources, key):
        pass
    return ReportBuilder(recording, source).fleet()


def report_text(recording: Recording, run_id: str | None = None, source: Any = None, *, format_: str = "html",
                dated: str = "") -> str:  # fmt: skip
    """Return a report as a text of at most 2 MB: the larger it would be, the fewer turns it lists."""
    share = 1.0
    while True:
        text = FORMATS[format_](report_of(recording, run_id, source, share=share), dated)
        if len(text.encode("utf-8", "replace")) <= BYTES_MAX or share < 1 / 1_024:
            return text
        share /= 2


def write_report(path: str | Path, recording: Recording, run_id: str | None = None, source: Any = None, *,
                 format_: str = "html", dated: str = "") -> None:  # fmt: skip
    """Write a report to a file. Raises `OSError`."""
    text = report_text(recording, run_id, source, format_=format_, dated=dated)
    Path(path).write_text(text, "utf-8", "replace", newline="\n")


__all__ = ["FORMATS", "RunReport", "fleet_report", "html_of", "json_of", "markdown_of", "report_of", "report_text",
           "write_report"]  # fmt: skip
