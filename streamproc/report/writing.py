"""Writes reports: as HTML, Markdown or JSON, each at most 2 MB."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from streamproc.fingerprint import HashKey
from streamproc.policy import Policy
from streamproc.replay.source import Source
from streamproc.report.building import FLEET_TURNS, REPORTS_SHOWN, TURNS_SHOWN, ReportBuilder
from streamproc.report.fleet_sections import fleet_sections
from streamproc.report.markdown import markdown_of
from streamproc.report.markup import NOTHING, Html, safe, tag
from streamproc.report.model import FleetReport, Report, RunReport
from streamproc.report.recording import Recording
from streamproc.report.run_sections import heading, run_sections

BYTES_MAX: Final = 2_000_000  # of a report: mails and tickets take it
TITLE_MAX: Final = 80  # characters of a run id in the title
ICON: Final = "data:,"  # no icon, and no request for one


def json_of(report: Report, dated: str = "") -> str:
    """Return a report as one JSON object."""
    fields = msgspec.to_builtins(report)
    return msgspec.json.encode(fields | {"dated": dated} if dated else fields).decode() + "\n"


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


def html_of(report: Report, dated: str = "") -> str:
    """Return the report as an HTML file. `dated` is when it was made; without it, equal reports are equal bytes."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="robots", content="noindex"),
        tag("title", _title(report)),
        Html(f'<link rel="icon" href="{ICON}">'),
        tag("style", Html(style)),
    )
    body = tag("body", *_body(report), _footer(report, dated), tag("script", Html(script)))
    return Html("<!DOCTYPE html>\n") + tag("html", head, body, lang="en") + Html("\n")


def _body(report: Report) -> tuple[Html, ...]:
    if isinstance(report, RunReport):
        return tag("header", heading(report)), tag("main", *run_sections(report))
    return fleet_sections(report)


def _title(report: Report) -> str:
    if isinstance(report, FleetReport):
        return f"{report.halted} of {report.runs_total} runs stuck | streamproc"
    return f"{report.state}: {report.run_id[:TITLE_MAX]} | streamproc"


def _footer(report: Report, dated: str) -> Html:
    policy = report.policy
    parts = [
        tag("p", f"streamproc {report.version}; policy {policy.name}, version {policy.version}, hash ",
            tag("code", policy.hash), ". Times are those of the log, in UTC."),
        tag("p", f"Made at {dated}.") if dated else NOTHING,
    ]  # fmt: skip
    return tag("footer", *map(safe, parts))


@cache
def _asset(name: str) -> str:
    return (files("streamproc.report") / name).read_text("utf-8")


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


FORMATS: Final[dict[str, Callable[[Report, str], str]]] = {"html": html_of, "md": markdown_of, "json": json_of}
