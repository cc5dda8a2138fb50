"""Faust's consumer, made safe for a group that has not committed anything yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka.errors import KafkaError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP


class SeekingConsumer(driver.Consumer):
    """Faust's consumer, made safe for a group that has not committed anything yet.

    Faust drops the records that it fetched during a rebalance or recovery, and seeks to the committed offset to read
    them again. Without a committed offset, or if it is 0, aiokafka does not move.
    """

    _sought = -1  # the generation of the group whose partitions have been sought
    _waiting: frozenset[TP] = frozenset()

    def resume_partitions(self, tps: Any) -> None:
        """Resume reading: the changelog at once, events only after the seek to their committed offset.

        Faust resumes partitions before it seeks. Records read in between would count as done, and the dropped records
        before them would be skipped.
        """
        if self._sought != self.app.consumer_generation_id:
            early = frozenset(tp for tp in tps if not self._is_changelog_tp(tp))
            self._waiting |= early
            tps = set(tps) - early
        super().resume_partitions(tps)

    def raise_coordination_error(self) -> None:
        """Raise the error that has ended aiokafka's coordination with the group, if one has. It never starts again."""
        client: Any = self._thread._consumer
        if client is not None and not client._closed and client._coordinator is not None:
            ended = client._coordinator._coordination_task
            if ended.done() and not ended.cancelled() and (error := ended.exception()) is not None:
                raise KafkaError("aiokafka coordinates no more") from error

    async def perform_seek(self) -> None:
        """Seek all partitions to their committed offset, and only then resume reading them."""
        generation = self.app.consumer_generation_id
        await super().perform_seek()
        waiting, self._waiting = self._waiting, frozenset()
        if generation == self.app.consumer_generation_id:
            self._sought = generation
            super().resume_partitions(set(waiting))

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek all partitions to their committed offset, or to their beginning."""
        offsets = await super().seek_to_committed()
        fresh = [tp for tp, offset in offsets.items() if not offset and not self._is_changelog_tp(tp)]
        if fresh:
            # Not `seek_to_beginning`: it waits for a fetch, which waits until earlier records are taken.
            for tp, beginning in (await self.earliest_offsets(*fresh)).items():
                self._thread.seek(tp, beginning)
        return offsets
