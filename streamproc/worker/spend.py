"""The accounts of sessions, users and tenants in the worker: records of the spend topic in, events for runs out.

A run is in one partition and its user's runs are in many, so the lanes of turns send what was spent on by account, and
the lanes of accounts book it (`core.accounts`). What they decide goes back into the logs of the runs.
AccountPartition are told, stored and committed as runs are, by the same lanes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

import msgspec
from faust.tables.table import Table

from streamproc.core.accounts import (
    ACCOUNT_VERSION,
    Account,
    dump_account,
    load_account,
    read_statement,
    step_account,
    write_statement,
)
from streamproc.core.charges import Charge, statements
from streamproc.errors import Problem
from streamproc.model.wire import encode
from streamproc.worker.limits import ACCOUNT_KEEP_MS, ACCOUNTS_MAX, HOT_ACCOUNTS_MAX, SWEEP_RUNS_MAX
from streamproc.worker.partition_store import Change, PartitionStore, read_up_to
from streamproc.worker.publishing import BY_KEY, OutgoingRecord, dead_letter_record
from streamproc.worker.records import placed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streamproc.worker.records import Fetched, Record

log = logging.getLogger(__name__)

NOT_OURS: Final = "nobody but the workers should write to this topic"


def spend_records(charges: Iterable[Charge], partition: int) -> list[OutgoingRecord]:
    """What the turns of one partition owe, as records of the spend topic: one for each account."""
    return [
        OutgoingRecord(
            "spend", statement.account.encode("utf-8", "replace"), write_statement(statement), partition=BY_KEY
        )
        for statement in statements(charges, partition)
    ]


class AccountPartition:
    """The accounts of one partition of the spend topic, each kept as its bytes, and some decoded beside them."""

    def __init__(self, partition: int, now_ms: Callable[[], int]) -> None:
        self.partition = partition
        self.changelog_offset: int | None = None
        self.applied = -1
        self._now_ms = now_ms
        self._stored: dict[bytes, bytes] = {}
        self._hot: dict[bytes, Account] = {}
        self._dirty: set[bytes] = set()
        self._restored: set[bytes] = set()
        self._ends: dict[int, int] = {}
        self._touched: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def wake(self, key: bytes) -> Account:
        """An account, to be changed; a new one where it is not known."""
        account = self._hot.get(key)
        if account is None:
            raw = self._stored.get(key)
            account = Account() if raw is None else load_account(raw)
            if key in self._restored:
                self._restored.remove(key)
                ends = self._ends
                account.applied = {p: at for p, at in account.applied.items() if at < ends.get(p, at + 1)}
            if len(self._hot) >= max(HOT_ACCOUNTS_MAX, 2 * len(self._dirty)):
                self._hot = {known: self._hot[known] for known in self._dirty}
            self._hot[key] = account
        self._dirty.add(key)
        return account

    def verify(self, ends: dict[int, int]) -> None:
        """Given where each partition of the turns topic ended when this was restored: whoever knows of more than there
        is knows another log, whose offsets say nothing of this one."""
        self._ends = ends
        self._restored = set(self._stored)

    def undo(self, key: bytes, before: bytes) -> None:
        """The account as it was before a step that failed half way."""
        self._hot[key] = load_account(before)

    def take(self) -> list[Change]:
        """The changed accounts, encoded, and those whose time is over."""
        changes: list[Change] = []
        for key in self._dirty:
            raw = dump_account(self._hot[key])
            self._stored[key] = raw  # nobody reads it but `wake`: it may be there before the broker has it
            changes.append((key, raw))
            self._age(key)
        self._dirty.clear()
        return changes + [(key, None) for key in self._expired()]

    def stored(self, changes: Iterable[Change], last_offset: int | None) -> None:
        """The broker has these; `last_offset` is that of the last one."""
        self.changelog_offset = read_up_to(self.changelog_offset, len(list(changes)), last_offset)

    def restore(self, key: bytes, raw: bytes | None, offset: int) -> None:
        """Take in a record of the changelog. Of two states of an account the one that has booked more is right, as with
        runs: who was thought dead may have written once more."""
        self.changelog_offset = offset
        account, before = _read(raw), _read(self._stored.get(key))
        if account is not None and before is not None and account.offset < before.offset:
            return
        self._hot.pop(key, None)
        self._stored.pop(key, None)
        self._touched.pop(key, None)
        if raw is not None and account is not None:
            self._stored[key] = raw
            self._age(key)

    def leave(self) -> None:
        """Forget everything: the partition has moved to another worker."""
        self._stored.clear()
        self._hot.clear()

    def _age(self, key: bytes) -> None:
        self._touched.pop(key, None)
        self._touched[key] = self._now_ms()

    def _expired(self) -> list[bytes]:
        """AccountPartition that leave now, by this machine's clock: idle for long, or one too many."""
        oldest_ms, surplus = self._now_ms() - ACCOUNT_KEEP_MS, len(self._stored) - ACCOUNTS_MAX
        gone: list[bytes] = []
        for key, touched_ms in self._touched.items():
            if len(gone) >= SWEEP_RUNS_MAX or (touched_ms > oldest_ms and len(gone) >= surplus):
                break
            gone.append(key)
        for key in gone:
            del self._touched[key]
            self._stored.pop(key, None)
            self._hot.pop(key, None)
        return gone


def _read(raw: bytes | None) -> Account | None:
    """A stored account; None where there is none, or one of another version."""
    try:
        account = load_account(raw) if raw is not None else None
    except msgspec.DecodeError:
        return None
    return account if account is not None and account.version == ACCOUNT_VERSION else None


class AccountStore(PartitionStore[AccountPartition]):
    """The accounts of every partition that this worker has, as Faust's table wants to see them."""

    def _new(self, partition: int) -> AccountPartition:
        return AccountPartition(partition, self.now_ms)

    def forget_another_log(self, ends: dict[int, int]) -> None:
        """Given where each partition of the turns topic ends: forget what was booked of a log that is gone."""
        for accounts in self.partitions.values():
            accounts.verify(ends)


class AccountsTable(Table[bytes, bytes]):
    """The table `accounts`. It is written by the lanes, in batches, and not through its mapping."""

    def _new_store(self) -> AccountStore:
        return AccountStore("memory://", self.app, self, table_name=self.name, loop=self.loop)

    @property
    def store(self) -> AccountStore:
        """The store, by its own type."""
        return cast(AccountStore, self.data)


class AccountProcessor:
    """Books records of one partition of the spend topic."""

    def __init__(self, topic: str, *, version: str, dead_letter_bytes: int) -> None:
        self.records = 0
        self.refused = 0
        self.told = 0
        self._topic = topic
        self._version = version
        self._dead_letter_bytes = dead_letter_bytes

    def __str__(self) -> str:
        return f"statements={self.records} refused={self.refused} told={self.told}"

    def accept(self, accounts: AccountPartition, records: Sequence[Fetched]) -> list[OutgoingRecord]:
        """Book statements, oldest first; the events that runs must hear, for the turns topic."""
        letters: list[OutgoingRecord] = []
        for record in records:
            self.records += 1
            try:
                letters += self._book(accounts, record)
            except Exception as problem:  # noqa: BLE001 (a statement that cannot be booked costs itself, no more)
                letters.append(self._refused(placed(record, self._topic, accounts.partition), problem))
        return letters

    def _book(self, accounts: AccountPartition, record: Fetched) -> list[OutgoingRecord]:
        statement = read_statement(record.value or b"")
        key = statement.account.encode("utf-8", "replace")
        if key != record.key:
            raise ValueError(f"the key is {record.key!r:.80}, the account {statement.account[:80]!r}")
        account = accounts.wake(key)
        before = dump_account(account)
        try:
            told = step_account(account, statement)
        except Exception:
            accounts.undo(key, before)
            raise
        account.offset = record.offset
        self.told += len(told)
        return [
            OutgoingRecord("turns", event.run_id.encode(), encode(event), partition=partition, at_ms=event.at)
            for partition, event in told
        ]

    def _refused(self, record: Record, problem: Exception) -> OutgoingRecord:
        self.refused += 1
        log.warning("refused %s[%d]@%d: %s", record.topic, record.partition, record.offset, problem)
        what = Problem("statement", f"{type(problem).__name__}: {problem}", NOT_OURS)
        return dead_letter_record(record, (what,), version=self._version, bytes_max=self._dead_letter_bytes)
