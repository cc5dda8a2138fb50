"""Calls of models in schedules: what runs report, and what the breakers of their provider must be afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from streamproc.core.decision import encode_decision
from streamproc.core.local_providers import LocalProviders
from streamproc.core.provider_calls import CallCollector
from streamproc.core.providers import OK, Breaker, ProviderRules, read_calls
from streamproc.kafka.reading import log_time
from streamproc.policy import load_policy
from streamproc.worker.accounts_table import PROVIDER_KEY

if TYPE_CHECKING:
    from streamproc.model.wire import Event
    from tests.simulation.cluster import Record
    from tests.simulation.plan import Input

SHARE: Final = 0.3  # of all schedules
REF: Final = load_policy().ref
RULES: Final = ProviderRules(
    calls_min=4, runs_min=2, cool_down_ms=1_000, cool_down_max_ms=4_000, retry_after_max_ms=3_000, probe_ms=2_000,
    retries_min=1,
)  # fmt: skip


def with_calls(rng: random.Random, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """In some schedules runs report calls, of which most fail for a while, and wait for permits."""
    if rng.random() >= SHARE:
        return inputs
    found: list[Input] = []
    for number, one in enumerate(inputs):
        found.append(one)
        for _ in range(rng.choice((0, 1, 1, 3))):
            call: dict[str, object] = {"type": "model.called", "run_id": (one.key or b"run-0").decode(), "model": "m"}
            call["permit"] = f"ask-{rng.randrange(4)}"
            fails = 3 * number < 2 * len(inputs) and rng.random() < 0.7
            call |= {"status": 429, "retry_after": rng.choice((0, 2))} if fails else {"waits": rng.random() < 0.5}
            key = str(call["run_id"]).encode()
            found.append(one._replace(key=key, value=msgspec.json.encode(call)))
    return tuple(found)


class Call(NamedTuple):
    """Where a call was reported."""

    account: str
    source: int
    offset: int


def call_of(event: Event, record: Record) -> dict[Call, int]:
    """The call that an event reports, with its outcome, if it reports one."""
    collector = CallCollector()
    collector.add(event, log_time(record), record.offset)
    statements = collector.take(record.partition)
    return {Call(one.account, one.source, record.offset): one.entries[0].outcome for one in statements}


@dataclass
class Booked:
    """The calls of one partition of the spend topic, booked once."""

    providers: LocalProviders = field(default_factory=lambda: LocalProviders(RULES, REF))
    states: dict[str, bytes] = field(default_factory=dict)  # control events, by id
    found: dict[Call, int] = field(default_factory=dict)  # of several answered calls, the last one
    late: list[Call] = field(default_factory=list)

    def book(self, record: Record) -> None:
        statement = read_calls(record.value or b"")
        for entry in statement.entries:
            call = Call(statement.account, statement.source, entry.last)
            before = self.providers.known.get(statement.account, Breaker()).applied.get(statement.source, -1)
            if entry.outcome != OK and call not in self.found and entry.last < before:
                self.late.append(call)
            self.found[call] = entry.outcome
        for decision in self.providers.book(statement):
            self.states[decision.id] = encode_decision(decision)
        breaker = self.providers.known[statement.account]
        breaker.offset = max(breaker.offset, record.offset)

    @property
    def breakers(self) -> dict[bytes, Breaker]:
        return {key.encode(): breaker for key, breaker in self.providers.known.items()}


def is_call(record: Record) -> bool:
    """Whether a record of the spend or the control topic is about a provider."""
    return (record.key or b"").startswith(PROVIDER_KEY)


def call_violations(expected: Mapping[Call, int], booked: Booked) -> Iterator[str]:
    """Every call was sent on, as it was reported, and in the order of its log; answered ones in groups."""
    yield from (f"{call} came too late to be booked" for call in booked.late)
    answered: dict[tuple[str, int], int] = {}
    for call, outcome in booked.found.items():
        if expected.get(call) != outcome:
            yield f"{call} was booked with the outcome {outcome}, not {expected.get(call)}"
        if outcome == OK:
            answered[call[:2]] = max(call.offset, answered.get(call[:2], -1))
    for call, outcome in expected.items():
        if call.offset > answered.get(call[:2], -1) if outcome == OK else call not in booked.found:
            yield f"{call} with the outcome {outcome} was not booked"
