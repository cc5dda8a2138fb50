"""The list of runs: groups of one table, a line for each run, and the columns in which some run has something."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import quote

from streamproc.model.formats import HOUR_MS, grouped, usd
from streamproc.read_model.rows import FleetPage, LiveRun, RunFilter
from streamproc.report.markup import NOTHING, Html, foreign, tag
from streamproc.web.keys import element_id, query_of, run_href
from streamproc.web.moments import moment
from streamproc.web.views.small import loop_badge, sparkline

if TYPE_CHECKING:
    from streamproc.read_model.model import ReadModel

ROWS: Final = 120  # of a group on a page
ID_WHOLE: Final = 24  # characters of a run id that is never shortened
ID_TAIL: Final = 10  # that a shortened one keeps at its end
FleetGroup = Literal["halted", "warned", "stopped", "others", "earlier", "lost"]
GROUPS: Final[dict[FleetGroup, str]] = {
    "halted": "Halted in the last hour", "warned": "Warned", "stopped": "Stopped by people",
    "others": "Others, by spend", "earlier": "Halted earlier", "lost": "Lost: no event for a long time",
}  # fmt: skip
SORTED: Final[dict[FleetGroup, str]] = {"others": "Others"}  # the headings of a list that is sorted by a column
LETTERS: Final = {"halt": ("H", "halted"), "warn": ("W", "warned"), "stop": ("S", "stopped"), "info": ("·", "")}


class ListView(NamedTuple):
    """Which runs a list shows, in which order (`SORTS`; empty: by urgency), and whether runs can be selected."""

    chosen: RunFilter
    sort: str = ""
    selectable: bool = False

    def query(self, **more: str) -> str:
        """Return the query of this list, such as `?workflow=nightly&sort=-turns`; empty if it has nothing."""
        return query_of(self.chosen, **{"sort": self.sort} | more)


class ListColumn(NamedTuple):
    """A column: its name in classes and in `sort`, its head, and its cell. `falls`: sorted from the largest on first.
    A column that may be left out has a test whether a run has something in it."""

    name: str
    head: str
    cell: Callable[[LiveRun], Html]
    falls: bool = False
    has: Callable[[LiveRun], bool] | None = None


def _what(run: LiveRun) -> Html:
    """Return the decision in force in a sentence; of a run without one, what it does now."""
    if run.message or not run.doing:
        return tag("span", foreign(run.message)) if run.message else NOTHING
    return tag("span", foreign(run.doing, class_="mono"), class_="doing")


def _small(text: str) -> Html:
    return foreign(text) if text else NOTHING


COLUMNS: Final = (
    ListColumn("run", "Run", lambda run: run_link(run.run_id)),
    ListColumn("state", "State", lambda run: run_state(run)),
    ListColumn("what", "What happened", lambda run: _what(run)),
    ListColumn("loop", "Loop", lambda run: loop_badge(run.badge), True, lambda run: bool(run.badge)),
    ListColumn("tests", "Failing tests", lambda run: sparkline(run.failing_trend), True,
              lambda run: len(run.failing_trend) > 1),
    ListColumn("workflow", "Workflow", lambda run: _small(run.workflow), False, lambda run: bool(run.workflow)),
    ListColumn("tenant", "Tenant", lambda run: _small(run.tenant), False, lambda run: bool(run.tenant)),
    ListColumn("user", "User", lambda run: _small(run.user), False, lambda run: bool(run.user)),
    ListColumn("turns", "Turns", lambda run: Html(grouped(run.turns)), True),
    ListColumn("cost", "USD", lambda run: Html(usd(run.cost_usd_micro)) if run.cost_usd_micro else NOTHING, True,
              lambda run: bool(run.cost_usd_micro)),
    ListColumn("heard", "Last heard", lambda run: moment(run.at_ms, ago=True), True),
)  # fmt: skip


def group_page(
    model: ReadModel,
    group: FleetGroup,
    chosen: RunFilter,
    *,
    limit: int = ROWS,
    offset: int = 0,
    sort: str = "",
    dismissed_ms: int = 0,
) -> FleetPage:
    """Return runs of a group of the view. Stops up to `dismissed_ms` are left out."""
    hour_ago = time.time_ns() // 1_000_000 - HOUR_MS
    runs = partial(model.runs, filter=chosen, limit=limit, offset=offset, sort=sort)
    if group == "halted":
        return runs("halted", since_ms=hour_ago, stopped=False)
    if group == "earlier":
        return runs("halted", before_ms=hour_ago, stopped=False)
    if group == "stopped":
        return runs("halted", since_ms=dismissed_ms + 1 if dismissed_ms else 0, stopped=True)
    return runs(group)


def group_of(run: LiveRun) -> FleetGroup:
    """Return the group of the view that a run is in."""
    if run.stopped:
        return "stopped"
    recent = run.halted_at_ms >= time.time_ns() // 1_000_000 - HOUR_MS
    return "earlier" if run.group == "halted" and not recent else run.group


def run_table(found: Mapping[FleetGroup, FleetPage], view: ListView) -> Html:
    """Return the runs of these groups as one table."""
    rows = [run for one in found.values() for run in one.rows]
    empty = [f"no-{one.name}" for one in COLUMNS if one.has is not None and not any(map(one.has, rows))]
    heads = [_head(one, view) for one in COLUMNS]
    if view.selectable:
        heads.insert(0, tag("td", tag("input", type="checkbox", id="select-all", hidden=True,
                                      aria_label="Select all runs on this page"), class_="c-select"))  # fmt: skip
    width = len(heads) - len(empty)
    return tag(
        "table",
        tag("caption", "Runs", class_="unseen"),
        tag("thead", tag("tr", *heads)),
        *(part for group, one in found.items() for part in _group(group, one, view, width)),
        class_=" ".join(("runs list", *empty)),
        id="list",
        data_sorted=view.sort or None,
    )


def _group(group: FleetGroup, found: FleetPage, view: ListView, width: int) -> tuple[Html, Html]:
    """Return the heading of a group and its runs; the style hides the heading of an empty one."""
    name = SORTED.get(group, GROUPS[group]) if view.sort else GROUPS[group]
    count = tag("span", grouped(found.total), class_="count", id=f"count-{group}")
    head = tag("tr", tag("th", tag("h2", name, " ", count), colspan=width, scope="rowgroup"))
    rows = [run_row(one, selectable=view.selectable) for one in found.rows]
    return (
        tag("tbody", head, class_="group-head"),
        tag("tbody", *rows, id=f"rows-{group}", class_=f"group-{group}", data_most=ROWS),
    )


def _head(column: ListColumn, view: ListView) -> Html:
    """Return the head of a column, which sorts by it: first from its better end, then from the other."""
    first, second = (f"-{column.name}", column.name) if column.falls else (column.name, f"-{column.name}")
    follows = {first: second, second: ""}.get(view.sort, first)
    now = {column.name: "ascending", f"-{column.name}": "descending"}.get(view.sort)
    link = tag("a", column.head, href=f"/{view.query(sort=follows)}", data_sort=column.name)
    return tag("th", link, scope="col", class_=f"c-{column.name}", aria_sort=now)


def more(group: FleetGroup, found: FleetPage, view: ListView, offset: int = 0) -> Html:
    """Return the links to the runs of a group that are not on this page."""
    left = found.total - offset - len(found.rows)
    links = []
    if offset:
        before = max(0, offset - ROWS)
        links.append(tag("a", "Back", href=f"/{view.query(group=group, offset=str(before))}"))
    if left > 0:
        href = f"/{view.query(group=group, offset=str(offset + ROWS))}"
        links.append(tag("a", f"{grouped(left)} more: {GROUPS[group].lower()}", href=href))
    return tag("p", *links, class_="more", id=f"more-{group}")


@lru_cache(maxsize=4_096)  # of a page, most rows are as they were
def run_row(run: LiveRun, *, selectable: bool = False) -> Html:
    """Return the row of a run."""
    cells = [
        tag("td", one.cell(run), class_=f"c-{one.name}", data_head=one.head if one.name in ("turns", "cost") else None)
        for one in COLUMNS
    ]
    if selectable:
        box = tag("input", type="checkbox", name="run", value=quote(run.run_id, safe="", errors="replace"),
                  form="selection", aria_label=f"Select {run.run_id}")  # fmt: skip
        cells.insert(0, tag("td", box, class_="c-select"))
    return tag("tr", *cells, id=element_id(run.run_id), class_=f"row-{_look(run)}", data_order=order_of(run))


def run_link(run_id: str) -> Html:
    """Return the link to a run. A long id is shortened in its middle by the style, and is whole when it is read out."""
    href = run_href(run_id)
    if len(run_id) <= ID_WHOLE:
        return tag("a", foreign(run_id), href=href, class_="mono run-link")
    return tag("a", foreign(run_id[:-ID_TAIL], class_="id-start"), foreign(run_id[-ID_TAIL:], class_="id-end"),
               href=href, class_="mono run-link long", aria_label=run_id, title=run_id)  # fmt: skip


def order_of(run: LiveRun) -> int:
    """Return the place of a run in its group: the largest comes first."""
    if run.group == "halted":
        return run.halted_at_ms
    return run.at_ms if run.group == "warned" else run.cost_usd_micro


def run_state(run: LiveRun) -> Html:
    """Return whether a run works, is warned, halted or finished, with the code of its decision. With a code, the word
    is only read out."""
    letter, word = LETTERS["stop" if run.stopped else "halt" if run.status == "halted" else run.severity]
    word = "finished" if run.status == "finished" else word or "working"
    word = "lost" if run.lost else word
    mark = tag("b", letter, class_=f"flag flag-of-{_look(run)}", aria_hidden="true")
    code = tag("code", run.code) if run.code else NOTHING
    said = tag("span", word, class_=f"word-{_look(run)}")
    return tag("span", mark, said, code, class_="state")


def _look(run: LiveRun) -> str:
    """Return the ending of the classes of a run: what a person has stopped is no alarm."""
    return "others" if run.stopped else run.group
