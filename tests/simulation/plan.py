"""The plan of a schedule, drawn from a seed: the records of publishers, and the faults with their times."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from aiokafka.partitioner import murmur2

from streamproc.fingerprint import read_event
from streamproc.model import wire
from streamproc.policy import Policy, load_policy
from streamproc.policy.files import Layer
from tests.laws.traces import BOARD, CLOCKS, ENDINGS, OTHERS, TURNS
from tests.simulation.calls import REF, RULES, with_calls
from tests.simulation.machine import CURSED, DEADLY

STEPS: Final = 1_000  # of the loop, in which things go wrong: about as long as publishers write
PUBLISH_S: Final = (4.0, 8.0, 30.0)  # how long publishers write

DEADLY_SHARE: Final = 0.08  # of all schedules: each such event costs some crashes and rebalances

SPENDS: Final = tuple(
    {"node": "coder", "usage": {"total_tokens": tokens}, "user": user, "tenant": "acme"}
    for tokens in (5, 30)
    for user in ("ann", "bob")
)
STARTS: Final = (
    {"type": "run.started", "tenant": "acme", "user": "ann", "session_id": "s"},
    {"type": "run.started", "session_id": "s", "parent_run_id": "run-0", "budgets": {"maxSessionTokens": 60}},
    {"type": "run.started", "budgets": {"turnTimeoutMs": 1_500, "maxRuntimeMs": 6_000}},
    {"type": "turn.started", "node": "coder"},
)
LOOP: Final = {"node": "coder", "output": "I will try again."}
CURSE: Final = {"node": CURSED, "output": "this is where the engine fails"}
ALPHABETS: Final = (
    TURNS, TURNS, (*TURNS, *SPENDS), (LOOP, *TURNS[:4]), (LOOP,), (*STARTS, *SPENDS), (*STARTS, *SPENDS, *ENDINGS),
    (*STARTS, *CLOCKS, *OTHERS), (*BOARD, *TURNS[-6:]), (*TURNS, *ENDINGS, CURSE), (CURSE, LOOP, *SPENDS),
)  # fmt: skip
POISON: Final = (
    None, b"", b"garbage", b'{"run_id": "somebody else", "node": "x"}', b'{"run_id": 7}', b"\xff" * 30, b"[" * 600,
    b'{"w": 1, "run_id": "run-0", "type": "turn", "node": 5}', b"x" * 5000,
)  # fmt: skip

KINDS: Final = (
    "kill", "freeze", "stop", "join", "rebalance", "away", "slow", "quick", "refuse before", "refuse after", "compact",
    "clock",
)  # fmt: skip


class Input(NamedTuple):
    """What a publisher writes, and when."""

    at_s: float
    partition: int
    key: bytes | None
    value: bytes | None


class Fault(NamedTuple):
    """What goes wrong before a step of the loop: kind, which worker, how long or how much."""

    step: int
    kind: str
    worker: int
    amount: float


@dataclass(frozen=True)
class Plan:
    """A schedule."""

    seed: int
    partitions: int
    workers: int
    slice_most: int
    backlog: int
    fetch_most: int
    active: int
    store_most: int
    tick_s: float
    ends_early: float  # the chance that a slice ends at a look at the clock
    inputs: tuple[Input, ...]
    faults: tuple[Fault, ...]

    def without(self, *, inputs: slice | None = None, faults: slice | None = None) -> Plan:
        """The same with less of it."""
        left, happening = list(self.inputs), list(self.faults)
        if inputs is not None:
            del left[inputs]
        if faults is not None:
            del happening[faults]
        return replace(self, inputs=tuple(left), faults=tuple(happening))

    def __str__(self) -> str:
        knobs = f"partitions={self.partitions} workers={self.workers} slice={self.slice_most} backlog={self.backlog}"
        lines = [
            f"{knobs} fetch={self.fetch_most} active={self.active} store={self.store_most} early={self.ends_early:g}"
        ]
        lines += [
            f"  step {fault.step}: {fault.kind} worker={fault.worker} {fault.amount:.2f}" for fault in self.faults
        ]
        lines += [
            f"  {one.at_s:5.2f} s: [{one.partition}] {one.key!r} {(one.value or b'-')[:110]!r}" for one in self.inputs
        ]
        return "\n".join(lines)


class Resolved:
    """The standard policy, and budgets of users and tenants; what is in force in a scope is worked out once."""

    def __init__(self) -> None:
        budgets = {"maxTenantTokensPerDay": 150, "maxUserTokensPerHour": 80}
        self.ref, self.providers = REF, RULES
        self.rules = cache(Policy([*load_policy().layers, Layer(name="simulation", budgets=budgets)]).rules)


@cache
def policy() -> Resolved:
    """The policy of all schedules."""
    return Resolved()


def plan(seed: int, kinds: tuple[str, ...] = KINDS) -> Plan:
    """The schedule of a seed, with faults of these kinds."""
    rng, later = random.Random(seed), random.Random(f"later {seed}")  # what was added later leaves the rest as it was
    partitions = rng.choice((1, 2, 2, 3))
    return Plan(
        seed=seed,
        partitions=partitions,
        workers=rng.choice((1, 1, 2, 2, 3)),
        slice_most=rng.choice((1, 2, 3, 8)),
        backlog=rng.choice((4, 8, 1000)),
        fetch_most=rng.choice((1, 3, 10)),
        active=rng.choice((1, 2, 50)),
        store_most=later.choice((1, 2, 1000)),
        tick_s=later.choice((0.7, 3.0, 3.0)),
        ends_early=later.choice((0.0, 0.2, 1.0)),
        inputs=with_calls(
            random.Random(f"calls {seed}"),
            _with_strays(
                random.Random(f"astray {seed}"), _with_deadly(later, tuple(_inputs(rng, partitions))), partitions
            ),
        ),
        faults=tuple(_faults(rng, kinds)),
    )


def _inputs(rng: random.Random, partitions: int) -> Iterator[Input]:
    runs = [_run(rng, f"run-{number}") for number in range(rng.randint(1, 6))]
    written: list[Input] = []
    at_s, rate = 0.0, sum(map(len, runs)) / rng.choice(PUBLISH_S)
    while any(runs):
        run = rng.choice([run for run in runs if run])
        key, value = run.pop(0)
        if run and rng.random() < 0.05:
            run.insert(1, (key, value))  # another publisher was quicker
        at_s += rng.expovariate(rate)
        written.append(Input(at_s, at_home(key, partitions), key, value))
        yield written[-1]
        draw = rng.random()
        if draw < 0.08:
            yield rng.choice(written[-8:])._replace(at_s=at_s)
        elif draw < 0.11:
            yield Input(at_s, rng.randrange(partitions), rng.choice((None, b"nobody", key)), rng.choice(POISON))


def at_home(key: bytes, partitions: int) -> int:
    """The partition of a key, by Kafka's own hash as aiokafka has it."""
    return int((murmur2(key) & 0x7FFFFFFF) % partitions)


def _with_strays(rng: random.Random, inputs: tuple[Input, ...], partitions: int) -> tuple[Input, ...]:
    """In many schedules a publisher writes some events into other partitions, as well as or instead of their home."""
    share = rng.choice((0.0, 0.0, 0.05, 0.3))
    found: list[Input] = []
    for one in inputs:
        draw = rng.random()
        if draw >= share / 3:
            found.append(one)
        if draw < share:
            found.append(one._replace(partition=rng.randrange(partitions)))
    return tuple(found)


def _with_deadly(rng: random.Random, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """A few schedules have an event that ends the process which steps it."""
    if rng.random() > DEADLY_SHARE:
        return inputs
    place = rng.randrange(len(inputs))
    key = inputs[place].key or b"run-0"
    value = wire.encode(msgspec.structs.replace(_event(b'{"node": "%s"}' % DEADLY.encode()), run_id=key.decode()))
    return (*inputs[:place], inputs[place]._replace(key=key, value=value), *inputs[place:])


def _run(rng: random.Random, run_id: str) -> list[tuple[bytes, bytes]]:
    """The records of one run: blocks of an alphabet, some of them repeated, so that loops are frequent."""
    alphabet = rng.choice(ALPHABETS)
    raws: list[dict[str, Any]] = []
    while len(raws) < 4 or rng.random() < 0.6:
        raws += rng.choices(alphabet, k=rng.randint(1, 3)) * rng.choice((1, 1, 2, 4))
    return [(run_id.encode(), _written(rng, run_id, number, raw)) for number, raw in enumerate(raws[:24])]


def _written(rng: random.Random, run_id: str, number: int, raw: dict[str, Any]) -> bytes:
    """An event as publishers write it: raw or fingerprinted, and some without an id."""
    event_id = f"{run_id}/{number}" if rng.random() < 0.8 else ""
    raw = {name: value for name, value in raw.items() if name != "wait_s"}
    if raw.get("type") == "deadline" or rng.random() < 0.9:
        template = _event(msgspec.json.encode(raw))
        return wire.encode(msgspec.structs.replace(template, run_id=run_id, event_id=event_id))
    return msgspec.json.encode({"run_id": run_id, **({"event_id": event_id} if event_id else {}), **raw})


@cache
def _event(raw: bytes) -> wire.Event:
    return read_event(msgspec.json.encode({"run_id": "r", **msgspec.json.decode(raw)}))


def _faults(rng: random.Random, kinds: tuple[str, ...]) -> Iterator[Fault]:
    """A few kinds in each schedule, so that each is also met by itself, and often."""
    met = rng.sample(kinds, min(len(kinds), rng.choice((1, 1, 2, 3, 5))))
    for step in sorted(rng.randint(30, STEPS) for _ in range(rng.choice((0, 1, 2, 4, 8)))):
        yield Fault(step, rng.choice(met), rng.randrange(4), rng.random())
