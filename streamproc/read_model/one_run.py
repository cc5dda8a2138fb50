"""The log of one run, read and replayed when its page is opened: what each detector saw at every turn."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

from streamproc.kafka.reading import Extent, TopicReader, open_topic
from streamproc.read_model.turn_table import turn_head
from streamproc.report.recording import Recording

if TYPE_CHECKING:
    from streamproc.kafka.reading import Record
    from streamproc.policy import Policy
    from streamproc.read_model.model import ReadModel
    from streamproc.settings import Settings

TURNS_MAX: Final = 5_000  # of a run that are replayed: half a second
FIRST_WINDOW: Final = 20_000  # offsets to look at first for a run whose turns the model has not read
SEARCHED_MAX: Final = 1_000_000  # offsets to look at in all: some seconds


async def read_run(
    settings: Settings, policy: Policy, run_id: str, *, model: ReadModel, turns_max: int = TURNS_MAX
) -> Recording:
    """Read the last turns of a run from the turns topic, and replay them under a policy.

    `Recording.histories` is empty if the log has nothing of the run, and `left_out` is the number of turns before those
    that were replayed, as far as it is known. Raises `Unavailable`.
    """
    recording = Recording(policy, only=run_id)
    log = recording.replay(settings)
    async with open_topic(settings, "turns") as reader:
        records = await _RunSearch(reader, run_id, model, turns_max).found()
    kept, turns = _last(records, turns_max)
    await asyncio.to_thread(recording.feed, log, kept)
    recording.left_out = max(0, turns - turns_max, _turns_known(model, run_id) - min(turns, turns_max))
    return recording


class _RunSearch:
    """Finds the records of a run in its partition: from where the model knows, else backwards in growing windows."""

    def __init__(self, reader: TopicReader, run_id: str, model: ReadModel, turns_max: int) -> None:
        self._reader, self._run_id, self._model = reader, run_id, model
        self._key = run_id.encode("utf-8", "surrogatepass")
        row, self._point = model.run(run_id), model.point_before(run_id, turns_max)
        self._start = model.point_before(run_id, sys.maxsize)
        self._wanted = min(turns_max, _turns_known(model, run_id) or turns_max)
        partition = row.partition if row is not None else -1
        if self._point is not None:
            partition = self._point.partition
        if partition not in reader.extents:
            partition = reader.home.of(self._key)
        self._partition = partition

    async def found(self) -> list[Record]:
        """Return the records of the run, in log order."""
        begin, end = self._reader.extents[self._partition]
        first = end if self._point is None else min(end, max(begin, self._point.offset))
        known = min(end, max(first, self._model.next_offset("turns", self._partition) or 0))
        last = min(known, max(first, self._model.last_offset(self._run_id) + 1))
        records = await self._window(first, last) + await self._window(known, end)  # between, there is nothing of it
        if self._point is not None and self._start is not None and begin <= self._start.offset < first:
            records = await self._window(self._start.offset, self._start.offset + 1) + records  # its scope and budgets
        turns, width, oldest = sum(map(_is_turn, records)), FIRST_WINDOW, max(begin, end - SEARCHED_MAX)
        while first > oldest and turns < self._wanted:
            before = await self._window(max(oldest, first - width), first)
            first, width = max(oldest, first - width), width * 2
            turns += sum(map(_is_turn, before))
            records = before + records
        return records

    async def _window(self, first: int, end: int) -> list[Record]:
        self._reader.extents = {self._partition: Extent(first, end)}
        return [record async for batch in self._reader.batches() for record in batch if record.key == self._key]


def _turns_known(model: ReadModel, run_id: str) -> int:
    row = model.run(run_id)
    return row.turns if row is not None else 0


def _last(records: list[Record], turns_max: int) -> tuple[list[Record], int]:
    """Return the last turns of a run, with the events around them and its start; and the number of all its turns."""
    places = [place for place, record in enumerate(records) if _is_turn(record)]
    if len(places) <= turns_max:
        return records, len(places)
    cut = places[-turns_max]
    return [one for one in records[:cut] if b'"run.started"' in (one.value or b"")] + records[cut:], len(places)


def _is_turn(record: Record) -> bool:
    try:
        head = turn_head(record)
    except ValueError:
        return False
    return head is not None and bool(head.turn)
