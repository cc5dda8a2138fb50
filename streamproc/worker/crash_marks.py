"""Marks in the committed offsets: which record was in hand when a worker crashed.

Some records could end the process itself: a fault in a C extension or a plug-in, or memory. The worker would crash on
such a record for ever, and with it every run of its partitions. So the metadata of a committed offset says how the work
after this offset began and ended:

- A worker that takes over a partition commits the same offset again, with one more *try*. The first commit that makes
  progress, and a clean hand-over, remove it.
- A worker that finds a try has a crash before it, and no progress. It is *careful* for as many records as that worker
  may have had: it takes `CAREFUL_SLICE` at a time, after a commit that names them, and commits again once they are
  stepped. No other slice of the worker is processed in between.
- If it crashes with several named, the next one takes these alone, one at a time.
- A record that was named alone in `CRASHES_IN_HAND_MAX` crashes goes to the dead-letter topic.

A `kill -9` or an expelled worker looks like a crash, too. It costs a careful start, and it names a record alone only
within the few milliseconds between two commits. Twice in these of the same record is no chance.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.worker.limits import CAREFUL_RECORDS_MAX, CAREFUL_SLICE, CRASHES_IN_HAND_MAX, SUSPECTS_MAX


class CrashMark(msgspec.Struct, omit_defaults=True):
    """The metadata of a committed offset."""

    tries: int = 0  # take-overs without progress since
    hand: int = -1  # the offset of the first record that is being stepped; -1: none
    crashes: dict[int, int] = {}  # by offset: crashes in which this record was named alone
    by: str = ""  # the worker that wrote it: one that finds its own mark has not crashed, but was expelled
    size: int = 1  # offsets that are named, from `hand` on


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(CrashMark)


def read_mark(metadata: str) -> CrashMark:
    """Return the mark in the metadata of a commit; an empty one for anything else."""
    try:
        return _decoder.decode(metadata) if metadata else CrashMark()
    except msgspec.DecodeError:
        return CrashMark()


class PartitionMarks:
    """The marks of one partition since this worker took it over."""

    def __init__(self, generation: int, start: int, found: CrashMark, end: int, by: str) -> None:
        """Begin at the committed offset `start` with what was found there; `end` is the end of the log."""
        self.generation = generation
        self.failed = False
        """Whether a slice has failed: this is a crash, though the process ends in order."""
        self.start = start
        crashes = dict(found.crashes)
        crashed = found.by != by
        self._suspects = range(0)  # named together in the last crash
        if crashed and found.hand >= 0 and found.size > 1:
            self._suspects = range(found.hand, found.hand + found.size)
        elif crashed and found.hand >= start:
            crashes[found.hand] = crashes.get(found.hand, 0) + 1
        worst = sorted((offset for offset in crashes if offset >= start), key=lambda offset: -crashes[offset])
        crashes = {offset: crashes[offset] for offset in worst[:SUSPECTS_MAX]}
        self._mark = CrashMark(tries=found.tries + crashed, crashes=crashes, by=by)
        self.careful_end = max((offset + 1 for offset in crashes), default=start)  # before it, a few at a time
        self.careful_end = max(self.careful_end, self._suspects.stop)
        if found.tries and (crashed or found.tries > 1):
            self.careful_end = max(self.careful_end, min(end, start + CAREFUL_RECORDS_MAX))

    def is_poison(self, offset: int) -> bool:
        """Return whether this record was in hand in too many crashes."""
        return self._mark.crashes.get(offset, 0) >= CRASHES_IN_HAND_MAX

    def careful_slice(self, first: int) -> int:
        """Return the offset before which records from `first` on may be in hand together."""
        end = min(first + CAREFUL_SLICE, self.careful_end)
        alone = [*self._mark.crashes, *self._suspects]
        return first + 1 if first in alone else min([end, *(offset for offset in alone if offset > first)])

    def take(self, first: int, last: int) -> None:
        """Name the records that are stepped next."""
        self._mark.hand, self._mark.size = first, last - first + 1

    def release(self) -> None:
        """Name no record any more."""
        self._mark.hand, self._mark.size = -1, 1

    def leave(self) -> None:
        """Note that the partition is handed over without a crash."""
        self._mark.tries = 0
        self.release()

    def metadata(self, offset: int) -> str:
        """Return the metadata with which an offset is committed."""
        if offset > self.start and offset >= self.careful_end and self._mark.hand < 0:
            return ""
        return "" if not self._mark.tries and not self._mark.crashes else _encoder.encode(self._mark).decode()
