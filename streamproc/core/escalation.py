"""What was reported of a run, and at which level: observe, warn, halt. `episodes` decides what is reported."""

from __future__ import annotations

from functools import cache
from typing import Final

from xxhash import xxh3_64_intdigest

from streamproc.core.decision import Level
from streamproc.core.records import TAG, Name, Record, Row, Table, ccall, cclass, final, i32, u32

EPISODES_MAX: Final = 24  # loops already reported
HALT_LEVEL: Final = int(Level.HALT)
NO_HALT: Final = -1  # value of `unacknowledged_halt`: no halt waits for an acknowledgement
UNDECIDED: Final = 1  # value of `Cold.halted_by` from the finding that halts a run to its decision
ESCALATED: Final = -2  # its missing acknowledgement was reported; not again until one arrives or the run is resumed


@final
@cclass
class Episode(Row):
    """A loop that was reported. Key: tag of its detector and loop."""

    level: u32  # the highest `Level`


@final
@cclass
class Escalation(Record):
    """What was reported of a run, and whether it is on probation."""

    halted_loop_seen: i32  # last turn in which a loop that was halted was seen again; -1: never
    unacknowledged_halt: i32  # turn of a halt that nothing acknowledged yet; `NO_HALT`, `ESCALATED`
    probation_until: i32  # first turn after probation; -1: not on probation
    probation_iterations: u32  # iterations completed on it
    severity: u32  # highest `Level` reported
    resumes: u32  # how often an operator resumed the run
    halt_code: Name  # detector of the first halt
    episodes: Table  # of `Episode`

    def __init__(self) -> None:
        self.halt_code, self.episodes = Name(), Table(Episode, EPISODES_MAX)
        super().__init__(self.halt_code, self.episodes)

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.halted_loop_seen = self.probation_until = -1
        self.unacknowledged_halt = NO_HALT


@cache
def hash_code(code: str) -> int:
    """Return a detector's code as a number, from the sum of its bytes and its digits; distinct for every code. That of
    a plug-in, which has a namespace (`acme/same-city`), is hashed."""
    if "/" in code:
        return xxh3_64_intdigest(code.encode()) & TAG
    return sum(code.encode()) * 0x9E3779B1 ^ int(code[-3:]) * 0x85EBCA6B


def hash_id(decision_id: str) -> int:
    """Return the id of a decision as a state holds it: 63 bits, above `UNDECIDED`."""
    return xxh3_64_intdigest(decision_id.encode("utf-8", "surrogatepass")) >> 1 | 2
