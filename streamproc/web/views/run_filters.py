"""The filters above the list of runs: what they are is the query of the address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamproc.model.formats import clock
from streamproc.model.time_range import time_or_age_ms
from streamproc.read_model.run_filters import now_ms
from streamproc.report.markup import NOTHING, Html, tag
from streamproc.web.keys import FIELDS
from streamproc.web.moments import moment

if TYPE_CHECKING:
    from streamproc.read_model import ReadModel, RunFilter
    from streamproc.read_model.queries import Field
    from streamproc.web.views.run_rows import ListView

NAMES_MAX: Final = 200  # of a filter's suggestions
NAMED: Final[tuple[Field, ...]] = ("workflow", "tenant", "user", "code")  # what runs can be chosen by
STATES: Final = {"": "Any state", "running": "Running", "halted": "Halted", "finished": "Finished", "lost": "Lost"}
AGES: Final = {
    "": "Any time", "15m": "Last 15 minutes", "1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days",
}  # fmt: skip


def chosen_any(chosen: RunFilter) -> bool:
    """Return whether a filter leaves out any run."""
    return any(getattr(chosen, name) for name in FIELDS)


def filter_form(model: ReadModel, view: ListView) -> Html:
    """Return the form whose fields are the query of the address."""
    chosen = view.chosen
    search = tag("input", type="search", name="text", value=chosen.text, id="search", aria_label="Search",
                 placeholder="Search runs, sentences, codes", aria_keyshortcuts="/")  # fmt: skip
    hidden = [tag("input", type="hidden", name="sort", value=view.sort)] if view.sort else []
    clear = tag("a", "Show all", href="/") if chosen_any(chosen) else NOTHING
    return tag(
        "form",
        tag("span", search, class_="grow"),
        *(_field(model, name, getattr(chosen, name)) for name in NAMED),
        _choice("status", "State", STATES, chosen.status),
        *_times(chosen),
        *hidden,
        tag("button", "Filter"),
        clear,
        class_="filters chosen" if chosen_any(chosen) else "filters",
        id="filters",
        action="/",
        role="search",
    )


def _field(model: ReadModel, name: Field, value: str) -> Html:
    options = [tag("option", value=one) for one in model.names(name)[:NAMES_MAX]]
    if not options and not value:  # no run has one
        return NOTHING
    label = name.capitalize()
    shown = tag("input", name=name, value=value, list=f"known-{name}", autocomplete="off", aria_label=label,
                placeholder=label)  # fmt: skip
    return tag("span", shown, tag("datalist", *options, id=f"known-{name}"))


def _choice(name: str, label: str, options: dict[str, str], value: str) -> Html:
    listed = [tag("option", words, value=one, selected=one == value) for one, words in options.items()]
    return tag("span", tag("select", *listed, name=name, aria_label=label))


def _times(chosen: RunFilter) -> list[Html]:
    """Return the choice of an age; a time range of another page, such as a point of a chart, is shown as it is."""
    if chosen.since in AGES and not chosen.until:
        return [_choice("since", "Time", AGES, chosen.since)]
    kept = [tag("input", type="hidden", name=name, value=value)
            for name, value in (("since", chosen.since), ("until", chosen.until)) if value]  # fmt: skip
    ends = [time_or_age_ms(one, now_ms()) for one in (chosen.since, chosen.until)]
    return [*kept, tag("span", _time(ends[0], "the start"), " to ", _time(ends[1], "now"), class_="range")]


def _time(at_ms: int, otherwise: str) -> Html:
    return moment(at_ms) if clock(at_ms) else tag("span", otherwise)
