"""The Faust table `runs` and its store: the partitions of this worker, each a `Runs` (`worker.tables`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

from streamproc.errors import StatesOfAnotherVersion
from streamproc.worker.partition_store import PartitionStore
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.tables import Runs
from streamproc.worker.vendor import StoreTable

log = logging.getLogger("streamproc.worker")


class RunStore(PartitionStore[Runs]):
    """The store of the table `runs`: one `Runs` for each partition of this worker."""

    on_disk: Callable[[int], Runs] | None = None
    """Opens the runs of a partition on disk, if they are kept there. (The worker sets this.)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.run_limits = RunLimits()
        self.failed: Callable[[BaseException], None] = lambda _problem: None
        """Called with errors that Faust would only log. (The worker sets this.)"""

    def _new(self, partition: int) -> Runs:
        return Runs(partition, self.run_limits) if self.on_disk is None else self.on_disk(partition)

    def _counted(self) -> None:
        self.run_limits.share(len(self.partitions))

    def forget_another_log(self, ends: dict[int, int]) -> None:
        """Drop runs that have applied offsets beyond the end of their partition of the turns topic.

        The topic was deleted and created again. Its offsets start at 0, and these runs would skip new records.
        """
        for partition, end in ends.items():
            runs = self.partitions.get(partition)
            if runs is not None and runs.applied >= end:
                log.warning("the turns topic was recreated; dropping %d runs of partition %d", len(runs), partition)
                runs.discard()
                self.leave(partition)

    def require_readable(self) -> None:
        """Raise `StatesOfAnotherVersion` if this version cannot read all states: it would forget halts and budgets."""
        for partition, runs in sorted(self.partitions.items()):
            if runs.of_another_version:
                raise StatesOfAnotherVersion(partition, len(runs.of_another_version), min(runs.of_another_version))

    async def on_rebalance(
        self, assigned: set[Any], revoked: set[Any], newly_assigned: set[Any], generation_id: int = 0
    ) -> None:
        """Drop the partitions that have moved to other workers; open the others on disk."""
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)
        if self.on_disk is None:
            return
        topic = self.table.changelog_topic.get_topic_name()
        mine = [tp for tp in assigned if tp.topic == topic]
        ends = await self.app.consumer.highwaters(*mine) if mine else {}
        for tp, end in ends.items():
            runs = self.partition_of(tp.partition)
            if runs.changelog_offset is not None and runs.changelog_offset >= end:
                log.warning("%s was recreated; dropping %d runs of partition %d", topic, len(runs), tp.partition)
                runs.discard()
                self.leave(tp.partition)
                self.partition_of(tp.partition)

    async def on_recovery_completed(self, active_tps: set[Any], standby_tps: set[Any]) -> None:  # noqa: ARG002 (Faust's signature)
        """Log the partitions and runs of this worker."""
        if self.on_disk is not None:
            tables: Any = self.app.tables
            try:
                for tp in active_tps:
                    self.partition_of(tp.partition).restored(tables.recovery.active_offsets.get(tp, -1))
            except Exception as problem:
                self.failed(problem)
                raise
        mine = ",".join(map(str, sorted(tp.partition for tp in active_tps))) or "-"
        unreadable = sum(runs.unreadable for runs in self.partitions.values())
        log.info("ready partitions=%s runs=%d unreadable=%d", mine, self.run_limits.runs, unreadable)


class RunsTable(StoreTable):
    """The table `runs`."""

    store_type = RunStore

    @property
    def store(self) -> RunStore:
        """The store, with its own type."""
        return cast(RunStore, self.data)
