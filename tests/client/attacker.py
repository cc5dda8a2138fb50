"""What workers and operators write about runs, and one without keys who writes between them.

He writes to any partition and at any time: forged records, and recorded genuine ones, as they were or with other
headers, keys and topics. What compaction makes of a record of his with the key of a run is not covered: it removes the
genuine one, and only the right to write keeps him out (SECURITY.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace as replace_fields

from streamproc.fleet.record_signing import HEADER, RESUME_HEADER, LogPlace
from streamproc.fleet.state import Fleet, new_command
from streamproc.model.controls import ControlEvent, ControlTrigger
from streamproc.model.fleet_command import encode_command, read_command
from streamproc.model.log_time import rfc3339
from streamproc.model.wire import OperatorResume, encode
from tests.fleet.signing import NOON_MS, OPERATORS, record, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    Record = Any

HOME = 1
RUNS = ("r1", "r2")
ROLES = ("commands", "control", "runs")

STEPS = ("turn", "halt", "also", "resume", "kill")


@dataclass
class Life:
    """What workers and operators write about one run, as they do: each record follows from one event of its log."""

    run_id: str
    bare: bool = False  # its statuses do not say why it is halted: the worker keeps only that it is
    partition: int = HOME
    offset: int = 10
    halt: str = ""  # the first decision since the last resume
    resume: list[tuple[str, bytes]] = field(default_factory=list)
    killed: bool = False
    fleet: Fleet = field(default_factory=Fleet)

    @property
    def stops(self) -> bool:
        """Whether agents must not work on it."""
        return bool(self.halt) or self.killed

    def step(self, what: str, at_ms: int) -> list[tuple[str, Record]]:
        """Return the records that follow from an event, each with its topic."""
        self.offset += 3
        if what == "kill":
            self.killed = True
            return [("commands", self._kill(at_ms))]
        if what == "obey" or (what == "halt" and not self.halt):
            self.halt = self.halt or self._id("loop.halted")
            self.resume, self.killed = [], self.killed and what != "obey"
            return [("control", self._control("loop.halted", at_ms)), ("runs", self._status(at_ms))]
        if what == "also":
            if not self.halt:
                return [("control", self._control("loop.warning", at_ms)), ("runs", self._status(at_ms))]
            return [("control", self._control("loop.halted", at_ms)), ("runs", self._status(at_ms))]
        if what == "resume" and self.halt:
            event = OperatorResume(w=1, run_id=self.run_id, event_id=f"resume@{at_ms}", by="ada", halt=self.halt)
            OPERATORS.sign_event(event, at_ms)
            self.halt, self.killed, self.resume = "", False, [(RESUME_HEADER, encode(event))]
            return [("control", self._control("run.resumed", at_ms)), ("runs", self._status(at_ms))]
        return [("runs", self._status(at_ms))]

    def _id(self, kind: str) -> str:
        return f"{kind}@{self.run_id}:{self.partition}:{self.offset}"

    def _kill(self, at_ms: int) -> Record:
        command = OPERATORS.sign(new_command(self.fleet, "STOP", f"run:{self.run_id}", "ada", "", now_ms=at_ms))
        self.fleet.apply(command)
        return record("commands", command.scope.encode(), encode_command(command), at_ms=at_ms)

    def _decision(self, kind: str, at_ms: int) -> ControlEvent:
        severity = {"loop.halted": "halt", "loop.warning": "warn"}.get(kind, "info")
        trigger = ControlTrigger(event_id=str(self.offset), topic="turns", partition=self.partition, offset=self.offset)
        return ControlEvent(
            id=self._id(kind), type=kind, run_id=self.run_id, code="LOOP001", severity=severity, message="m",
            at=rfc3339(at_ms), trigger=trigger,
        )  # fmt: skip

    def _control(self, kind: str, at_ms: int) -> Record:
        headers = self.resume if kind == "run.resumed" else []
        return self._signed("control", msgspec.json.encode(self._decision(kind, at_ms)), at_ms, headers)

    def _status(self, at_ms: int) -> Record:
        halt = f'{{"id":"{self.halt}","code":"LOOP001","at":"{rfc3339(at_ms)}"}}' if self.halt and not self.bare else ""
        status = "halted" if self.halt else "running"
        value = (
            f'{{"run_id":"{self.run_id}","status":"{status}","severity":"info","halt":{halt or "null"},'
            f'"at":"{rfc3339(at_ms)}","partition":{self.partition},"offset":{self.offset}}}'
        )
        return self._signed("runs", value.encode(), at_ms, self.resume)

    def _signed(self, role: str, value: bytes, at_ms: int, headers: Sequence[tuple[str, bytes]]) -> Record:
        place = LogPlace(self.partition, self.offset, at_ms)
        return signed(role, self.run_id.encode(), value, place, headers=headers, partition=self.partition)


class Attacker:
    """Writes what he can make of the records that he has seen."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self.seen: list[tuple[str, Record]] = []
        self._offsets = count(1_000)

    def write(self, at_ms: int) -> tuple[str, Record]:
        """Return one record that is not genuine, and its topic."""
        draw = self._draw
        if not self.seen or draw(st.integers(0, 3)) == 0:
            role, one = self._forged(at_ms)
        else:
            role, one = draw(st.sampled_from(self.seen))
            headers = draw(st.sampled_from([self._as_it_was, self._without, self._with_other, self._twice]))(one)
            one = replace(one, headers=tuple(headers))
            if draw(st.integers(0, 4)) == 0:
                role = draw(st.sampled_from(ROLES))
            if draw(st.integers(0, 4)) == 0:
                one = replace(one, key=draw(st.sampled_from([b"r1", b"r2", b"", None])))
            if draw(st.integers(0, 6)) == 0:
                one = replace(one, value=draw(st.sampled_from([None, b"", *(other.value for _, other in self.seen)])))
        at_ms += draw(st.sampled_from([0, 0, 1, 59_000, 240_000, 400_000, -30_000]))
        partition = 0 if role == "commands" else draw(st.integers(0, 2))  # that topic has only one
        place = {"topic": f"streamproc.{role}", "partition": partition, "offset": next(self._offsets)}
        return role, replace(one, timestamp=at_ms, **place)

    def _as_it_was(self, one: Record) -> Any:
        return one.headers

    def _without(self, one: Record) -> Any:
        name = self._draw(st.sampled_from([HEADER, RESUME_HEADER]))
        return [header for header in one.headers if header[0] != name]

    def _with_other(self, one: Record) -> Any:
        known = [header for _, other in self.seen for header in other.headers if header[0] == RESUME_HEADER]
        garbage = [(RESUME_HEADER, b"{}"), (RESUME_HEADER, b'{"type":"operator.resume","w":1,"run_id":"r1"}')]
        others = [header for header in one.headers if header[0] != RESUME_HEADER]
        return [*others, self._draw(st.sampled_from([*known, *garbage]))]

    def _twice(self, one: Record) -> Any:
        return [*one.headers, *one.headers]

    def _forged(self, at_ms: int) -> tuple[str, Record]:
        life = Life(self._draw(st.sampled_from(RUNS)), offset=self._draw(st.sampled_from([0, 14, 2_000])))
        life.halt = self._draw(st.sampled_from(["", "x"]))
        written = life.step(self._draw(st.sampled_from([*STEPS, "obey"])), at_ms)
        role, one = self._draw(st.sampled_from(written))
        if role == "commands":
            one = replace(one, value=encode_command(replace_fields(read_command(one.value), issuer="", signature="")))
        strange = [b"\xff", b"[" * 3_000, b'{"run_id":"r1","status":"running","at":"9999-12-31T23:59:59+23:59"}', None]
        if self._draw(st.integers(0, 3)) == 0:
            one = replace(one, value=self._draw(st.sampled_from(strange)))
        return role, replace(one, headers=tuple(header for header in one.headers if header[0] != HEADER))


def story(draw: Any) -> tuple[list[Life], list[tuple[int, str, Record]]]:
    """Draw what happens to the runs: their lives, and the genuine records in the order in which they are written."""
    lives = [Life(run_id, bare=draw(st.booleans())) for run_id in RUNS]
    lives.append(Life(RUNS[0], partition=0))  # a stranger of this id in another partition, from before that was refused
    written: list[tuple[int, str, Record]] = []
    at_ms = NOON_MS
    pending: list[Life] = []
    steps = st.tuples(st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from(STEPS))
    for number, what in draw(st.lists(steps, min_size=1, max_size=9)):
        life = lives[number]
        if what == "kill" and life is lives[2]:
            continue
        for other in pending:  # workers obey a kill before they go on
            at_ms += draw(st.sampled_from([5, 2_000]))
            written += [(at_ms, *one) for one in other.step("obey", at_ms)]
        at_ms += draw(st.sampled_from([5, 7_000, 20_000]))
        pending = [life] if what == "kill" and not life.halt else []
        written += [(at_ms, *one) for one in life.step(what, at_ms)]
    return lives, written
