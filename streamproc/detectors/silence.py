"""STALL007 silence: a run sends no events, or a turn does not end.

Sees: a turn that was started (`turn.started`) and has not ended, and a run that sends no events. It halts only if both
last for the whole time and the worker's `deadline` event confirms it: a node is working without any result. Everything
else warns: a turn that takes long while others continue, a silent run without an open turn, and a slow turn that ends
after all. The limit for a turn is `turnTimeoutMs` if that is declared.

Why: a process that hangs, was killed or has lost its connection sends nothing that could be checked.

False alarms: a run that waits for a person, or whose publisher never sends `run.finished`, is silent, too. After a turn
that consists of a text only and names no next node, the run may wait for a person: without an open turn, that silence
is not reported, and neither is the silence before a person's message. In a session with a person, who may be away at a
question of the harness, other silence is reported after hours only. It is at most one warning for each run, and none
once the run has gone on. Finished and halted runs are not silent. A parent that waits for a child run is silent for as
long as the child works: let it declare a larger `turnTimeoutMs`, and raise `warn_silence_s`.

Tuning: `halt_open_turn_s` and `warn_open_turn_s`, or declare `turnTimeoutMs`. `warn_silence_s` is for a run that is
silent now, `warn_away_s` the same for one to which a person has spoken. `warn_late_s` also warns of a run that was
silent and has gone on. `halt_silence_s` is for runs that never wait for a person. Silences under 30 s are ignored. 0 is
off.

Reference: loop-safety requirement: `turnTimeoutMs` 10 minutes.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamproc.core.deadlines import Due
from streamproc.core.run_state import RunState
from streamproc.core.signals.open_turns import OpenTurn, node_of
from streamproc.core.signals.statements import USER_NODES
from streamproc.core.view import GAP_MS
from streamproc.detectors.base import START_MS, Detector, Example, Finding, Level, View, call, kind, said
from streamproc.model.wire import Deadline, Turn, TurnStarted


class Silence(Detector):
    code, name = "STALL007", "silence"
    budgets = ("turnTimeoutMs",)
    kinds = kind.CLOCK
    evidence = "used", "limit", "unit"
    status = "stalled"

    class Limits:
        """Seconds of log time; 0 is off."""

        warn_open_turn_s: int = 600  # the requirement's `turnTimeoutMs`
        halt_open_turn_s: int = 600  # the same, if the whole run sends no event
        warn_silence_s: int = 660  # a call may use up its own time-out of ten minutes, and then report it
        warn_away_s: int = 14_400  # a person is away at lunch, or overnight
        warn_late_s: int = 0  # it has gone on: nothing is stuck
        halt_silence_s: int = 0  # a run may wait days for a person

    def check(self, view: View, limits: Limits) -> Finding | None:
        run, event = view.run, view.event
        silent_ms = run.at_ms - view.last_event_ms if view.last_event_ms else 0
        if run.halted >= 0:
            return None
        if type(event) is Deadline:
            return self._at_deadline(view, silent_ms, limits)
        if type(event) is not Turn and type(event) is not TurnStarted:
            return None  # a person's message, or the end of the run: it was waiting, not stuck
        found = self._slow(view, limits)
        if found is None and _over(silent_ms, limits.warn_late_s * 1000) and not _was_waiting(view):
            found = self._finding(view, Level.WARN, 0, "The run", "was silent for", silent_ms, limits.warn_late_s)
        return found

    def _at_deadline(self, view: View, silent_ms: int, limits: Limits) -> Finding | None:
        run = view.run
        if run.open_turns:
            oldest = min(run.open_turns, key=lambda turn: turn.started_ms)
            halt_ms, warn_ms = _open_limits(view.budgets, limits)
            open_ms, what = run.at_ms - oldest.started_ms, "has not ended, and the run has sent no event for"
            if _over(silent_ms, halt_ms):
                return self._of_turn(view, Level.HALT, oldest, what, silent_ms, halt_ms)
            if _over(open_ms, warn_ms):
                return self._of_turn(view, Level.WARN, oldest, "has not ended after", open_ms, warn_ms)
        warn_silence_s = _silence_limit_s(run, limits)
        for level, limit_s in ((Level.HALT, limits.halt_silence_s), (Level.WARN, warn_silence_s)):
            if _over(silent_ms, limit_s * 1000):
                return self._finding(view, level, 0, "The run", "has been silent for", silent_ms, limit_s)
        return None

    def _slow(self, view: View, limits: Limits) -> Finding | None:
        """Return a warning for a slow turn: an event arrived, so the run is not stuck."""
        _, warn_ms = _open_limits(view.budgets, limits)
        if type(view.event) is Turn and _over(view.took_ms, warn_ms):
            subject = f"A turn of {view.turn.node}"
            return self._finding(view, Level.WARN, view.node_tag, subject, "took", view.took_ms, warn_ms // 1000)
        for turn in view.run.open_turns:
            open_ms = view.run.at_ms - turn.started_ms
            if _over(open_ms, warn_ms):
                return self._of_turn(view, Level.WARN, turn, "has not ended after", open_ms, warn_ms)
        return None

    def _of_turn(self, view: View, level: Level, turn: OpenTurn, what: str, ms: int, limit_ms: int) -> Finding:
        subject = f"A turn of {turn.name or 'the run'}"
        found = self._finding(view, level, turn.node, subject, what, ms, limit_ms // 1000)
        found.node = node_of(turn)
        return found

    def _finding(self, view: View, level: Level, loop: int, subject: str, what: str, ms: int, limit_s: int) -> Finding:
        message = f"{subject} {what} {ms // 1000} s (limit: {limit_s} s)."
        return self.finding(
            level, loop, message, onset=max(0, view.run.turns - 1), used=ms, limit=limit_s * 1000, unit="ms"
        )

    def due(self, run: RunState, budgets: Mapping[str, int], limits: Limits) -> list[Due]:
        halt_ms, warn_ms = _open_limits(budgets, limits)
        waits = [(turn.started_ms, warn_ms, turn.name) for turn in run.open_turns]
        waits += [(run.at_ms, halt_ms, turn.name) for turn in run.open_turns]
        warn_silence_s = _silence_limit_s(run, limits)
        waits += [(run.at_ms, limit_s * 1000, "") for limit_s in (warn_silence_s, limits.halt_silence_s)]
        return [Due(since + max(ms, GAP_MS), self.code, since, name) for since, ms, name in waits if ms]


def _silence_limit_s(run: RunState, limits: Silence.Limits) -> int:
    """Return after how many seconds without an event and without an open turn to warn; 0: never. A person who has just
    spoken waits for the run, which waits for a person otherwise."""
    if _may_wait(run, run.turns - 1):
        return 0
    spoken = run.novelty.last_progress >= run.turns or run.handovers.previous_name.get() in USER_NODES
    return limits.warn_away_s if run.messages.count and not spoken else limits.warn_silence_s


def _open_limits(budgets: Mapping[str, int], limits: Silence.Limits) -> tuple[int, int]:
    """Return after how many ms an open turn halts, and after how many it warns."""
    declared_ms = budgets.get("turnTimeoutMs")
    halt_ms, warn_ms = limits.halt_open_turn_s * 1000, limits.warn_open_turn_s * 1000
    if declared_ms is None:
        return halt_ms, warn_ms
    return (declared_ms if halt_ms else 0), (declared_ms if warn_ms else 0)


def _was_waiting(view: View) -> bool:
    """Whether the run may have waited for a person until this turn, or the turn is the person's."""
    if type(view.event) is not Turn:
        return _may_wait(view.run, view.index - 1)
    return view.event.node in USER_NODES or _may_wait(view.run, view.index - 1)


def _may_wait(run: RunState, index: int) -> bool:
    """Whether a run may wait for a person after this turn: no turn is open, and this one was only a text."""
    return not run.turns_open and run.text_streak.may_wait(index)


def _over(ms: int, limit_ms: int) -> bool:
    return limit_ms > 0 and ms >= max(limit_ms, GAP_MS)


DETECTOR = Silence()


def _deadline(minutes: int) -> dict[str, object]:
    return {"type": "deadline", "at": START_MS + minutes * 60_000}


_STARTED = {"type": "turn.started", "node": "coder", "at": START_MS}
HEALTHY = [
    Example("turns that end in time", [_STARTED, said("coder", "done", at=START_MS + 540_000)]),
    Example("a run that waited for a person", [
        said("agent", "May I?", at=START_MS), {"type": "user.message", "at": START_MS + 7_200_000},
        said("agent", "Thank you.", at=START_MS + 7_210_000),
    ]),
    Example("a run that waits for a person", [said("agent", "May I?", at=START_MS), _deadline(11)]),
    Example("a person who was away, and whose message is not published", [
        said("agent", "May I?", at=START_MS), call("write", {}, "ok", at=START_MS + 7_200_000),
    ]),
    Example("a person who is away at a question of the harness", [
        {"type": "user.message", "at": START_MS}, call("ask", {}, "asked", at=START_MS), _deadline(60),
    ]),
    Example("a run that has gone on after a long gap", [
        call("read", {}, "one", at=START_MS), said("agent", "two", at=START_MS + 1_200_000),
    ]),
    Example("a run that has finished", [
        said("agent", "done", at=START_MS), {"type": "run.finished", "at": START_MS + 1_000}, _deadline(20),
    ]),
    Example("events without times", [{"type": "turn.started", "node": "coder"}, said("coder", "done")]),
]  # fmt: skip
STUCK = [
    Example("a person who does not come back", [
        {"type": "user.message", "at": START_MS}, call("ask", {}, "asked", at=START_MS), _deadline(240),
    ], "warn", 0),
    Example("no answer to a person", [
        call("ask", {}, "asked", at=START_MS), {"type": "user.message", "at": START_MS}, _deadline(11),
    ], "warn", 0),
    Example("a turn that never ends", [said("planner", "go", at=START_MS), _STARTED, _deadline(10)], "halt", 0),
    Example("a long turn while others continue", [
        _STARTED, *(said("reviewer", f"finding {n}", at=START_MS + n * 240_000) for n in range(4)),
    ], "warn", 3),
    Example("a silent run without an open turn", [call("read", {}, "text", at=START_MS), _deadline(11)], "warn", 0),
    Example("a turn started after a text", [said("agent", "hm", at=START_MS), _STARTED, _deadline(11)], "halt", 0),
    Example("a node that was to go on", [
        said("agent", "Your turn.", decision={"next": "coder"}, at=START_MS), _deadline(11),
    ], "warn", 0),
    Example("a slow turn that ends", [_STARTED, said("coder", "done", at=START_MS + 1_200_000)], "warn", 0),
    Example("a long gap between two turns, under a policy that warns of those", [
        call("read", {}, "one", at=START_MS), said("agent", "two", at=START_MS + 1_200_000),
    ], "warn", 1, {"detectors": {"STALL007": {"warn_late_s": 1_200}}}),
]  # fmt: skip
