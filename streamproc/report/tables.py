"""Building blocks of the HTML of a report: tables, definition lists, cells."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from streamproc.report.markup import NOTHING, Html, tag

NUMBERS: Final = frozenset({
    "Turn", "Turns", "Times", "Used", "Limit", "Share", "Tokens", "Cost", "Events with such evidence", "Step",
    "Wasted turns", "Wasted tokens", "Wasted USD", "Runs halted", "Runs warned", "Decisions", "Partition", "Partitions",
    "Position", "End", "Behind",
})  # fmt: skip


class Cell(NamedTuple):
    """A cell of a table with the class of its column."""

    content: Any
    class_: str | None = None
    span: int | None = None


class TableRow(NamedTuple):
    """A row of a table; `mark` is for the script's filter."""

    cells: Sequence[Cell | Any]
    class_: str | None = None
    mark: bool = False


def table(heads: Sequence[str], rows: Iterable[TableRow], *, class_: str | None = None) -> Html:
    """Return a table that scrolls inside of the page; heads in `NUMBERS` are above numbers."""
    top = tag("tr", *(tag("th", name, scope="col", class_="number" if name in NUMBERS else None) for name in heads))
    body = [tag("tr", *map(_cell, row.cells), class_=row.class_, data_mark=row.mark or None) for row in rows]
    return scrolled(tag("table", tag("thead", top), tag("tbody", *body), class_=class_), "table")


def captioned(
    caption: str,
    name: str,
    heads: Sequence[str],
    rows: Iterable[Html],
    *,
    numbers: Collection[str] = (),
    class_: str | None = None,
) -> Html:
    """Return a table of rows that are made already, with a caption for screen readers. `name` is that of its region."""
    top = tag("tr", *(tag("th", one, scope="col", class_="number" if one in numbers else None) for one in heads))
    unseen = tag("caption", caption, class_="unseen")
    return scrolled(tag("table", unseen, tag("thead", top), tag("tbody", *rows), class_=class_), f"{name}, table")


def scrolled(wide: Html, name: str) -> Html:
    """Return something wide as a region that scrolls inside of the page, and that a keyboard reaches."""
    return tag("div", wide, class_="scroll", tabindex="0", role="region", aria_label=name)


def _cell(cell: Cell | Any) -> Html:
    if isinstance(cell, Cell):
        return tag("td", cell.content, class_=cell.class_, colspan=cell.span)
    return tag("td", cell)


def number(value: Any) -> Cell:
    """Return a cell with a number."""
    return Cell(value, "number")


def section(title: str, *children: Any, id_: str | None = None) -> Html:
    """Return a section with its heading; nothing if there is nothing in it."""
    if not any(children):
        return NOTHING
    return tag("section", tag("h2", title), *children, id=id_)


def folded(title: str, *children: Any, id_: str | None = None) -> Html:
    """Return a section that the script folds."""
    if not any(children):
        return NOTHING
    return tag(
        "section", tag("details", tag("summary", tag("h2", title)), *children, open=True, data_fold=True), id=id_
    )


def muted(*children: Any) -> Html:
    """Return an explanation below a heading."""
    return tag("p", *children, class_="muted")


def filter_bar(what: str, only: str = "") -> Html:
    """Return the controls that filter the table beside them; without script they are hidden."""
    box = tag("label", tag("input", type="checkbox"), only) if only else NOTHING
    search = tag("input", type="search", aria_label=what, placeholder=what, autocomplete="off")
    return tag("div", search, box, tag("output", aria_live="polite", class_="muted"), class_="filter", hidden=True)
