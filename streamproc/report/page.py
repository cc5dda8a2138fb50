"""A report as one HTML file: it fetches nothing, shows everything without its script, and prints."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from streamproc.report.fleet_sections import fleet_sections
from streamproc.report.markup import NOTHING, Html, safe, tag
from streamproc.report.model import FleetReport, Report, RunReport
from streamproc.report.run_sections import heading, run_sections

TITLE_MAX: Final = 80  # characters of a run id in the title
ICON: Final = "data:,"  # no icon, and no request for one


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
