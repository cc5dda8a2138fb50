"""Escalation and its memory: observe, warn, halt; each loop is reported once at each level.

A halted run stays halted (*latched*). A loop that began before the halt belongs to the same episode, whichever detector
finds it next; so does a loop that runs beside the halted one (`RunState.halted_loop_seen`). A loop that begins later
is a new episode and is reported.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from streamproc.core.decision import BUDGET_EXCEEDED, Finding, Level
from streamproc.core.records import TAG, Name, Record, Row, Table, ccall, cclass, final, i32, u32
from streamproc.core.signals.handovers import edge_of

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState

EPISODES_MAX: Final = 24  # loops already reported

EPISODE_BYTES: Final = 12  # of a state
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


def admit(run: RunState, finding: Finding, index: int) -> bool:
    """Return whether to report a finding, and record it if so."""
    if already_reported(run, finding.code, finding.loop, finding.level, index, finding.onset):
        return False
    if finding.remembered:
        _latch(run, finding, index)
        return True
    key, episodes = (finding.loop ^ hash_code(finding.code)) & TAG, run.escalation.episodes
    if not episodes.full():
        run.size_left -= EPISODE_BYTES
    episode = episodes.touch(key) or episodes.add(key)
    episode.level = int(finding.level)
    _latch(run, finding, index)
    return True


def already_reported(run: RunState, code: str, loop: int, level: Level, index: int, onset: int = -1) -> bool:
    """Whether this loop was already reported at this level, or belongs to the episode of a halt because it began before
    that (`onset`; -1: not a loop). Detectors that find a loop in turn after turn ask first: building a finding that is
    dropped costs more than the rest of a turn."""
    episode: Episode | None = run.escalation.episodes.find((loop ^ hash_code(code)) & TAG)
    if episode is not None:
        if episode.level == HALT_LEVEL:
            run.escalation.halted_loop_seen = index
        if episode.level >= level:
            return True
    return 0 <= onset <= max(run.halted, run.escalation.halted_loop_seen)


def _latch(run: RunState, finding: Finding, index: int) -> None:
    run.escalation.severity = max(run.escalation.severity, int(finding.level))
    if finding.level == Level.HALT and run.halted < 0:
        run.escalation.halt_code.set(finding.code)
        run.cold.halted_by = UNDECIDED
    if finding.level == Level.HALT:
        run.halted = index
        if run.escalation.unacknowledged_halt == NO_HALT:
            run.escalation.unacknowledged_halt = index


@cache
def hash_code(code: str) -> int:
    """Return a detector's code as a number, from the sum of its bytes and its digits; distinct for every code. That of
    a plug-in, which has a namespace (`acme/same-city`), is hashed."""
    if "/" in code:
        return xxh3_64_intdigest(code.encode()) & TAG
    return sum(code.encode()) * 0x9E3779B1 ^ int(code[-3:]) * 0x85EBCA6B


def explain_to_snitch(run: RunState, finding: Finding, node_tag: int) -> None:
    """Complete a finding for a planner that routes to `snitch`: the run is stuck, on the edge on which the node got
    its work."""
    if finding.status == "stalled":
        finding.status = "aborted_stuck"
    if finding.reason != BUDGET_EXCEEDED and finding.evidence.edge is None and (edge := edge_of(run, node_tag)):
        finding.evidence.edge = edge
        finding.message = f"{finding.message.removesuffix('.')}, after handovers from {edge[0]} to {edge[1]}."


def hash_id(decision_id: str) -> int:
    """Return the id of a decision as a state holds it: 63 bits, above `UNDECIDED`."""
    return xxh3_64_intdigest(decision_id.encode("utf-8", "surrogatepass")) >> 1 | 2


def identity(run_id: str, run: RunState, finding: Finding, index: int, policy_hash: str) -> str:
    """Return a decision's id. The same log and policy give the same id, whichever process decides.

    Reusing a run id and resuming a run change the ids, or readers would skip the next halt as a duplicate.
    """
    attempt = f"{run.id_reuses}.{run.escalation.resumes}" if run.escalation.resumes else run.id_reuses
    place = "" if finding.anywhere else index
    text = f"{run_id}\0{attempt}\0{finding.code}\0{finding.loop}\0{int(finding.level)}\0{place}\0{policy_hash}"
    return xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))
