"""Slices of records, whole and broken, and what a worker makes of them: in one call, or record by record."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from functools import cache
from typing import Any, Final

from msgspec.structs import astuple

from streamproc.core.accounts import read_statement
from streamproc.core.engine import Engine
from streamproc.core.providers import read_calls
from streamproc.fingerprint import fingerprint
from streamproc.model import wire
from streamproc.model.raw_events import parse_raw
from streamproc.policy import load_policy
from streamproc.worker.accounts_table import PROVIDER_KEY
from streamproc.worker.codec import encode_run
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.feeding import WrappedEngine
from tests.fuzz.mutation import NASTY, TEXTS
from tests.laws.traces import EVENTS
from tests.worker.records import NOON_MS, Record

RUNS: Final = 4
RECORDS_MAX: Final = 40
BYTES_MAX: Final = 20_000
POLICY: Final = {"budgets": {"maxTenantTokensPerDay": 10**6, "maxSessionTokens": 10**6, "maxSteps": 20}}
POISON: Final = "poison"  # a workflow on which the engine fails
Effects = dict[str, Any]


@cache
def _templates() -> list[bytes]:
    """Events as our publisher sends them, without run id and event id."""
    events = [fingerprint(parse_raw({"run_id": "r", **raw})) for raw in EVENTS]
    return [wire.encode(event) for event in events]


@cache
def _policy() -> Any:
    return load_policy(POLICY)


class _FaultyRules:
    """Rules that cannot be had for the workflow `poison`: a fault of the engine in the middle of a step."""

    def rules(self, workflow: str, tenant: str, tier: str) -> Any:
        if workflow == POISON:
            raise ZeroDivisionError("a bug")
        return _policy().rules(workflow, tenant, tier)


def made_slice(rng: random.Random, damaged: bytes | None = None) -> list[Record]:
    """Records of a few runs in any order: of our publisher, of others, and broken ones; one of them is `damaged`."""
    records = []
    offset, at_ms = rng.randrange(3), NOON_MS
    places = [rng.choice(_templates()) for _ in range(4)]  # few, so that runs repeat themselves
    count = rng.randrange(1, RECORDS_MAX)
    for number in range(count):
        run = f"run-{rng.randrange(RUNS)}"
        event = json.loads(rng.choice(places) if rng.random() < 0.8 else rng.choice(_templates()))
        event |= {"run_id": run, "event_id": f"{run}:{number if rng.random() < 0.95 else 0}"}
        if rng.random() < 0.2:
            event |= {"tenant": "acme", "session_id": "s", "usage": [rng.randrange(99), 5, 0, 0, 1]}
        value = json.dumps(event, separators=(",", ":")).encode()
        if rng.random() < 0.2:
            value = json.dumps(event | {"model": rng.choice("ab"), "provider": "p"}, separators=(",", ":")).encode()
        if rng.random() < 0.2:
            value = _otherwise(rng, event, value)
        key: bytes | None = run.encode() if rng.random() < 0.97 else rng.choice([b"run-0", b"\xff", None])
        if damaged is not None and number == count // 2:
            value = damaged
        made: bytes | None = value if rng.random() < 0.98 else None
        records.append(Record(offset, key, made, rng.choice([at_ms, at_ms, at_ms, -1, 2**62])))
        offset += rng.choice([1, 1, 1, 1, 0, 2])  # redelivered, or with a gap
        at_ms += rng.randrange(9_000)
    return records


def _otherwise(rng: random.Random, event: dict[str, Any], value: bytes) -> bytes:
    """Return an event as other publishers write it, or one that is broken."""
    names = list(event)
    rng.shuffle(names)
    name = rng.choice(names)
    match rng.randrange(9):
        case 0:
            return json.dumps({one: event[one] for one in names}).encode()  # another order, and blanks
        case 1:
            return value.replace(b'"n', b'"\\u006e').replace(b"run-", b"\\u0072un-")  # escapes
        case 2:
            return value[:-1] + b',"unknown":[{"a":1e400}],"unknown":null}'
        case 3:
            return value[:-1] + f',"{name}":'.encode() + json.dumps(event[name]).encode() + b"}"  # a key again
        case 4:
            return json.dumps(event | {name: rng.choice(NASTY)}).encode()
        case 5:
            place = rng.randrange(len(value))
            return value[:place] + rng.choice(TEXTS) + value[place + rng.randrange(4) :]
        case 6:
            return json.dumps({"run_id": event["run_id"], "node": "a", "output": rng.choice("xyz")}).encode()  # raw
        case 7:
            return json.dumps(event | {"workflow": POISON}).encode()
        case _:
            return value[: rng.randrange(len(value))]


def effects(records: list[Record], slices: list[int], *, by_step: bool = False, active: int = 0) -> Effects:
    """Return what a worker makes of records that it gets in slices of these sizes, and the rest in one; `by_step`, with
    one call of the engine's `step` an event. With room for so many `active` runs (0: for all), states are written after
    each slice."""
    engine = Engine(_FaultyRules())
    limits = RunLimits()
    limits.states, limits.active_share = engine.states, active or limits.active_share
    processor = TurnProcessor(
        WrappedEngine(engine, engine.step) if by_step else engine,
        "slices",  # lines about it are limited apart from those of other tests
        event_bytes_max=BYTES_MAX,
        dead_letter_bytes=999,
        version="1",
        calls=True,
    )
    runs = Runs(0, limits)
    outgoing: list[Any] = []
    for size in [*slices, len(records)]:
        outgoing += processor.accept(runs, records[:size])
        records = records[size:]
        if active:
            runs.stored(runs.take(), None)
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for one in outgoing:
        if one.topic == "runs":
            found[f"status of {one.key!r}"] = [one.value, one.headers, one.offset]  # the last one counts
        elif one.topic == "spend" and one.key.startswith(PROVIDER_KEY):
            for call in read_calls(one.value).entries:  # answered ones of a slice become one entry
                found[one.key.decode()] += [call.outcome] * call.count
        elif one.topic == "spend":
            statement = read_statement(one.value)
            for entry in statement.entries:
                found[statement.account].append((statement.payers[entry.payer].run_id, astuple(entry)[1:]))
        else:
            found[one.topic].append((one.key, one.value, one.headers, one.partition, one.at_ms, one.offset))
    if active:
        states = {key: runs.raw(key) for key in runs.known()}
    else:
        states = {key: encode_run(runs.states.packed(held), runs.halts.get(key)) for key, held in runs.active.items()}
    return {**found, "states": sorted(states.items()), "changed": sorted(runs.dirty), "counts": str(processor.counts)}


def difference(records: list[Record], slices: list[int]) -> str:
    """Return where slices and single steps differ; empty: nowhere. A status is that of a run at the end of its slice,
    so statuses are compared with those of the same slices, stepped event by event."""
    one_by_one, by_step = effects(records, [1] * len(records), by_step=True), effects(records, slices, by_step=True)
    together = effects(records, slices)
    wanted = one_by_one | {name: by_step.get(name) for name in one_by_one if name.startswith("status of")}
    return _shown(wanted, together)


def difference_without_room(records: list[Record], slices: list[int]) -> str:
    """Return where slices differ from single steps, if most runs leave the active ones in the middle of a slice."""
    return _shown(effects(records, slices, by_step=True, active=RECORDS_MAX), effects(records, slices, active=1))


def _shown(wanted: Effects, together: Effects) -> str:
    names = sorted(name for name in {*wanted, *together} if wanted.get(name) != together.get(name))
    return "\n".join(f"{name}:\n  {wanted.get(name)!r}\n  {together.get(name)!r}" for name in names)


def sizes(rng: random.Random) -> list[int]:
    """Sizes of a few slices."""
    return [rng.randrange(1, RECORDS_MAX) for _ in range(rng.randrange(3))]
