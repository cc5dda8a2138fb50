"""The table `accounts`: what all runs of a session, a user or a tenant spend, and how their calls of a provider end.

A run is in one partition, and the runs of its user are in many, as are those that call one model. So the pipelines of
turns publish spend by account, and calls by provider and model; the pipelines of accounts book both (`core.accounts`,
`core.providers`). What an account decides becomes events in the logs of the runs; the states of providers go to the
control topic. Accounts are published, stored and committed in the same way as runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

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
from streamproc.core.local_providers import provider_event
from streamproc.core.providers import (
    BREAKER_VERSION,
    CLOSED,
    OPEN,
    Breaker,
    CallStatement,
    ProviderRules,
    due_ms,
    dump_breaker,
    load_breaker,
    read_calls,
    step_provider,
    write_calls,
)
from streamproc.errors import Problem
from streamproc.kafka.log_limit import LogLimit
from streamproc.model.escaping import escape
from streamproc.model.provider_state import PREFIX, ProviderState
from streamproc.model.wire import encode
from streamproc.worker.counts import WorkerCounts
from streamproc.worker.limits import ACCOUNT_KEEP_MS, ACCOUNTS_MAX, ACTIVE_ACCOUNTS_MAX, SWEEP_RUNS_MAX
from streamproc.worker.partition_store import Change, PartitionStore, read_up_to
from streamproc.worker.publishing import BY_KEY, POISON, OutgoingRecord, control_record, dead_letter_record
from streamproc.worker.records import Fetched, PlacedRecord, Records, placed_record
from streamproc.worker.vendor import StoreTable

if TYPE_CHECKING:
    from streamproc.policy import Policy

log = logging.getLogger(__name__)
limited = LogLimit(log)

PROVIDER_KEY: Final = PREFIX.encode()  # begins the key of a breaker
NOT_OURS: Final = "let only the workers write to this topic"


def spend_records(charges: Iterable[Charge], partition: int) -> list[OutgoingRecord]:
    """Return the charges of one partition's turns as records of the spend topic."""
    return [
        OutgoingRecord(
            "spend", statement.account.encode("utf-8", "replace"), write_statement(statement), partition=BY_KEY
        )
        for statement in statements(charges, partition)
    ]


def call_records(calls: Iterable[CallStatement]) -> list[OutgoingRecord]:
    """Return calls as records of the spend topic."""
    return [
        OutgoingRecord("spend", one.account.encode("utf-8", "replace"), write_calls(one), partition=BY_KEY)
        for one in calls
    ]


Step = Callable[[Account | Breaker], list[Any]]
"""Changes an account, and returns what follows."""


class AccountPartition:
    """The accounts and breakers of one partition of the spend topic: all encoded, active ones also decoded."""

    def __init__(self, partition: int, now_ms: Callable[[], int]) -> None:
        self.partition = partition
        self.changelog_offset: int | None = None
        self.applied = -1
        self.share, self.active_share = ACCOUNTS_MAX, ACTIVE_ACCOUNTS_MAX  # of the accounts that a worker may hold
        self._now_ms = now_ms
        self._stored: dict[bytes, bytes] = {}
        self._active: dict[bytes, Account | Breaker] = {}
        self.breakers: dict[bytes, tuple[int, int]] = {}
        """The breakers that may have to change without a call: when (log time; 0: not known), and since when they hold
        calls back (0: they do not)."""
        # Changed and not taken yet, oldest first, with the steps that were made since they were stored.
        self._dirty: dict[bytes, list[tuple[int, Step]]] = {}
        self._reached: set[bytes] = set()  # accounts that have reached a limit, and breakers that hold calls back
        self.overwritten: set[bytes] = set()  # accounts whose last record in the changelog is older than their state
        self._restored: set[bytes] = set()
        self._ends: dict[int, int] = {}
        self._touched: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def load(self, key: bytes) -> Account | Breaker:
        """Return an account for changes; a new one if it is unknown."""
        account = self._active.get(key)
        if account is None:
            raw = self._stored.get(key)
            account = _new(key) if raw is None else _load(key, raw)
            if key in self._restored:
                self._restored.remove(key)
                ends = self._ends
                account.applied = {p: at for p, at in account.applied.items() if at < ends.get(p, at + 1)}
                self._stored[key] = _dump(account)  # where `book` begins again
            if len(self._active) >= max(self.active_share, 2 * len(self._dirty)):
                self._active = {known: self._active[known] for known in self._dirty}
            self._active[key] = account
        self._dirty.setdefault(key, [])
        return account

    def book(self, key: bytes, offset: int, step: Step) -> list[Any]:
        """Change an account by the record at an offset, and return what follows. A step that fails changes nothing."""
        account = self.load(key)
        try:
            found = step(account)
        except Exception:
            raw = self._stored.get(key)
            account = self._active[key] = _new(key) if raw is None else _load(key, raw)
            for booked, again in self._dirty[key]:
                again(account)
                account.offset = max(account.offset, booked)
            raise
        account.offset = max(account.offset, offset)  # a statement that is read again books nothing
        self._dirty[key].append((offset, step))
        return found

    def verify(self, ends: dict[int, int]) -> None:
        """Check restored accounts against the ends of the turns topic's partitions.

        An account that has booked beyond an end belongs to a deleted topic, whose offsets mean nothing for this one.
        """
        self._ends = ends
        self._restored = set(self._stored)

    def peek(self, key: bytes) -> Breaker | None:
        """Return a breaker, to read it; None if there is none."""
        raw = self._stored.get(key)
        found = self._active.get(key) or (_read(key, raw) if raw is not None else None)
        return found if isinstance(found, Breaker) else None

    @property
    def changed(self) -> int:
        """The number of accounts that changed and were not taken yet."""
        return len(self._dirty)

    def take(self, most: int | None = None) -> list[Change]:
        """Return the changed accounts, encoded, and deletions of expired ones. Of more than `most`, the oldest."""
        changes: list[Change] = []
        taken = list(islice(self._dirty, most))
        for key in taken:
            raw = _dump(self._active[key])
            self._stored[key] = raw  # only `load` reads it, so it may precede the acknowledgement
            changes.append((key, raw))
            self._age(key)
            self._rank(key, self._active[key])
        again = self.overwritten.difference(self._dirty)
        changes += [(key, self._stored[key]) for key in again if key in self._stored]
        self.overwritten.clear()
        for key in taken:
            del self._dirty[key]
        return changes + [(key, None) for key in self._expired()]

    def stored(self, changes: Iterable[Change], last_offset: int | None) -> None:
        """Note that the broker has acknowledged these changes, the last one at `last_offset`."""
        self.changelog_offset = read_up_to(self.changelog_offset, len(list(changes)), last_offset)

    def restore(self, key: bytes, raw: bytes | None, offset: int) -> None:
        """Apply a record of the changelog.

        Of two states of an account, the one that has booked more wins and is written again, as with runs.
        """
        self.changelog_offset = offset
        account, before = _read(key, raw), _read(key, self._stored.get(key))
        if account is not None and before is not None and account.offset < before.offset:
            self.overwritten.add(key)
            return
        self.overwritten.discard(key)
        self._active.pop(key, None)
        self._stored.pop(key, None)
        self._touched.pop(key, None)
        self._reached.discard(key)
        self.breakers.pop(key, None)
        if raw is not None and account is not None:
            self._stored[key] = raw
            self._age(key)
            self._rank(key, account)
            if isinstance(account, Breaker):
                self.breakers[key] = 0, account.held_since_ms

    def restore_batch(self, records: Iterable[Fetched]) -> None:
        """Apply records of the changelog, oldest first."""
        for record in records:
            self.restore(cast(bytes, record.key), record.value, record.offset)

    def leave(self) -> None:
        """Drop everything: the partition has moved to another worker."""
        self._stored.clear()
        self._active.clear()

    def _age(self, key: bytes) -> None:
        self._touched.pop(key, None)
        self._touched[key] = self._now_ms()

    def _rank(self, key: bytes, account: Account | Breaker) -> None:
        """Note whether an account has a limit to remember: it is not dropped for others, as long as there are any."""
        if isinstance(account, Breaker):
            reached = account.state != CLOSED
        else:
            closed = account.tree is not None and bool(account.tree.closed)
            reached = closed or any(rung for rung, _ in account.rungs.values())
        (self._reached.add if reached else self._reached.discard)(key)

    def _expired(self) -> list[bytes]:
        """Remove accounts that are idle for long or exceed the limit, by this machine's clock."""
        spared = self._reached if len(self._reached) < self.share else frozenset[bytes]()
        oldest_ms, surplus = self._now_ms() - ACCOUNT_KEEP_MS, len(self._stored) - self.share
        gone: list[bytes] = []
        for key, touched_ms in self._touched.items():
            if len(gone) >= SWEEP_RUNS_MAX or (touched_ms > oldest_ms and len(gone) >= surplus):
                break
            if key not in self._dirty and (touched_ms <= oldest_ms or key not in spared):
                gone.append(key)
        for key in gone:
            del self._touched[key]
            self._reached.discard(key)
            self._stored.pop(key, None)
            self._active.pop(key, None)
            self.breakers.pop(key, None)
        return gone


def _new(key: bytes) -> Account | Breaker:
    return Breaker() if key.startswith(PROVIDER_KEY) else Account()


def _load(key: bytes, raw: bytes) -> Account | Breaker:
    return load_breaker(raw) if key.startswith(PROVIDER_KEY) else load_account(raw)


def _dump(account: Account | Breaker) -> bytes:
    return dump_breaker(account) if isinstance(account, Breaker) else dump_account(account)


def _read(key: bytes, raw: bytes | None) -> Account | Breaker | None:
    """Decode a stored account; None if there is none, or it has another version."""
    try:
        account = _load(key, raw) if raw is not None else None
    except msgspec.DecodeError:
        return None
    version = BREAKER_VERSION if isinstance(account, Breaker) else ACCOUNT_VERSION
    return account if account is not None and account.version == version else None


class AccountStore(PartitionStore[AccountPartition]):
    """The store of the table `accounts`: one `AccountPartition` for each partition of this worker."""

    def _new(self, partition: int) -> AccountPartition:
        return AccountPartition(partition, self.now_ms)

    def _counted(self) -> None:
        for accounts in self.partitions.values():
            accounts.share = ACCOUNTS_MAX // len(self.partitions)
            accounts.active_share = ACTIVE_ACCOUNTS_MAX // len(self.partitions)

    def forget_another_log(self, ends: dict[int, int]) -> None:
        """Drop the bookings of a turns topic that was deleted, given the ends of the current one."""
        for accounts in self.partitions.values():
            accounts.verify(ends)


class AccountsTable(StoreTable):
    """The table `accounts`."""

    store_type = AccountStore

    @property
    def store(self) -> AccountStore:
        """The store, with its own type."""
        return cast(AccountStore, self.data)


class AccountProcessor:
    """Books records of the spend topic."""

    def __init__(
        self,
        topic: str,
        *,
        version: str,
        dead_letter_bytes: int,
        counts: WorkerCounts | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._counts = counts or WorkerCounts()
        self.rules = ProviderRules() if policy is None else policy.providers
        self._policy = policy
        self.records = 0
        self.refused = 0
        self.published = 0
        self._topic = topic
        self._version = version
        self._dead_letter_bytes = dead_letter_bytes

    def __str__(self) -> str:
        return f"statements={self.records} refused={self.refused} published={self.published}"

    def accept(
        self,
        accounts: AccountPartition,
        records: Records[Fetched],
        *,
        more: bool = False,  # noqa: ARG002 (as turns are)
    ) -> list[OutgoingRecord]:
        """Book statements, oldest first; return events about reached budgets for the turns topic."""
        outgoing: list[OutgoingRecord] = []
        for record in records:
            self.records += 1
            try:
                outgoing += self._book(accounts, record)
            except Exception as problem:  # noqa: BLE001 (a statement that cannot be booked affects no other)
                outgoing.append(self._refused(placed_record(record, self._topic, accounts.partition), problem))
        return outgoing

    def due(self, accounts: AccountPartition) -> list[OutgoingRecord]:  # noqa: ARG002 (as that of turns)
        """Return nothing: `accept` holds nothing back."""
        return []

    def refuse(self, partition: int, record: Fetched) -> OutgoingRecord:
        """Return the dead letter of a statement that crashes the process. It is not booked."""
        return self._refused(placed_record(record, self._topic, partition), RuntimeError(POISON.what))

    def _book(self, accounts: AccountPartition, record: Fetched) -> list[OutgoingRecord]:
        if (record.key or b"").startswith(PROVIDER_KEY):
            return self._book_calls(accounts, record)
        statement = read_statement(record.value or b"")
        key = _key(record, statement.account)
        events = accounts.book(key, record.offset, lambda account: step_account(cast(Account, account), statement))
        self.published += len(events)
        return [
            OutgoingRecord("turns", event.run_id.encode(), encode(event), partition=partition, at_ms=event.at)
            for partition, event in events
        ]

    def _book_calls(self, accounts: AccountPartition, record: Fetched) -> list[OutgoingRecord]:
        statement = read_calls(record.value or b"")
        key = _key(record, statement.account)
        permits = set(cast(Breaker, accounts.load(key)).permits)
        states = accounts.book(key, record.offset, lambda one: step_provider(cast(Breaker, one), self.rules, statement))
        breaker = cast(Breaker, accounts.load(key))
        if due := due_ms(breaker, self.rules):
            accounts.breakers[key] = due, breaker.held_since_ms
        else:
            accounts.breakers.pop(key, None)
        for state in states:
            self._counts.provider_changed(state, len(set(state.permits) - permits))
            permits = set(state.permits)
            log.log(logging.WARNING if state.state == OPEN else logging.INFO, "%s is %s: %s", *_shown(state))
        self.published += len(states)
        return [control_record(key, provider_event(state, self._policy.ref)) for state in states if self._policy]

    def _refused(self, record: PlacedRecord, problem: Exception) -> OutgoingRecord:
        self.refused += 1
        self._counts.dead_letters["statement"] += 1
        place = f"refused statements in {record.topic}[{record.partition}]"
        limited(logging.WARNING, place, "refused %s[%d]@%d: %s", record.topic, record.partition, record.offset, problem)
        what = Problem("statement", f"{type(problem).__name__}: {problem}", NOT_OURS)
        return dead_letter_record(record, (what,), version=self._version, bytes_max=self._dead_letter_bytes)


def _key(record: Fetched, account: str) -> bytes:
    """Return the key of an account, which must be that of the record."""
    key = account.encode("utf-8", "replace")
    if key != record.key:
        raise ValueError(f"the key is {record.key!r:.80}, the account {account[:80]!r}")
    return key


def _shown(state: ProviderState) -> tuple[str, str, str]:
    return escape(state.provider), state.state.replace("_", "-"), state.reason
