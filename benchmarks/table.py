"""The one table: a figure, what stands beside it, their ratio, and what was aimed at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

BEGIN: Final = "<!-- bench:begin -->"
END: Final = "<!-- bench:end -->"


class BenchmarkDefect(Exception):
    """The benchmark did not do the work that it claims to have measured."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a row should reach: `limit` for its ratio where it has one, else for its figure."""

    sign: str  # "≤" or "≥"
    limit: float

    def met(self, reached: float) -> bool:
        """Whether this is reached."""
        return reached <= self.limit if self.sign == "≤" else reached >= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `beside` names a peer or a limit, whose figure has the same unit; `ratio` is ours to
    its, unless the row was told another (a median of ratios is better than a ratio of medians). A `detail` is for
    whoever wants to know where the time goes."""

    name: str
    what: str
    figure: float
    unit: str
    beside: str = ""
    beside_figure: float | None = None
    ratio: float | None = None
    aim: Aim | None = None
    note: str = ""
    detail: bool = False

    @property
    def to_peer(self) -> float | None:
        """Our figure as a multiple of the peer's."""
        if self.ratio is not None or not self.beside_figure:
            return self.ratio
        return self.figure / self.beside_figure

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        if self.aim is None:
            return None
        return self.aim.met(self.figure if self.to_peer is None else self.to_peer)

    def cells(self) -> tuple[str, ...]:
        """The line as text: measured, figure, beside, its figure, ratio, aim."""
        ratio = self.to_peer
        aim = ""
        if self.aim is not None:
            limit = f"{self.aim.limit:g} {self.unit}" if ratio is None else f"{self.aim.limit:g}x"
            aim = f"{self.aim.sign} {limit} {'✓' if self.met else '✗'}"
        return (
            self.what + (f" ({self.note})" if self.note else ""),
            f"{shown(self.figure)} {self.unit}",
            self.beside,
            "" if self.beside_figure is None else f"{shown(self.beside_figure)} {self.unit}",
            "" if ratio is None else f"{shown(ratio)}x",
            aim,
        )


HEADINGS: Final = ("measured", "figure", "beside", "its figure", "ratio", "aim")


def shown(value: float) -> str:
    """Three significant digits, with thin groups of thousands for people: 0.0123, 4.56, 78.9, 123, 45 600."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        digits = max(0, len(str(int(abs(value)))) - 3)
        return f"{round(value, -digits):,.0f}".replace(",", " ")
    return f"{value:.3g}"


def markdown(rows: list[Row], header: list[str]) -> str:
    """The table with what was measured on, as Markdown that is also readable as it is."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    rule = "|".join("-" * (width + 2) for width in widths)
    table = [_line(cells, widths) for cells in lines]
    return "\n".join([*header, "", table[0], f"|{rule}|", *table[1:]])


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def write_between_marks(path: Path, text: str) -> None:
    """Put `text` between the marks of a document. Raises `ValueError` where they are missing."""
    document = path.read_text("utf-8")
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no lines {BEGIN} and {END} to put the table between")
    path.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", "utf-8")
