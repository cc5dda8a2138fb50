"""Texts of the terminal screen: escaped, with styles that the theme resolves. Nothing in them is read as markup."""

from __future__ import annotations

from typing import Final

from textual.content import Content

from streamproc.model.escaping import escape
from streamproc.model.formats import grouped, usd
from streamproc.read_model.rows import FleetCounts, LiveRun

BARS: Final = "▁▂▃▄▅▆▇█"

# Letters and words say the same as the colours do.
LETTERS: Final = {"halted": "H", "warned": "W", "running": "·", "finished": "F", "lost": "?"}
STATE_STYLES: Final = {
    "halted": "bold $halt-text on $halt-ground",
    "warned": "bold $warn-text on $warn-ground",
    "running": "$good",
    "finished": "$quiet",
    "lost": "$quiet",
}
SEVERITY_STYLES: Final = {"halt": "$bad", "warn": "$caution", "info": "$quiet"}
FLEET_STYLES: Final = {"CLEAR": "$good", "PAUSE": STATE_STYLES["warned"], "STOP": STATE_STYLES["halted"]}


def styled(text: str, style: str = "") -> Content:
    """Return a text of anyone with its unprintable characters visible, as one line."""
    return Content.styled(escape(text), style)


def joined(*parts: Content | str) -> Content:
    """Return parts in a row; plain strings are ours."""
    return Content("").join([Content(part) if isinstance(part, str) else part for part in parts])


def lines(parts: list[Content]) -> Content:
    """Return parts one below the other."""
    return Content("\n").join(parts)


def state_of(run: LiveRun) -> str:
    """Return the word for the state of a run: halted, lost, warned, running, finished."""
    if run.group != "others":
        return run.group
    return "finished" if run.status == "finished" else "running"


def letter(run: LiveRun) -> Content:
    """Return the letter of a run's state, three columns wide."""
    state = state_of(run)
    return Content.styled(f" {LETTERS[state]} ", STATE_STYLES[state])


def sparkline(values: tuple[int, ...], width: int) -> str:
    """Return the last values as bars, zero as the lowest."""
    shown = values[-width:]
    most = max(shown, default=0)
    return "".join(BARS[(value * (len(BARS) - 1)) // most if most else 0] for value in shown)


def trend_style(values: tuple[int, ...]) -> str:
    """Return the style of a trend: fewer failures than before is good, as many or more is not."""
    if len(values) < 2:
        return "$quiet"
    return "$good" if values[-1] < values[0] else "$bad"


def bar(used: float, limit: float, width: int) -> Content:
    """Return how much of a limit is used, as a bar with its share."""
    share = used / limit if limit else 0.0
    full = min(width, round(share * width))
    style = "$bad" if share >= 1 else "$caution" if share >= 0.8 else "$good"
    return joined(Content.styled("█" * full, style), Content.styled("░" * (width - full), "$quiet"), f" {share:>4.0%}")


def strip(counts: FleetCounts) -> Content:
    """Return the line above the runs: the state of the fleet and what it does now."""
    parts = [joined("fleet ", Content.styled(f" {counts.fleet_status} ", FLEET_STYLES[counts.fleet_status]))]
    if counts.fleet_status != "CLEAR":
        why = f": {counts.fleet_why}" if counts.fleet_why else ""
        parts.append(styled(f"by {counts.fleet_by or 'an unnamed operator'}{why}", "$caution"))
    for number, word, style in (
        (counts.halted, "halted", "bold $bad"),
        (counts.warned, "warned", "bold $caution"),
        (counts.working, "working", "bold $good"),
        *([(counts.lost, "lost", "$quiet")] if counts.lost else []),
    ):
        parts.append(joined(Content.styled(grouped(number), style if number else "$quiet"), f" {word}"))
    rate = counts.turns_per_second
    shown = f"{rate:.1f}" if rate < 10 else grouped(round(rate))
    parts.append(joined(Content.styled(shown, "bold"), " turns/s"))
    if counts.spend_usd_micro_per_hour:
        parts.append(joined(Content.styled(usd(counts.spend_usd_micro_per_hour), "bold"), " USD/h"))
    if counts.delay_ms is not None:
        parts.append(joined("decided in ", Content.styled(f"{counts.delay_ms} ms", "bold")))
    if counts.behind_records and counts.caught_up:
        parts.append(Content.styled(f"{grouped(counts.behind_records)} records behind", "$caution"))
    return Content("  ").join(parts)


def scope_of_run(run: LiveRun) -> list[Content]:
    """Return the workflow, tenant and user of a run, those that it has."""
    return [
        joined(Content.styled(f"{name} ", "$quiet"), styled(value))
        for name, value in (("workflow", run.workflow), ("tenant", run.tenant), ("user", run.user))
        if value
    ]
