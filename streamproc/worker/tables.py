"""The table `runs`: the state of each run, in memory and in the table's changelog.

The state of a run holds its windows of hashes, and those of each cycle of its graph (`core.signals.cycle_memory`): one
changelog record carries a whole run. A run is kept as the encoded bytes of its state. The states of active runs are
also kept decoded. Changed states are collected once per write, however many turns changed them, and count as stored
once the broker has acknowledged them.

Everything is kept by partition. A partition that moves away takes its runs along. One that stays is not restored again,
because the changelog offset up to which its runs are in memory is known. A run that appears in two partitions (from
publishers that partition differently) is two runs: the log of each partition is ordered, both together are not.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, cast

import msgspec

from streamproc.core.run_state import RunState, dump, halted_rest, peek, stub_of
from streamproc.core.states import Held
from streamproc.kafka.log_limit import LogLimit
from streamproc.worker.codec import (
    encode_run,
    halt_of,
    is_of_another_version,
    peek_run,
    peek_with_deadline,
    state_bytes,
)
from streamproc.worker.deadline_queue import DeadlineQueue
from streamproc.worker.eviction import HALTED, KEEP_MS, ORDER, RANKS, STUB, Leaving, rank_of, surplus
from streamproc.worker.limits import STATE_BYTES_MAX, SWEEP_RUNS_MAX
from streamproc.worker.new_runs import NewRuns
from streamproc.worker.partition_store import Change, read_up_to
from streamproc.worker.run_limits import RunLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.core.charges import Charge
    from streamproc.worker.records import Fetched

log = logging.getLogger("streamproc.worker")
limited = LogLimit(log)


class Runs:
    """The runs of one partition."""

    def __init__(self, partition: int, run_limits: RunLimits) -> None:
        self.partition = partition
        self.active: dict[bytes, Held] = {}
        self.dirty: dict[bytes, list[Fetched]] = {}  # changed states, with the records applied since the last `take`
        self.deadline_queue = DeadlineQueue()
        self.charges: list[Charge] = []  # to accounts, not published yet
        self.payers: set[tuple[str, str]] = set()  # the sessions and users that these are of
        self.halts: dict[bytes, bytes] = {}  # by run: the decision that halted it, or the event that resumed it
        self.applied = -1  # the last offset of the turns topic that any restored run has applied
        self.changelog_offset: int | None = None  # the last record of the changelog that is in memory
        self.new_runs = NewRuns()
        self.removed = 0
        self.unreadable = 0
        self.of_another_version: set[bytes] = set()  # runs whose state this version cannot read
        self._limits = run_limits
        self._worked: dict[bytes, None] = {}  # runs that changed since `take_active`
        self._cached: dict[bytes, Held] = {}  # read, not used lately
        self.states = run_limits.states
        self._stored: dict[bytes, bytes] = {}
        self._under_way: dict[bytes, bytes | None] = {}
        self.overwritten: set[bytes] = set()  # runs whose last record in the changelog is older than their state
        self.overdue: set[bytes] = set()  # runs that leave the table with the next write, unless they change before
        # By rank: when a run may be removed. The one idle longest comes first.
        self._expiries: tuple[dict[bytes, int], ...] = tuple({} for _ in RANKS)

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, key: bytes) -> bool:
        return self.raw(key) is not None

    def ranks(self) -> list[int]:
        """Return how many runs of each rank there are."""
        return [len(expiries) for expiries in self._expiries]

    def raw(self, key: bytes) -> bytes | None:
        """Return the encoded state of a run as last written; None for a new run."""
        if key in self._under_way:
            return self._under_way[key]
        return self._stored.get(key)

    def state(self, key: bytes) -> RunState | None:
        """Return the state of a run, to read it before another one is opened; None for a new run."""
        held = self.active.get(key) or self.load(key)
        return self.states.open(held) if held is not None else None

    def peek(self, key: bytes) -> RunState | None:
        """Return the state of a run, as `state` does, without making the run active."""
        if (state := self.decoded(key)) is not None:
            return state
        written = self._written(key)
        return self.states.open(written[0]) if written is not None else None

    def load(self, key: bytes) -> Held | None:
        """Make a run active, and return its state as it is kept; None for a new run."""
        state = self._cached.pop(key, None)
        if state is None:
            written = self._written(key)
            if written is None:
                return None
            state, halt = written
            if halt is not None:
                self.halts[key] = halt
        self.keep(key, state)
        return state

    def _written(self, key: bytes) -> tuple[Held, bytes | None] | None:
        """Return a run as last written; None if it is new or unreadable, and then it starts from scratch. A halted run
        stays halted: only an operator lifts a halt."""
        raw = self.raw(key)
        if raw is None:
            return None
        try:
            return self.states.unpacked(state_bytes(raw)), halt_of(raw)
        except (msgspec.DecodeError, struct.error) as problem:
            self.unreadable += 1
            head = peek(state_bytes(raw))
            halted = head is not None and head.halted >= 0
            text = "the stored state of run %r is unreadable; the run %s: %s"
            what = "stays halted, without its spend and evidence" if halted else "starts from an empty state"
            limited(logging.ERROR, f"unreadable states of partition {self.partition}", text, key[:64], what, problem)
            if head is None or not halted:
                return None
            return self.states.unpacked(dump(halted_rest(head, self.partition))), halt_of(raw)

    def keep(self, key: bytes, state: Held) -> None:
        """Make a run active. Past a partition's share, the active runs become the cached ones, and those are dropped.

        Changed states stay active until they are taken. `active` is another dict after this.
        """
        if len(self.active) >= max(self._limits.active_share, 2 * len(self.dirty)):
            self._cached = {k: v for k, v in self.active.items() if k not in self.dirty}
            self.active = {k: v for k, v in self.active.items() if k in self.dirty}
        self.active[key] = state

    def known(self) -> list[bytes]:
        """Return the keys of all current runs."""
        return [*self._stored, *(key for key in self.active if key not in self._stored)]

    def decoded(self, key: bytes) -> RunState | None:
        """Return the state of a run if it is active or cached."""
        held = self.active.get(key) or self._cached.get(key)
        return self.states.open(held) if held is not None else None

    def rebuild(self, key: bytes, step: Callable[[Held, Fetched], Held]) -> Held:
        """Return the state of a run before a failed step: what is kept, or, if that has changed, the written state plus
        the records applied since."""
        held = self.active[key]
        if isinstance(held, bytes):
            return held
        written = self._written(key)
        state = written[0] if written is not None else self.states.begin(self.partition)
        for record in self.dirty.get(key, ()):
            state = step(state, record)
        return state

    @property
    def changed(self) -> int:
        """The number of runs that changed and were not taken yet."""
        return len(self.dirty)

    def take(self, most: int | None = None) -> list[Change]:
        """Return the changed states, encoded, and what replaces runs that have to go; under way until `stored`.

        Of more than `most` states, those that changed first are taken.
        """
        changes: list[Change] = []
        taken = list(islice(self.dirty, most))
        self.overdue.difference_update(self.dirty)
        for key in taken:
            held = self.active[key]
            state = self.states.open(held)
            due_ms = self._limits.due_ms(state)
            self.deadline_queue.set(key, due_ms)
            halt = self.halts.get(key)
            rank = rank_of(state, halt)
            raw = encode_run(stub_of(state) if rank == STUB else self.states.packed(held), halt, due_ms)
            if len(raw) > STATE_BYTES_MAX:
                raw = self._shrunk(key, state)
            changes.append((key, raw))
            self._age(key, rank)
        self._worked.update(dict.fromkeys(taken))
        again = self.overwritten.difference(self.dirty)
        changes += [(key, stored) for key in again if (stored := self.raw(key)) is not None]
        self.overwritten.clear()
        for key in taken:
            del self.dirty[key]
        self._under_way.update(changes)
        instead = self._evict(SWEEP_RUNS_MAX + len(changes))  # at least as many as arrive
        self._under_way.update(instead)
        return changes + instead

    def take_active(self) -> Iterable[bytes]:
        """Return the runs whose states were taken since the last call."""
        worked, self._worked = self._worked, {}
        return worked

    def _shrunk(self, key: bytes, state: RunState) -> bytes:
        """Reset a state that has grown too large, but keep whether the run was halted or has finished."""
        text = "the state of run %r was too large to store; the run starts from an empty state"
        limited(logging.ERROR, f"states too large in partition {self.partition}", text, key[:64])
        fresh = RunState()
        fresh.partition, fresh.offset, fresh.turns = state.partition, state.offset, state.turns
        fresh.at_ms, fresh.finished, fresh.halted = state.at_ms, state.finished, state.halted
        fresh.escalation.severity = state.escalation.severity
        fresh.escalation.halt_code.set(state.escalation.halt_code.get())
        self.active[key] = self.states.close(fresh)
        return encode_run(fresh, None)

    def stored(self, changes: Iterable[Change], last_offset: int | None) -> None:
        """Note that the broker has acknowledged these changes, the last one at `last_offset`."""
        before, written = len(self._stored), 0
        for key, raw in changes:
            if self._under_way.get(key) is raw:
                self._under_way.pop(key, None)
            self._set(key, raw)
            written += 1
        self._limits.runs += len(self._stored) - before
        self.changelog_offset = read_up_to(self.changelog_offset, written, last_offset)

    def restore(self, key: bytes, raw: bytes | None, offset: int) -> None:
        """Apply a record of the changelog.

        Of two states of a run, the one that has applied more of the log wins: an expelled worker may have written once
        more after its successor. The winner is then written again, because compaction keeps only the last record.
        """
        self.changelog_offset = offset
        known = self._stored.get(key)
        self.of_another_version.discard(key)
        if raw is None:
            self._remove(key)
            self.overwritten.discard(key)
            self._set(key, None)
            self._limits.runs -= known is not None
            return
        seen = peek_with_deadline(raw)
        if seen is None:
            self.unreadable += 1
            if is_of_another_version(raw):
                self.of_another_version.add(key)
            return
        applied, rank, due_ms = seen
        if known is None:
            self._limits.runs += 1
        elif applied < (peek_run(known) or (-1,))[0]:
            self.overwritten.add(key)
            return
        else:
            self._remove(key)
            self.overwritten.discard(key)
        self._stored[key] = raw
        self._age(key, rank)
        self.deadline_queue.set(key, due_ms)
        self.applied = max(self.applied, applied)

    def restore_batch(self, records: Iterable[Fetched]) -> None:
        """Apply records of the changelog, oldest first.

        The first record of a run replaces nothing, so nothing of the run has to be removed first.
        """
        stored, under_way, now_ms = self._stored, self._under_way, self._limits.now_ms()
        expiries = [(by_run, now_ms + keep_ms) for by_run, keep_ms in zip(self._expiries, KEEP_MS, strict=True)]
        for record in records:
            key, raw = cast(bytes, record.key), record.value
            seen = peek_with_deadline(raw) if raw is not None and key not in stored and key not in under_way else None
            if raw is None or seen is None:
                self.restore(key, raw, record.offset)
                continue
            if self.of_another_version:
                self.of_another_version.discard(key)
            applied, rank, due_ms = seen
            stored[key] = raw
            by_run, expiry_ms = expiries[rank]
            by_run[key] = expiry_ms
            if due_ms:
                self.deadline_queue.set(key, due_ms)
            if applied > self.applied:
                self.applied = applied
            self._limits.runs += 1
            self.changelog_offset = record.offset

    def restored(self, offset: int) -> None:
        """Note that the changelog was read up to this offset, whose record compaction may have removed."""

    def discard(self) -> None:
        """Delete everything on `leave`: it belongs to a topic that was deleted."""

    def leave(self) -> None:
        """Drop everything: the partition has moved to another worker."""
        self._limits.runs -= len(self._stored)
        self._stored.clear()
        self.active.clear()
        self.charges.clear()
        self.payers.clear()

    def _set(self, key: bytes, raw: bytes | None) -> None:
        if raw is None:
            self._stored.pop(key, None)
        else:
            self._stored[key] = raw

    def _age(self, key: bytes, rank: int) -> None:
        """Set the expiry of a run by this machine's clock: log time may be long ago, as in an imported log."""
        for expiries in self._expiries:
            expiries.pop(key, None)  # it moves to the end of the dict
        self._expiries[rank][key] = self._limits.now_ms() + KEEP_MS[rank]

    def _evict(self, most: int) -> list[Change]:
        """Remove runs that are finished or idle for long, or exceed the run limit; return what to write instead."""
        changes: list[Change] = []
        overdue, self.overdue = self.overdue, set()
        for key, rank, early in [*self._leaving(most), *(Leaving(key, STUB, early=False) for key in overdue)]:
            stub = self._stub(key) if rank == HALTED else None
            self._remove(key)
            if stub is not None:
                self._age(key, STUB)
            else:
                self.removed += 1
                self._limits.evicted += early
                self._limits.forgotten_halts += early and rank == STUB
            changes.append((key, stub))
        return changes

    def _leaving(self, most: int) -> list[Leaving]:
        """Return the runs that have to go, at most `most`. A run with changes that were not taken yet stays."""
        now_ms, leaving = self._limits.now_ms(), list[Leaving]()
        over = surplus(self.ranks(), self._limits.runs_share)
        for rank in ORDER:
            left = over[rank]
            for key, expiry_ms in self._expiries[rank].items():
                if len(leaving) >= most or (expiry_ms > now_ms and left <= 0):
                    break
                if key not in self.dirty:
                    leaving.append(Leaving(key, rank, expiry_ms > now_ms))
                    left -= 1
        return leaving

    def _stub(self, key: bytes) -> bytes | None:
        written = self._written(key)
        return encode_run(stub_of(self.states.open(written[0])), None) if written is not None else None

    def _remove(self, key: bytes) -> None:
        self.active.pop(key, None)
        self._cached.pop(key, None)
        self.halts.pop(key, None)
        self.deadline_queue.set(key, 0)
        for expiries in self._expiries:
            expiries.pop(key, None)
