"""Raw events in, decisions out: helpers for tests of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from streamproc.core.engine import Engine
from streamproc.core.outcome import Outcome
from streamproc.core.rules import RulesOf
from streamproc.core.run_state import RunState, check, dump, load, stub_of
from streamproc.fingerprint import fingerprint
from streamproc.model.controls import ControlEvent
from streamproc.model.raw_events import parse_line
from streamproc.model.wire import Event
from streamproc.policy import Policy, load_policy

Raw = dict[str, Any]

STANDARD: Final = load_policy()


class Reported(NamedTuple):
    """The part of a decision that most tests compare: code, severity, turn index."""

    code: str
    severity: str
    at: int


@cache
def _fingerprinted(written: bytes) -> Event:
    return fingerprint(parse_line(written))


def event_of(raw: Mapping[str, Any]) -> Event:
    """Return the event of a raw one. Raw events that differ only in id and time are fingerprinted once."""
    place = {name: raw[name] for name, kind in (("event_id", str), ("at", int)) if isinstance(raw.get(name), kind)}
    rest = {name: value for name, value in raw.items() if name not in place}
    return msgspec.structs.replace(_fingerprinted(orjson.dumps(rest)), **place)


def run_with(**fields: Any) -> RunState:
    """Return a state with some fields set."""
    run = RunState()
    for name, value in fields.items():
        setattr(run, name, value)
    return run


class Feed:
    """One run under a policy, from its beginning or from a state that was stored."""

    def __init__(self, policy: RulesOf = STANDARD, stored: bytes = b"") -> None:
        self.engine = policy.engine() if isinstance(policy, Policy) else Engine(policy)
        self.state = load(stored) if stored else RunState()
        check(self.state)

    def event(self, event: Event, at_ms: int | None = None) -> list[ControlEvent]:
        return self.outcome(event, at_ms).decisions

    def outcome(self, event: Event, at_ms: int | None = None, offset: int = -1) -> Outcome:
        return self.engine.step(self.state, event, at_ms, offset)

    def raw(self, raw: Mapping[str, Any]) -> list[ControlEvent]:
        event = event_of({"run_id": "r", **raw})
        return self.event(event, event.at)

    @property
    def stored(self) -> bytes:
        """The state as it is stored."""
        return dump(self.state)

    def restart(self) -> None:
        """Store the state, and go on with what is read of it, as after a restart: it is stored as the same bytes."""
        stored = self.stored
        self.state = load(stored)
        check(self.state)
        assert self.stored == stored

    def evict(self) -> None:
        """Keep only the stub, as a worker does with a halted run that has to go, and store and read that."""
        self.state = stub_of(self.state)
        self.restart()

    def all(self, raws: Iterable[Mapping[str, Any]]) -> list[ControlEvent]:
        return [decision for raw in raws for decision in self.raw(raw)]


def written(decisions: Iterable[ControlEvent]) -> list[bytes]:
    """Return decisions as they are published."""
    return list(map(msgspec.json.encode, decisions))


def stored_run(runs: Any, run_id: str) -> bytes:
    """Return the state of a run that a scan has kept, as it is stored."""
    return dump(runs.read(run_id))


def decisions(raws: Iterable[Mapping[str, Any]], policy: Policy = STANDARD) -> list[ControlEvent]:
    """Return the decisions on one run."""
    return Feed(policy).all(raws)


def reported(raws: Iterable[Mapping[str, Any]], policy: Policy = STANDARD) -> list[Reported]:
    """Return the decisions on one run, in short."""
    return [short(decision) for decision in decisions(raws, policy)]


def halts(raws: Iterable[Mapping[str, Any]], policy: Policy = STANDARD) -> list[Reported]:
    """Return the halts of one run, in short."""
    return [one for one in reported(raws, policy) if one.severity == "halt"]


def short(decision: ControlEvent) -> Reported:
    """Return the part of a decision that most tests compare."""
    assert decision.trigger.turn is not None
    return Reported(decision.code, decision.severity, decision.trigger.turn)


class WrappedEngine:
    """An engine whose `step` is another function; everything else is the engine's."""

    def __init__(self, engine: Any, step: Any) -> None:
        self.__dict__.update(_engine=engine, step=step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._engine, name, value)


def wrap_engines(around: Any) -> None:
    """Let every worker of this process step events by `around(step, state, event, at_ms, position)`."""
    from streamproc.worker.turn_processor import TurnProcessor

    honest = TurnProcessor.__init__

    def init(self: Any, engine: Any, *args: Any, **more: Any) -> None:
        honest(self, WrappedEngine(engine, partial(around, engine.step)), *args, **more)

    TurnProcessor.__init__ = init  # type: ignore[method-assign]
