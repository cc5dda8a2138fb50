"""The escalation ladder and its memory: observe, warn, halt; once for each loop and level.

A run that is halted stays so (*latched*). A loop that began before the halt is part of the same episode, whichever
detector sees it next, and so is one that runs beside the halted loop (`echo`: when that was last seen). A loop that
began later is a new episode, and is told.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from streamproc.core.decision import Finding, Level
from streamproc.core.run_state import EPISODES_MAX, TAG, RunState

EPISODE_BYTES: Final = 8  # of an encoded state
NONE: Final = -1  # no halt waits for an acknowledgement
ESCALATED: Final = -2  # one was waited for in vain: that is told once, until the run is resumed or somebody answers


def already_told(run: RunState, code: str, loop: int, level: Level, index: int) -> bool:
    """Whether this loop was told at this level before. Detectors that see a loop in turn after turn ask first: a
    finding that nobody hears of costs more than all the rest of a turn."""
    known = run.episodes.get((loop ^ hash_code(code)) & TAG, -1)
    if known == Level.HALT:
        run.echo = index
    return known >= level


def admit(run: RunState, finding: Finding, index: int) -> bool:
    """True where this finding is to be told, and then it is remembered."""
    if already_told(run, finding.code, finding.loop, finding.level, index):
        return False
    if 0 <= finding.onset <= max(run.halted, run.echo):
        return False
    if finding.remembered:
        _latch(run, finding, index)
        return True
    key = (finding.loop ^ hash_code(finding.code)) & TAG
    run.episodes.pop(key, None)
    run.episodes[key] = int(finding.level)
    run.room -= EPISODE_BYTES
    if len(run.episodes) > EPISODES_MAX:
        del run.episodes[next(iter(run.episodes))]
    _latch(run, finding, index)
    return True


def _latch(run: RunState, finding: Finding, index: int) -> None:
    run.severity = max(run.severity, int(finding.level))
    if finding.level == Level.HALT and run.halted < 0:
        run.halt_code = finding.code
    if finding.level == Level.HALT:
        run.halted = index
        if run.unheeded == NONE:
            run.unheeded = index


@cache
def hash_code(code: str) -> int:
    """A detector's code as a number: its letters' sum times its digits, apart for every code of the catalogue."""
    return sum(code.encode()) * 0x9E3779B1 ^ int(code[-3:]) * 0x85EBCA6B
