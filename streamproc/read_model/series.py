"""The tables `series`: what the fleet did over the last 15 minutes, hour and day, in a fixed number of buckets each.

Each window has its own buckets, so a chart reads about a hundred rows, however many turns and runs there were. Spend is
also kept by workflow and user; of one bucket, the first `NAMES_MAX` names have a row of their own, and the spend of all
others is kept in one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import exp2, floor, log2
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from streamproc.fleet.command_events import ISSUED
from streamproc.read_model.rows import DELIBERATE
from streamproc.read_model.run_facts import AMOUNT_MAX, RunFacts, scope_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from streamproc.read_model.decision_table import DecisionNews


class SeriesWindow(NamedTuple):
    """A stretch of time that ends now, and its buckets."""

    words: str
    step_ms: int
    buckets: int

    @property
    def span_ms(self) -> int:
        """Its length."""
        return self.step_ms * self.buckets


WINDOWS: Final = {
    "15m": SeriesWindow("15 minutes", 15_000, 60),
    "1h": SeriesWindow("hour", 60_000, 60),
    "24h": SeriesWindow("24 hours", 900_000, 96),
}
FINEST_MS: Final = WINDOWS["15m"].step_ms
SPARE: Final = 8  # buckets beyond a window that are kept: clocks differ
NAMES_MAX: Final = 200  # of one bucket: 500 000 names of a hostile publisher take no more room
NAME_LENGTH_MAX: Final = 256
OTHERS: Final = "\0"  # the name of all names beyond; no workflow or user has it
CLASSES_PER_OCTAVE: Final = 8  # a delay is known to 9 %
SpendField = Literal["workflow", "user"]
SPEND_FIELDS: Final[tuple[SpendField, ...]] = ("workflow", "user")

SERIES_SCHEMA: Final = """
CREATE TABLE series (step_ms INTEGER, slot INTEGER, turns INTEGER NOT NULL, cost_usd_micro INTEGER NOT NULL,
    warnings INTEGER NOT NULL, halts INTEGER NOT NULL, stops INTEGER NOT NULL,
    PRIMARY KEY (step_ms, slot)) WITHOUT ROWID;
CREATE TABLE series_spend (step_ms INTEGER, slot INTEGER, field TEXT, name TEXT, cost_usd_micro INTEGER NOT NULL,
    PRIMARY KEY (step_ms, slot, field, name)) WITHOUT ROWID;
CREATE TABLE series_delays (step_ms INTEGER, slot INTEGER, class INTEGER, count INTEGER NOT NULL,
    PRIMARY KEY (step_ms, slot, class)) WITHOUT ROWID;
"""
SERIES_TABLES: Final = ("series", "series_spend", "series_delays")
TURNS, COST, WARNINGS, HALTS, STOPS = range(5)  # places in a row of `series`


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesBucket:
    """What the fleet did in one bucket.

    `delay_ms` and `late_ms` are the median and the 95th percentile of the time from a turn to its decision; None: no
    decision.
    """

    start_ms: int
    end_ms: int
    turns: int = 0
    cost_usd_micro: int = 0
    warnings: int = 0
    halts: int = 0  # by detectors and budgets
    stops: int = 0  # runs that people have stopped
    delay_ms: int | None = None
    late_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendShare:
    """What a workflow or user has spent in a window; runs without one have an empty `name`. `others`: all further."""

    name: str
    cost_usd_micro: int
    others: bool = False


class SeriesTable:
    """Writes the tables `series`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self.drop()

    def note_turn(self, run: RunFacts, at_ms: int, cost: int) -> None:
        """Count a turn of a run, and its cost in micro-USD."""
        slot = at_ms // FINEST_MS
        sums = self._sums[slot]
        sums[TURNS] += 1
        sums[COST] += cost
        if cost:
            for field, name in zip(SPEND_FIELDS, scope_of(run), strict=True):
                self._spend[slot, field, name[:NAME_LENGTH_MAX].replace(OTHERS, "")] += cost

    def note_decisions(self, added: Iterable[DecisionNews]) -> None:
        """Count decisions, by the broker's time."""
        for one in added:
            slot, severity = one.time_ms // FINEST_MS, one.severity
            if severity == "halt" and one.code != ISSUED:  # of a command to the fleet, the halts of runs follow
                self._sums[slot][STOPS if one.code in DELIBERATE else HALTS] += 1
            elif severity == "warn":
                self._sums[slot][WARNINGS] += 1
            if one.delay_ms is not None:
                self._sums[slot]
                self._delays[slot, delay_class(one.delay_ms)] += 1

    def write(self) -> None:
        """Add what was counted to the buckets of each window."""
        for window in WINDOWS.values():
            self._write(window.step_ms)
        self.drop()

    def _write(self, step_ms: int) -> None:
        ratio = step_ms // FINEST_MS
        sums: dict[int, list[int]] = defaultdict(lambda: [0] * 5)
        for slot, found in self._sums.items():
            sums[slot // ratio] = [a + b for a, b in zip(sums[slot // ratio], found, strict=True)]
        self._db.executemany(
            f"INSERT INTO series VALUES (?, ?, ?, min(?, {AMOUNT_MAX}), ?, ?, ?) ON CONFLICT DO UPDATE SET "
            f"turns = turns + excluded.turns, warnings = warnings + excluded.warnings, halts = halts + excluded.halts, "
            f"stops = stops + excluded.stops, cost_usd_micro = {_capped('series')}",
            [(step_ms, slot, *found) for slot, found in sums.items()],
        )
        spend: Counter[tuple[int, str, str]] = Counter()
        named: dict[tuple[int, str], set[str]] = {}
        for (slot, field, name), cost in self._spend.items():
            known = self._names(named, step_ms, slot // ratio, field)
            if len(known) < NAMES_MAX:
                known.add(name)
            spend[slot // ratio, field, name if name in known else OTHERS] += cost
        self._db.executemany(
            f"INSERT INTO series_spend VALUES (?, ?, ?, ?, min(?, {AMOUNT_MAX})) ON CONFLICT DO UPDATE SET "
            f"cost_usd_micro = {_capped('series_spend')}",
            [(step_ms, *place, min(AMOUNT_MAX, cost)) for place, cost in spend.items()],
        )
        delays: Counter[tuple[int, int]] = Counter()
        for (slot, class_), count in self._delays.items():
            delays[slot // ratio, class_] += count
        self._db.executemany(
            "INSERT INTO series_delays VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
            [(step_ms, *place, count) for place, count in delays.items()],
        )

    def _names(self, named: dict[tuple[int, str], set[str]], step_ms: int, slot: int, field: str) -> set[str]:
        if (slot, field) not in named:
            rows = self._db.execute(
                "SELECT name FROM series_spend WHERE step_ms = ? AND slot = ? AND field = ?", (step_ms, slot, field)
            )
            named[slot, field] = {name for (name,) in rows if name != OTHERS}
        return named[slot, field]

    def count(self) -> None:
        """Nothing is counted: the number of rows is bounded by the buckets."""

    def drop(self) -> None:
        """Forget what was counted and not written."""
        self._sums: dict[int, list[int]] = defaultdict(lambda: [0] * 5)
        self._spend: Counter[tuple[int, str, str]] = Counter()
        self._delays: Counter[tuple[int, int]] = Counter()

    def trim(self) -> None:
        """Delete the buckets that have left their window."""
        for window in WINDOWS.values():
            cut = self._db.execute(
                "SELECT slot FROM series WHERE step_ms = ? ORDER BY slot DESC LIMIT 1 OFFSET ?",
                (window.step_ms, window.buckets + SPARE),
            ).fetchone()
            if cut is not None:
                for table in SERIES_TABLES:
                    self._db.execute(f"DELETE FROM {table} WHERE step_ms = ? AND slot <= ?", (window.step_ms, *cut))


def _capped(table: str) -> str:
    return f"min({table}.cost_usd_micro + excluded.cost_usd_micro, {AMOUNT_MAX})"


def delay_class(delay_ms: int) -> int:
    """Return the class of a delay: eight to an octave."""
    return floor(CLASSES_PER_OCTAVE * log2(min(delay_ms, AMOUNT_MAX) + 1))


def _delay_of(class_: int) -> int:
    return round(exp2((class_ + 0.5) / CLASSES_PER_OCTAVE) - 1)


def buckets_of(all_: Callable[..., list[Any]], window: SeriesWindow, now_ms: int) -> tuple[SeriesBucket, ...]:
    """Return the buckets of a window, the oldest first; the last is the current one."""
    last = now_ms // window.step_ms
    slots = range(last - window.buckets + 1, last + 1)
    place = window.step_ms, slots[0], last
    sums = {
        row[0]: row[1:]
        for row in all_(
            "SELECT slot, turns, cost_usd_micro, warnings, halts, stops FROM series "
            "WHERE step_ms = ? AND slot BETWEEN ? AND ?", *place,
        )
    }  # fmt: skip
    delays: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for slot, class_, count in all_(
        "SELECT slot, class, count FROM series_delays WHERE step_ms = ? AND slot BETWEEN ? AND ? ORDER BY class", *place
    ):
        delays[slot].append((class_, count))
    names = ("turns", "cost_usd_micro", "warnings", "halts", "stops")
    return tuple(
        SeriesBucket(
            start_ms=slot * window.step_ms, end_ms=(slot + 1) * window.step_ms,
            delay_ms=_quantile(delays[slot], 0.5), late_ms=_quantile(delays[slot], 0.95),
            **dict(zip(names, sums.get(slot, (0,) * 5), strict=True)),
        )
        for slot in slots
    )  # fmt: skip


def _quantile(classes: list[tuple[int, int]], share: float) -> int | None:
    """Return a quantile of delays that are counted by class."""
    wanted = share * sum(count for _, count in classes)
    for class_, count in classes:
        wanted -= count
        if wanted <= 0:
            return _delay_of(class_)
    return None


def spend_shares(
    all_: Callable[..., list[Any]], window: SeriesWindow, field: SpendField, now_ms: int, limit: int
) -> tuple[SpendShare, ...]:
    """Return what workflows or users have spent in a window: the largest first, and all others together last."""
    last = now_ms // window.step_ms
    rows = all_(
        "SELECT name, total(cost_usd_micro) AS cost FROM series_spend WHERE step_ms = ? AND slot BETWEEN ? AND ? "
        "AND field = ? GROUP BY name ORDER BY cost DESC, name",
        window.step_ms, last - window.buckets + 1, last, field,
    )  # fmt: skip
    named = [SpendShare(name=name, cost_usd_micro=int(cost)) for name, cost in rows if name != OTHERS]
    others = sum(int(cost) for name, cost in rows if name == OTHERS) + sum(one.cost_usd_micro for one in named[limit:])
    rest = (SpendShare(name="", cost_usd_micro=others, others=True),) if others else ()
    return (*named[:limit], *rest)
