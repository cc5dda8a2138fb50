"""The table: a figure, the figure it is compared with, their ratio, and the aim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from docs.tables import aligned


class BenchmarkDefect(Exception):
    """The benchmark did not do the work that it claims to measure."""


@dataclass(frozen=True, slots=True)
class Aim:
    """The goal of a row: `limit` for its ratio if it has one, else for its figure."""

    sign: str  # "≤" or "≥"
    limit: float

    def met(self, reached: float) -> bool:
        """Return whether `reached` meets the goal."""
        return reached <= self.limit if self.sign == "≤" else reached >= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `beside` names a peer or a limit, and `beside_figure` has the same unit as `figure`. A
    given `ratio` replaces that of the two figures: a median of ratios is better than a ratio of medians. A `detail` row
    is left out of the short table."""

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
        """Whether the aim is met; None without an aim."""
        if self.aim is None:
            return None
        return self.aim.met(self.figure if self.to_peer is None else self.to_peer)

    def cells(self) -> tuple[str, ...]:
        """Return the cells as text: measured, figure, compared with, its figure, ratio, aim."""
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


HEADINGS: Final = ("measured", "figure", "compared with", "its figure", "ratio", "aim")


def shown(value: float) -> str:
    """Format with three significant digits and grouped thousands: 0.0123, 4.56, 78.9, 123, 45 600."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        digits = max(0, len(str(int(abs(value)))) - 3)
        return f"{round(value, -digits):,.0f}".replace(",", " ")
    return f"{value:.3g}"


def markdown(rows: list[Row], header: list[str]) -> str:
    """Return the header and the table as aligned Markdown."""
    return "\n".join([*header, "", aligned([HEADINGS, *(row.cells() for row in rows)])])
