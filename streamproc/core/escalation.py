"""Escalation and its memory: observe, warn, halt; each loop is reported once at each level.

A halted run stays halted (*latched*). A loop that began before the halt belongs to the same episode, whichever detector
finds it next; so does a loop that runs beside the halted one (`RunState.halted_loop_seen`). A loop that begins later
is a new episode and is reported.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from xxhash import xxh3_128_hexdigest

from streamproc.core.decision import BUDGET_EXCEEDED, Finding, Level
from streamproc.core.run_state import EPISODES_MAX, TAG, RunState
from streamproc.core.signals.handovers import edge_of

EPISODE_BYTES: Final = 8  # of an encoded state
NONE: Final = -1  # value of `unacknowledged_halt`: no halt waits for an acknowledgement
ESCALATED: Final = -2  # its missing acknowledgement was reported; not again until one arrives or the run is resumed


def admit(run: RunState, finding: Finding, index: int) -> bool:
    """Return whether to report a finding, and record it if so."""
    if already_reported(run, finding.code, finding.loop, finding.level, index):
        return False
    if 0 <= finding.onset <= max(run.halted, run.halted_loop_seen):
        return False
    if finding.remembered:
        _latch(run, finding, index)
        return True
    key = (finding.loop ^ hash_code(finding.code)) & TAG
    run.episodes.pop(key, None)
    run.episodes[key] = int(finding.level)
    run.size_left -= EPISODE_BYTES
    if len(run.episodes) > EPISODES_MAX:
        del run.episodes[next(iter(run.episodes))]
    _latch(run, finding, index)
    return True


def already_reported(run: RunState, code: str, loop: int, level: Level, index: int) -> bool:
    """Whether this loop was already reported at this level. Detectors that find a loop in turn after turn ask first:
    building a finding that is dropped costs more than the rest of a turn."""
    known = run.episodes.get((loop ^ hash_code(code)) & TAG, -1)
    if known == Level.HALT:
        run.halted_loop_seen = index
    return known >= level


def _latch(run: RunState, finding: Finding, index: int) -> None:
    run.severity = max(run.severity, int(finding.level))
    if finding.level == Level.HALT and run.halted < 0:
        run.halt_code = finding.code
    if finding.level == Level.HALT:
        run.halted = index
        if run.unacknowledged_halt == NONE:
            run.unacknowledged_halt = index


@cache
def hash_code(code: str) -> int:
    """Return a detector's code as a number, from the sum of its bytes and its digits; distinct for every code."""
    return sum(code.encode()) * 0x9E3779B1 ^ int(code[-3:]) * 0x85EBCA6B


def explain_to_snitch(run: RunState, finding: Finding, node_tag: int) -> None:
    """Complete a finding for a planner that routes to `snitch`: the run is stuck, on the edge on which the node got
    its work."""
    if finding.status == "stalled":
        finding.status = "aborted_stuck"
    if finding.reason != BUDGET_EXCEEDED and finding.evidence.edge is None and (edge := edge_of(run, node_tag)):
        finding.evidence.edge = edge
        finding.message = f"{finding.message.removesuffix('.')}, after handovers from {edge[0]} to {edge[1]}."


def identity(run_id: str, run: RunState, finding: Finding, index: int, policy_hash: str) -> str:
    """Return a decision's id. The same log and policy give the same id, whichever process decides.

    Reusing a run id and resuming a run change the ids, or readers would skip the next halt as a duplicate.
    """
    attempt = f"{run.id_reuses}.{run.resumes}" if run.resumes else run.id_reuses
    place = "" if finding.anywhere else index
    text = f"{run_id}\0{attempt}\0{finding.code}\0{finding.loop}\0{int(finding.level)}\0{place}\0{policy_hash}"
    return xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))
