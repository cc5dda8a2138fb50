"""A slice: records of one partition on their way from the consumer to the agent that processes them.

The channel between the two is in memory, and Faust clears it at a rebalance. So a slice counts as taken only when the
agent has processed it, and the consumer waits for that answer. A slice that a rebalance overtakes is withdrawn: the
agent ignores it, and its records are read again from the committed offset.

A slice has at most `SLICE_RECORDS_MAX` records, and its agent stops after `SLICE_S` (`worker.timed_records`). The
consumer goes on with the rest after the other partitions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faust.types import TP

    from streamproc.worker.fleet_commands import FleetCommands
    from streamproc.worker.partition_pipeline import PartitionPipelines
    from streamproc.worker.records import Fetched


class Slice:
    """Records of one partition, oldest first, and the answer: how many of them were processed."""

    __slots__ = ("_is_current", "answer", "records", "tp")

    def __init__(self, tp: TP, records: Sequence[Fetched], is_current: Callable[[], bool]) -> None:
        self.tp = tp
        self.records = records
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._is_current = is_current

    def apply_to(self, processor: PartitionPipelines | FleetCommands) -> None:
        """Process records for `SLICE_S`, none if the slice was withdrawn or is of an earlier generation of the group.

        Raises what the processing raises, after passing it to the consumer as well.
        """
        if self.answer.done():
            return
        if not self._is_current():
            self.answer.set_result(0)
            return
        try:
            taken = processor.accept(self.tp.partition, self.records)
        except Exception as problem:
            self.answer.set_exception(problem)
            raise
        self.answer.set_result(taken)

    def withdraw(self) -> None:
        """Let no agent process the records from now on."""
        if not self.answer.done():
            self.answer.set_result(0)
        elif not self.answer.cancelled():
            self.answer.exception()  # asyncio reports an exception that is never retrieved
