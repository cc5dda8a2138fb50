"""The strip above the runs: how the fleet stands, and numbers that say over what time they are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from aiohttp import web

from streamproc.errors import plural
from streamproc.model.formats import HOUR_MS, duration, grouped, money
from streamproc.read_model.rows import FleetCounts, RunFilter
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.access.gate import form_fields
from streamproc.web.command_views import own_session

if TYPE_CHECKING:
    from streamproc.read_model.model import ReadModel

FLEET_WORDS: Final = {"CLEAR": "running", "PAUSE": "paused", "STOP": "stopped"}
LATE_MS: Final = 5_000  # a delay of decisions that people should know of
DISMISSED: Final = "streamproc-dismissed"  # the cookie with the time of the last stop that a person has dismissed
DISMISSED_S: Final = 30 * 86_400  # as long as `runs` keeps the status of a stopped run


class FleetStanding(NamedTuple):
    """How the fleet stands: how many runs were halted in the last hour, and how many of those that people have stopped
    since then were not dismissed."""

    counts: FleetCounts
    halted: int
    stopped: int = 0


def fleet_standing(model: ReadModel, dismissed_ms: int = 0) -> FleetStanding:
    """Return how the fleet stands now, without stops that were dismissed."""
    now_ms = time.time_ns() // 1_000_000
    halted = model.runs("halted", RunFilter(), limit=1, since_ms=now_ms - HOUR_MS, stopped=False).total
    since_ms = max(now_ms - HOUR_MS, dismissed_ms + 1)
    stopped = model.runs("halted", RunFilter(), limit=1, since_ms=since_ms, stopped=True).total
    return FleetStanding(model.counts(now_ms), halted, stopped)


def headline(standing: FleetStanding) -> str:
    """Return how the fleet stands, in a sentence."""
    counts, halted, _ = standing
    if counts.fleet_status != "CLEAR":
        return f"The fleet is {FLEET_WORDS.get(counts.fleet_status, counts.fleet_status)}"
    if halted:
        return f"{plural(halted, 'run')} halted in the last hour"
    if counts.warned:
        return f"{plural(counts.warned, 'run')} with a warning"
    return "Nothing is stuck"


def strip(standing: FleetStanding, *, live: bool = True) -> Html:
    """Return the fleet at a glance."""
    counts, halted, stopped = standing
    state = "halted" if halted or counts.fleet_status == "STOP" else (
        "warned" if counts.warned or counts.fleet_status != "CLEAR" else "fine"
    )  # fmt: skip
    late = counts.delay_ms is not None and counts.delay_ms > LATE_MS
    spend = f"{money(counts.spend_usd_micro_per_hour)}/h" if counts.spend_usd_micro_per_hour else "—"
    delay = "—" if counts.delay_ms is None else shown_delay(counts.delay_ms)
    tiles = [
        _tile("Working", grouped(counts.working), f"{grouped(counts.warned)} of them warned" if counts.warned else
              "none of them warned", "is-warn" if counts.warned else ""),
        _tile("Halted", grouped(halted), "by detectors and budgets, last hour", "is-halt" if halted else ""),
        *([_tile("Stopped", tag("a", grouped(stopped), href="/?group=stopped"), "by people, last hour")]
          if stopped else []),
        *([_tile("Lost", tag("a", grouped(counts.lost), href="/?group=lost"), "no event for a long time")]
          if counts.lost else []),
        _tile("Turns", f"{counts.turns_per_second:.1f}/s", "last minute", href="/charts?window=15m#turns"),
        _tile("Spend", spend, "rate of the last 15 minutes", href="/charts?window=15m#spend"),
        _tile("Decided after", delay, "no decision in the last minute" if counts.delay_ms is None
              else "from turn to decision, median of the last minute", "is-warn" if late else "",
              href="/charts?window=15m#decided-after"),
    ]  # fmt: skip
    return tag(
        "section",
        tag("div", tag("h1", headline(standing)), _order(counts), class_="headline"),
        tag("dl", *tiles, class_="tiles"),
        _reading(counts),
        class_=f"strip {state}",
        id="strip",
        aria_live="polite" if live else None,
    )


def shown_delay(ms: int) -> str:
    """Return a delay for people."""
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s" if ms < 10_000 else duration(ms)


def _tile(name: str, value: str | Html, note: str, class_: str = "", *, href: str = "") -> Html:
    shown = tag("a", value, href=href) if href else value
    return tag("div", tag("dt", name), tag("dd", shown, tag("small", note)), class_=class_ or None)


def _order(counts: FleetCounts) -> Html:
    """Return who stopped or paused the fleet, and why."""
    if counts.fleet_status == "CLEAR":
        return NOTHING
    by = Html().join([" by ", foreign(counts.fleet_by)]) if counts.fleet_by else NOTHING
    why = Html().join([": ", foreign(counts.fleet_why)]) if counts.fleet_why else NOTHING
    return tag("p", tag("strong", counts.fleet_status), by, why, class_="lead")


def _reading(counts: FleetCounts) -> Html:
    if counts.caught_up and counts.behind_records < 1_000:
        return NOTHING
    if not counts.caught_up:
        return tag("p", tag("progress", value=f"{counts.read_share:.3f}", max=1, aria_label="read"),
                   f" Reading the topics: {100 * counts.read_share:.0f} %. What you see is not complete.",
                   class_="reading")  # fmt: skip
    return tag("p", f"This page is {grouped(counts.behind_records)} records behind its topics.", class_="reading")


# -- stops by people, which each person may dismiss


def dismissed_ms(request: web.Request) -> int:
    """Return up to when this browser has dismissed stops; 0: it has not."""
    text = request.cookies.get(DISMISSED, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 15 else 0


def dismiss_form(request: web.Request, up_to_ms: int) -> Html:
    """Return the button that takes stops off this person's fleet page."""
    return tag(
        "form",
        tag("input", type="hidden", name="csrf", value=own_session(request).csrf),
        tag("input", type="hidden", name="up_to", value=up_to_ms),
        tag("button", "Dismiss", class_="quiet"),
        tag("span", "takes them off your fleet page; they stay in Decisions", class_="muted"),
        method="post", action="/dismiss", class_="dismiss",
    )  # fmt: skip


async def dismiss(request: web.Request) -> web.Response:
    """Dismiss the stops up to a time, for this browser."""
    given = (await form_fields(request)).get("up_to", "")
    up_to = given if given.isascii() and given.isdigit() and len(given) < 15 else "0"
    answer = web.HTTPSeeOther("/")
    answer.set_cookie(DISMISSED, up_to, max_age=DISMISSED_S, httponly=True, samesite="Strict")
    raise answer
