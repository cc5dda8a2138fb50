"""Records that are processed without a pause, for a limited time.

Some records cost a hundred times as much as others, and their publisher decides which. Whatever goes through records
gets them from here, so that it holds the event loop for about `SLICE_S` and not for as long as the records like.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from streamproc.core.compiled import core_kind
from streamproc.core.slice_steps import piece_end
from streamproc.worker.limits import (
    LARGE_RECORD_BYTES,
    PIECE_BYTES_MAX,
    SLICE_CHECK_RECORDS,
    SLICE_RECORDS_MAX,
    SLICE_S,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamproc.worker.records import Fetched

R = TypeVar("R", bound="Fetched")
PIECE_RECORDS_MAX: Final = SLICE_RECORDS_MAX if core_kind() == "compiled" else SLICE_CHECK_RECORDS


class TimedRecords(Generic[R]):
    """Records, oldest first, for as long as they may hold the event loop: at least one of them.

    They come in pieces, and the clock is checked after each: after some records, and after each large one. Its length
    is the number of records that were passed on.
    """

    def __init__(self, records: Sequence[R]) -> None:
        self._records = records
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    def __iter__(self) -> Iterator[R]:
        return chain.from_iterable(self.pieces(SLICE_CHECK_RECORDS))

    def pieces(self, records_max: int | None = None) -> Iterator[Sequence[R]]:
        """Yield the records in pieces of at most `records_max`."""
        most = PIECE_RECORDS_MAX if records_max is None else records_max
        records, end_s = self._records, time.monotonic() + SLICE_S
        while self._taken < len(records):
            begin = self._taken
            self._taken = piece_end(records, begin, most, PIECE_BYTES_MAX, LARGE_RECORD_BYTES)
            yield records[begin : self._taken]
            if time.monotonic() >= end_s:
                return
