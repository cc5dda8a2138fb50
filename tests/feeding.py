"""Raw events in, decisions out: helpers for tests of the engine."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import orjson

from streamproc.core.run_state import RunState, dump, load
from streamproc.fingerprint import fingerprint
from streamproc.model.raw_events import parse_line
from streamproc.policy import load_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streamproc.core.decision import Decision
    from streamproc.core.outcome import Outcome
    from streamproc.model.wire import Event
    from streamproc.policy import Policy

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
    """One run under a policy."""

    def __init__(self, policy: Policy = STANDARD) -> None:
        self.engine = policy.engine()
        self.state = RunState()

    def event(self, event: Event, at_ms: int | None = None) -> list[Decision]:
        return self.outcome(event, at_ms).decisions

    def outcome(self, event: Event, at_ms: int | None = None) -> Outcome:
        return self.engine.step(self.state, event, at_ms)

    def raw(self, raw: Mapping[str, Any]) -> list[Decision]:
        event = event_of({"run_id": "r", **raw})
        return self.event(event, event.at)

    @property
    def stored(self) -> bytes:
        """The state as it is stored."""
        return dump(self.state)

    def restart(self) -> None:
        """Store the state, and go on with what is read of it, as after a restart."""
        self.state = load(self.stored)

    def all(self, raws: Iterable[Mapping[str, Any]]) -> list[Decision]:
        return [decision for raw in raws for decision in self.raw(raw)]


def decisions(raws: Iterable[Mapping[str, Any]], policy: Policy = STANDARD) -> list[Decision]:
    """Return the decisions on one run."""
    return Feed(policy).all(raws)


def reported(raws: Iterable[Mapping[str, Any]], policy: Policy = STANDARD) -> list[Reported]:
    """Return the decisions on one run, in short."""
    return [short(decision) for decision in decisions(raws, policy)]


def halts(raws: Iterable[Mapping[str, Any]], policy: Policy = STANDARD) -> list[Reported]:
    """Return the halts of one run, in short."""
    return [one for one in reported(raws, policy) if one.severity == "halt"]


def short(decision: Decision) -> Reported:
    """Return the part of a decision that most tests compare."""
    assert decision.trigger is not None
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
