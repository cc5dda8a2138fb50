"""Readers of what is written about calls of providers: statements, and the stored states of breakers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

import msgspec

from streamproc.core.providers import (
    ASK,
    OK,
    UNAVAILABLE,
    Breaker,
    CallEntry,
    CallStatement,
    ProviderRules,
    dump_breaker,
    load_breaker,
    read_calls,
    step_provider,
    write_calls,
)
from streamproc.policy import load_policy
from streamproc.worker.accounts_table import AccountPartition
from streamproc.worker.spend import AccountProcessor
from tests.fuzz.reader import NOTHING, Reader
from tests.laws.traces import START_MS
from tests.worker.records import records_of

KEY: Final = b"provider:p/m"
RULES: Final = ProviderRules(calls_min=3, runs_min=2)


@cache
def _statements() -> list[bytes]:
    outcomes = (OK, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, ASK, OK)
    entries = [
        CallEntry(n, START_MS + n * 5_000, outcome, 1, n % 4, 1_000, 20, f"ask{n}", "429")
        for n, outcome in enumerate(outcomes * 3)
    ]
    halves = (entries[:9], entries[9:])
    return [write_calls(CallStatement(1, KEY.decode(), 0, half, START_MS + 90_000)) for half in halves]


@cache
def _breakers() -> list[bytes]:
    breaker, dumped = Breaker(), list[bytes]()
    for raw in _statements():
        for entry in read_calls(raw).entries:
            step_provider(breaker, RULES, CallStatement(1, KEY.decode(), 0, [entry]))
            dumped.append(dump_breaker(breaker))
    return dumped


def _booked(statement: CallStatement) -> None:
    breaker = Breaker()
    for state in step_provider(breaker, RULES, statement):
        assert msgspec.json.encode(state)
    assert load_breaker(dump_breaker(breaker)) == breaker


def _went_on(breaker: Breaker) -> None:
    for raw in _statements():
        step_provider(breaker, RULES, read_calls(raw))
    load_breaker(dump_breaker(breaker))


def booked_by_a_worker(key: bytes, value: bytes, good: bytes) -> None:
    """Pass a record, twice, and a good one through the worker's account processor, and restore what it stores."""
    accounts = AccountPartition(0, lambda: 0)
    processor = AccountProcessor("spend", version="1", dead_letter_bytes=4_096, policy=load_policy())
    processor.accept(accounts, records_of([(key, value), (key, value), (key, good)]))
    restored = AccountPartition(0, lambda: 0)
    for offset, (name, raw) in enumerate(accounts.take()):
        restored.restore(name, raw, offset)
        restored.load(name)


def restored_by_a_worker(key: bytes, raw: bytes, good: Iterable[bytes]) -> None:
    """Restore a record of the changelog, and book good statements on what it holds."""
    accounts = AccountPartition(0, lambda: 0)
    accounts.restore(key, raw, 0)
    processor = AccountProcessor("spend", version="1", dead_letter_bytes=4_096, policy=load_policy())
    processor.accept(accounts, records_of([(key, one) for one in good], first=2**40))
    accounts.stored(accounts.take(), 1)


def _work(value: bytes) -> None:
    booked_by_a_worker(KEY, value, _statements()[0])


def _restored(raw: bytes) -> None:
    restored_by_a_worker(KEY, raw, _statements())


PROVIDER_READERS: Final = {
    "a statement of calls": Reader(_statements, read_calls, (msgspec.DecodeError,), _booked),
    "a statement of calls, in the worker": Reader(_statements, _work, NOTHING, share=0.2),
    "a stored breaker": Reader(_breakers, load_breaker, (msgspec.DecodeError,), _went_on, msgpack=True),
    "a stored breaker, in the worker": Reader(
        _breakers, _restored, NOTHING, msgpack=True, restructured=False, share=0.2
    ),
}
