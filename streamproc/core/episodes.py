"""Which findings are reported: each loop once at each level, and none that a halt has reported.

A halted run stays halted (*latched*). A loop that began before the halt belongs to the same episode, whichever detector
finds it next; so does a loop that runs beside the halted one (`Escalation.halted_loop_seen`). A loop that begins later
is a new episode and is reported.
"""

from __future__ import annotations

from streamproc.core.decision import Finding, Level
from streamproc.core.escalation import HALT_LEVEL, NO_HALT, UNDECIDED, Episode, hash_code
from streamproc.core.records import TAG
from streamproc.core.run_state import RunState


def admit(run: RunState, finding: Finding, index: int) -> bool:
    """Return whether to report a finding, and record it if so."""
    if already_reported(run, finding.code, finding.loop, finding.level, index, finding.onset):
        return False
    if finding.remembered:
        _latch(run, finding, index)
        return True
    key, episodes = (finding.loop ^ hash_code(finding.code)) & TAG, run.escalation.episodes
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
