"""Spend: what all runs of a session, a user or a tenant spend together, and how their calls of a provider end.

A run is in one partition, and the runs of its user are in many, as are those that call one model. So the pipelines of
turns publish spend by account, and calls by provider and model; the pipelines of accounts book both (`core.accounts`,
`core.providers`). What an account decides becomes events in the logs of the runs; the states of providers go to the
control topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from streamproc.core.accounts import (
    Account,
    read_statement,
    step_account,
    write_statement,
)
from streamproc.core.charges import Charge, statements
from streamproc.core.local_providers import provider_event
from streamproc.core.providers import (
    OPEN,
    Breaker,
    CallStatement,
    ProviderRules,
    due_ms,
    read_calls,
    step_provider,
    write_calls,
)
from streamproc.errors import Problem
from streamproc.kafka.log_limit import LogLimit
from streamproc.model.escaping import escape
from streamproc.model.provider_state import ProviderState
from streamproc.model.wire import encode
from streamproc.worker.accounts_table import PROVIDER_KEY, AccountPartition
from streamproc.worker.counts import WorkerCounts
from streamproc.worker.publishing import BY_KEY, POISON, OutgoingRecord, control_record, dead_letter_record
from streamproc.worker.records import Fetched, PlacedRecord, Records, placed_record

if TYPE_CHECKING:
    from streamproc.policy import Policy

log = logging.getLogger(__name__)
limited = LogLimit(log)

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
