"""The table `accounts`: the accounts of sessions, users and tenants, and the breakers of providers, by partition.

Accounts are kept encoded, active ones also decoded. They are stored and committed in the same way as runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, cast

import msgspec

from streamproc.core.accounts import ACCOUNT_VERSION, Account, dump_account, load_account
from streamproc.core.providers import BREAKER_VERSION, CLOSED, Breaker, dump_breaker, load_breaker
from streamproc.model.provider_state import PREFIX
from streamproc.worker.limits import (
    ACCOUNT_KEEP_MS,
    ACCOUNTS_BYTES_MAX,
    ACCOUNTS_MAX,
    ACTIVE_ACCOUNTS_BYTES_MAX,
    ACTIVE_ACCOUNTS_MAX,
    SWEEP_RUNS_MAX,
)
from streamproc.worker.partition_store import Change, PartitionStore, read_up_to
from streamproc.worker.records import Fetched
from streamproc.worker.vendor import StoreTable

PROVIDER_KEY: Final = PREFIX.encode()  # begins the key of a breaker

Step = Callable[[Account | Breaker], list[Any]]
"""Changes an account, and returns what follows."""


class AccountPartition:
    """The accounts and breakers of one partition of the spend topic: all encoded, active ones also decoded."""

    def __init__(self, partition: int, now_ms: Callable[[], int]) -> None:
        self.partition = partition
        self.changelog_offset: int | None = None
        self.applied = -1
        self.share, self.active_share = ACCOUNTS_MAX, ACTIVE_ACCOUNTS_MAX  # of the accounts that a worker may hold
        self.bytes_share, self.active_bytes_share = ACCOUNTS_BYTES_MAX, ACTIVE_ACCOUNTS_BYTES_MAX
        self._bytes = self._active_bytes = 0  # of all accounts, and of the decoded ones, both encoded
        self._kept_bytes = 0  # of the decoded ones that stayed when the others were dropped last
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
                self._set(key, _dump(account))  # where `book` begins again
            full = self._active_bytes > max(self.active_bytes_share, 2 * self._kept_bytes)
            if full or len(self._active) >= max(self.active_share, 2 * len(self._dirty)):
                self._active = {known: self._active[known] for known in self._dirty}
                self._active_bytes = self._kept_bytes = sum(len(self._stored.get(one, b"")) for one in self._active)
            self._active[key] = account
            self._active_bytes += len(self._stored.get(key, b""))
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
            self._active_bytes += len(raw) - len(self._stored.get(key, b""))
            self._set(key, raw)  # only `load` reads it, so it may precede the acknowledgement
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
        self._drop(key)
        self._touched.pop(key, None)
        if raw is not None and account is not None:
            self._set(key, raw)
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
        few = len(self._reached) < self.share and self._bytes < 2 * self.bytes_share
        spared = self._reached if few else frozenset[bytes]()
        oldest_ms, surplus = self._now_ms() - ACCOUNT_KEEP_MS, len(self._stored) - self.share
        surplus_bytes = self._bytes - self.bytes_share
        gone: list[bytes] = []
        for key, touched_ms in self._touched.items():
            over = len(gone) < surplus or surplus_bytes > 0
            if len(gone) >= SWEEP_RUNS_MAX or (touched_ms > oldest_ms and not over):
                break
            if key not in self._dirty and (touched_ms <= oldest_ms or key not in spared):
                gone.append(key)
                surplus_bytes -= len(self._stored.get(key, b""))
        for key in gone:
            del self._touched[key]
            self._drop(key)
        return gone

    def _set(self, key: bytes, raw: bytes) -> None:
        self._bytes += len(raw) - len(self._stored.get(key, b""))
        self._stored[key] = raw

    def _drop(self, key: bytes) -> None:
        size = len(self._stored.pop(key, b""))
        self._bytes -= size
        if self._active.pop(key, None) is not None:
            self._active_bytes -= size
        self._reached.discard(key)
        self.breakers.pop(key, None)


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
            accounts.bytes_share = ACCOUNTS_BYTES_MAX // len(self.partitions)
            accounts.active_bytes_share = ACTIVE_ACCOUNTS_BYTES_MAX // len(self.partitions)

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
