"""The `runs` table: what the worker remembers of each run, on the heap and in the table's changelog.

A run is kept as the bytes of its state; those of the runs at work are decoded beside it (*hot*). Changed states are
taken once per write, however many turns changed them, and count as stored when the broker has acknowledged them.

Everything is kept by partition. A partition that moves away takes its runs along; one that stays is not read again,
because it is known up to which record of the changelog its runs are in memory. A run that is seen in two partitions
(two publishers that partition differently) is two runs: each partition's log is ordered, the two together are not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec
from faust.tables.table import Table

from streamproc.core.run_state import RunState
from streamproc.worker.codec import FRAME, pack, seen_of, unpack
from streamproc.worker.deadline_queue import DeadlineQueue
from streamproc.worker.limits import (
    FINISHED_KEEP_MS,
    HOT_RUNS_MAX,
    IDLE_KEEP_MS,
    RUNS_MAX,
    STATE_BYTES_MAX,
    SWEEP_RUNS_MAX,
)
from streamproc.worker.partition_store import Change, PartitionStore, read_up_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.worker.records import Fetched

log = logging.getLogger("streamproc.worker")


class Runs:
    """The runs of one partition."""

    def __init__(self, partition: int, census: RunLimits) -> None:
        self.partition = partition
        self.hot: dict[bytes, RunState] = {}
        self.dirty: dict[bytes, list[Fetched]] = {}  # changed states: what they took in since they were last taken
        self.alarms = DeadlineQueue()
        self.halts: dict[bytes, bytes] = {}  # the decision that halted a run, for its status
        self.applied = -1  # the last record of the turns topic that any run knew when it was restored
        self.changelog_offset: int | None = None  # the last record of the changelog that is in memory
        self.forgotten = 0
        self.unreadable = 0
        self._census = census
        self._cool: dict[bytes, RunState] = {}  # decoded, not used lately
        self._stored: dict[bytes, bytes] = {}
        self._under_way: dict[bytes, bytes | None] = {}
        self._finished: dict[bytes, int] = {}  # when a run may go; the one idle longest comes first
        self._open: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, key: bytes) -> bool:
        return self.raw(key) is not None

    def raw(self, key: bytes) -> bytes | None:
        """A run's state as it was last written; None for a run that is new."""
        if key in self._under_way:
            return self._under_way[key]
        return self._stored.get(key)

    def wake(self, key: bytes) -> RunState | None:
        """The decoded state of a run that is not hot; None for a run that is new."""
        state = self._cool.pop(key, None)
        if state is None:
            written = self._written(key)
            if written is None:
                return None
            state, halt = written
            if halt is not None:
                self.halts[key] = halt
        self.keep(key, state)
        return state

    def _written(self, key: bytes) -> tuple[RunState, bytes | None] | None:
        """A run as it was last written; None where it is new, or where nobody can read it: it begins anew."""
        raw = self.raw(key)
        try:
            return unpack(raw) if raw is not None else None
        except msgspec.DecodeError as problem:
            self.unreadable += 1
            log.error("the memory of run %r cannot be read, it begins anew: %s", key[:64], problem)
            return None

    def keep(self, key: bytes, state: RunState) -> None:
        """Make a run hot. Past a partition's share the hot ones become the cool ones, and those are forgotten.

        Changed states stay hot until they are taken. `hot` is another dict after this.
        """
        if len(self.hot) >= max(self._census.hot_share, 2 * len(self.dirty)):
            self._cool = {k: v for k, v in self.hot.items() if k not in self.dirty}
            self.hot = {k: v for k, v in self.hot.items() if k in self.dirty}
        self.hot[key] = state

    def known(self) -> list[bytes]:
        """The keys of all runs that there are now."""
        return [*self._stored, *(key for key in self.hot if key not in self._stored)]

    def decoded(self, key: bytes) -> RunState | None:
        """The state of a run, where it is decoded already."""
        return self.hot.get(key) or self._cool.get(key)

    def rebuild(self, key: bytes, step: Callable[[RunState, Fetched], None]) -> RunState:
        """The state of a run as it was before a step that failed half way: what is written, and what came since."""
        written = self._written(key)
        state = written[0] if written is not None else RunState(partition=self.partition)
        for record in self.dirty.get(key, ()):
            step(state, record)
        self.hot[key] = state
        return state

    def take(self) -> list[Change]:
        """The changed states, encoded, and the runs whose time is over. They are under way until `stored`."""
        changes: list[Change] = []
        for key in self.dirty:
            state = self.hot[key]
            due_ms = self._census.due_ms(state)
            self.alarms.set(key, due_ms)
            raw = pack(state, self.halts.get(key), due_ms)
            if len(raw) > STATE_BYTES_MAX:
                raw = self._shrunk(key, state)
            changes.append((key, raw))
            self._age(key, finished=state.finished)
        self.dirty.clear()
        changes += [(key, None) for key in self._expired(len(changes))]
        self._under_way.update(changes)
        return changes

    def _shrunk(self, key: bytes, state: RunState) -> bytes:
        """A state that somebody made too large begins anew; that the run was halted or has ended is not forgotten."""
        log.error("the memory of run %r was too large to keep; it begins anew", key[:64])
        fresh = RunState(
            partition=state.partition, offset=state.offset, turns=state.turns, at_ms=state.at_ms,
            finished=state.finished, halted=state.halted, halt_code=state.halt_code, severity=state.severity,
        )  # fmt: skip
        self.hot[key] = fresh
        return pack(fresh, None)

    def stored(self, changes: Iterable[Change], last_offset: int | None) -> None:
        """The broker has these; `last_offset` is that of the last one."""
        before, written = len(self._stored), 0
        for key, raw in changes:
            if self._under_way.get(key) is raw:
                self._under_way.pop(key, None)
            self._set(key, raw)
            written += 1
        self._census.runs += len(self._stored) - before
        self.changelog_offset = read_up_to(self.changelog_offset, written, last_offset)

    def restore(self, key: bytes, raw: bytes | None, offset: int) -> None:
        """Take in a record of the changelog.

        Of two states of a run the one that has applied more of the log is right: a worker that was thought dead
        may have written once more after its successor did.
        """
        self.changelog_offset = offset
        known = self._stored.get(key)
        if raw is None:
            self._forget(key)
            self._set(key, None)
            self._census.runs -= known is not None
            return
        seen = seen_of(raw)
        if seen is None:
            self.unreadable += 1  # written by another version: the run begins anew
            return
        applied, finished = seen
        if known is None:
            self._census.runs += 1
        elif applied < self._applied(known):
            return
        else:
            self._forget(key)
        self._stored[key] = raw
        self._age(key, finished=finished)
        self.alarms.set(key, FRAME.unpack_from(raw)[1])
        if applied > self.applied:
            self.applied = applied

    def restored(self, offset: int) -> None:
        """The changelog was read up to this record, which need not be there any more."""

    def discard(self) -> None:
        """Forget everything for good, when this is left: it is of a log that is gone."""

    def leave(self) -> None:
        """Forget everything: the partition has moved to another worker."""
        self._census.runs -= len(self._stored)
        self._stored.clear()
        self.hot.clear()

    def _applied(self, known: bytes) -> int:
        seen = seen_of(known)
        return seen[0] if seen is not None else -1

    def _set(self, key: bytes, raw: bytes | None) -> None:
        if raw is None:
            self._stored.pop(key, None)
        else:
            self._stored[key] = raw

    def _age(self, key: bytes, *, finished: bool) -> None:
        """A run was touched. By this machine's clock: the log's may be that of other days (an imported log), and when a
        run is forgotten decides nothing."""
        now_ms = self._census.now_ms()
        self._open.pop(key, None)  # to the young end
        self._finished.pop(key, None)
        if finished:
            self._finished[key] = now_ms + FINISHED_KEEP_MS
        else:
            self._open[key] = now_ms + IDLE_KEEP_MS

    def _expired(self, written: int) -> list[bytes]:
        """Runs that leave now: finished or idle for long, or one too many. As many as come, at least: `written`."""
        gone = self._leaving(SWEEP_RUNS_MAX + written)
        for key in gone:
            self._forget(key)
        self.forgotten += len(gone)
        return gone

    def _leaving(self, most: int) -> list[bytes]:
        now_ms = self._census.now_ms()
        surplus = self._census.runs - RUNS_MAX
        gone: list[bytes] = []
        for expiries in (self._finished, self._open):
            for key, expiry_ms in expiries.items():
                if len(gone) >= most or (expiry_ms > now_ms and len(gone) >= surplus):
                    break
                gone.append(key)
                self._census.evicted += expiry_ms > now_ms
        return gone

    def _forget(self, key: bytes) -> None:
        self.hot.pop(key, None)
        self._cool.pop(key, None)
        self.halts.pop(key, None)
        self.alarms.set(key, 0)
        self._open.pop(key, None)
        self._finished.pop(key, None)


class RunLimits:
    """How many runs the whole worker has, and how many decoded states each of its partitions may keep."""

    def __init__(self) -> None:
        self.runs = 0
        self.evicted = 0  # runs that had to go before their time, for want of room
        self.hot_share = HOT_RUNS_MAX // 2
        self.now_ms: Callable[[], int] = lambda: int(time.monotonic() * 1000)
        self.due_ms: Callable[[RunState], int] = lambda _state: 0  # when a run that stays silent wants to be asked

    def share(self, partitions: int) -> None:
        """Divide the hot states among partitions: each keeps as many cool ones again."""
        self.hot_share = max(1, HOT_RUNS_MAX // 2 // max(1, partitions))


class RunStore(PartitionStore[Runs]):
    """The runs of every partition that this worker has, as Faust's table wants to see them."""

    on_disk: Callable[[int], Runs] | None = None
    """Finds the runs of a partition on disk, where they are kept there. (The worker sets this.)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.census = RunLimits()
        self.failed: Callable[[BaseException], None] = lambda _problem: None
        """Told what Faust would log and forget. (The worker sets this.)"""

    def _new(self, partition: int) -> Runs:
        return Runs(partition, self.census) if self.on_disk is None else self.on_disk(partition)

    def _counted(self) -> None:
        self.census.share(len(self.partitions))

    def forget_another_log(self, ends: dict[int, int]) -> None:
        """Given where each partition of the turns topic ends: forget runs that know of more than there is.

        Somebody has made the topic anew. Its offsets began again, and these runs would skip what they have not seen.
        """
        for partition, end in ends.items():
            runs = self.partitions.get(partition)
            if runs is not None and runs.applied >= end:
                log.warning("the turns topic was made anew: forgetting %d runs of partition %d", len(runs), partition)
                runs.discard()
                self.leave(partition)

    async def on_rebalance(
        self, assigned: set[Any], revoked: set[Any], newly_assigned: set[Any], generation_id: int = 0
    ) -> None:
        """Forget the partitions that are no longer this worker's; find what is on disk of the others."""
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)
        if self.on_disk is None:
            return
        topic = self.table.changelog_topic.get_topic_name()
        mine = [tp for tp in assigned if tp.topic == topic]
        ends = await self.app.consumer.highwaters(*mine) if mine else {}
        for tp, end in ends.items():
            runs = self.runs(tp.partition)
            if runs.changelog_offset is not None and runs.changelog_offset >= end:
                log.warning("%s was made anew: forgetting %d runs of partition %d", topic, len(runs), tp.partition)
                runs.discard()
                self.leave(tp.partition)
                self.runs(tp.partition)

    async def on_recovery_completed(self, active_tps: set[Any], standby_tps: set[Any]) -> None:  # noqa: ARG002 (Faust's signature)
        """Say what this worker has now."""
        if self.on_disk is not None:
            tables: Any = self.app.tables
            try:
                for tp in active_tps:
                    self.runs(tp.partition).restored(tables.recovery.active_offsets.get(tp, -1))
            except Exception as problem:
                self.failed(problem)
                raise
        mine = sorted(tp.partition for tp in active_tps)
        unreadable = sum(runs.unreadable for runs in self.partitions.values())
        log.info(
            "ready partitions=%s runs=%d unreadable=%d", ",".join(map(str, mine)) or "-", self.census.runs, unreadable
        )


class RunsTable(Table[bytes, bytes]):
    """The table `runs`. It is written by the lanes, in batches, and not through its mapping."""

    def _new_store(self) -> RunStore:
        return RunStore("memory://", self.app, self, table_name=self.name, loop=self.loop)

    @property
    def store(self) -> RunStore:
        """The store, by its own type."""
        return cast(RunStore, self.data)
