"""Limited logging: what one bad record can cause, a million of them cause as well, and no disk holds their lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Any, Final
from weakref import WeakSet

FIRST_LINES: Final = 5  # of a kind, logged as they come
INTERVAL_S: Final = 30.0  # between two lines of a kind after that
KINDS_MAX: Final = 200  # kinds, such as partitions times reasons; the ones after that share one
OTHERS: Final = "other records"
LINE_MAX: Final = 1_000  # characters of a line: a record can name anything

_limits: WeakSet[LogLimit | LineRate] = WeakSet()


class LogLimit:
    """Logs the first lines of a kind, then one line an interval, with the number of lines left out before it."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._kinds: dict[Hashable, _Kind] = {}
        _limits.add(self)

    def __call__(self, level: int, kind: Hashable, text: str, *args: Any, exc_info: Any = None) -> None:
        """Log a line, or count it. `kind` says which lines are alike: a reason and a partition, say."""
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds.setdefault(kind if len(self._kinds) < KINDS_MAX else OTHERS, _Kind())
        known.lines += 1
        now_s = self._clock()
        if known.lines > FIRST_LINES and now_s - known.logged_s < INTERVAL_S:
            known.left_out += 1
            known.level = level
            return
        known.logged_s = now_s
        if len(line := text % args) > LINE_MAX:
            text, args = "%s", (line[:LINE_MAX],)  # else the values keep their names, for a log as JSON
        if known.left_out:
            text, args = f"{text} (and %d more like this before it)", (*args, known.left_out)
            known.left_out = 0
        self._log.log(level, text, *args, exc_info=exc_info if known.lines <= FIRST_LINES else None)

    def flush(self) -> None:
        """Log the numbers of lines that were left out so far."""
        for kind, known in self._kinds.items():
            if known.left_out:
                self._log.log(known.level, "%d more lines like those about %s were left out", known.left_out, kind)
                known.left_out = 0


class LineRate:
    """Logs at most so many lines a second, and counts the others in the next line."""

    def __init__(self, log: logging.Logger, lines_a_second: int) -> None:
        self._log, self._most = log, lines_a_second
        self._second = self._lines = self._left_out = 0
        _limits.add(self)

    def admits(self) -> bool:
        """Return whether there may be another line in this second; if not, it is counted."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        self._left_out += self._lines > self._most
        return self._lines <= self._most

    def __call__(self, level: int, text: str, *args: Any) -> None:
        """Log a line that was admitted."""
        if self._left_out:
            text, args = f"{text} (and %d more before it)", (*args, self._left_out)
            self._left_out = 0
        self._log.log(level, text, *args)

    def flush(self) -> None:
        """Log the number of lines that were left out so far."""
        if self._left_out:
            self._log.info("%d more such lines were left out", self._left_out)
            self._left_out = 0


class _Kind:
    __slots__ = ("left_out", "level", "lines", "logged_s")

    def __init__(self) -> None:
        self.lines = 0
        self.left_out = 0
        self.logged_s = 0.0
        self.level = logging.WARNING


def flush_limits() -> None:
    """Log the numbers of lines that every limit has left out."""
    for limit in list(_limits):
        limit.flush()
