"""LOOP003 repeated_call: the same tool, arguments and answer again, with nothing new in between.

Sees: a call that an agent made before with the same arguments and got the same answer, consecutively or not, within its
last ten calls. All calls of one turn form one multiset: parallel siblings are not repeats. Text between two calls is
not a step.

Why: it is the most common way for an agent to waste a night: the same command, the same error, forever.

It also sees the same call, in a row, that writes the same long text again: an insertion that was made thirty times. Its
answers are new only because the file grows.

False alarms: agents legitimately re-read a file, re-run tests and poll. A repeat therefore halts only if *nothing new
happened since the first of the repeats counted*; a re-read between new findings is silent, and so is one for another
`request` or `task_id`. A call is *live* (a poll) if its answer once changed while nothing else happened, or says that
something is still running, pending, queued or in progress, starting or waiting, or repeats an argument that names a
handle, such as `session_id`, `pid` or `job_id`, and does not say that it is over; or if its command sleeps for ten
seconds or more first. The unchanged answer of a live call only counts after ten repeats, after three times the longest
period without change so far, and, where the log has times, after ten minutes. An answer that it gave before renews
nothing: a call that changes back and forth between known answers warns after ten and halts after 25 (if they say that
something is running: also ten minutes). Answers that are equal only after masking (time stamps, ids) count less than
answers that are equal byte for byte. Retryable infrastructure errors (429, 5xx, a tool that hangs) are not repeats,
except for the plain count of `gate: none`.
A call that presses keys and is only acknowledged counts as one without an answer, as the next look shows what it did.
The agent's own words excuse none of its calls: it may announce each repeat in others. Nor does what others find, once
a call has given the same answer ten times, none of its calls anything new since, and no person has spoken: it warns
then, and halts after 25.
Only calls that write by the form of their arguments count with new answers, and only with nothing else in between: a
long test command that is run again and again, or a poll with a long command, is left alone.

Tuning: `gate` names what restarts the count: `any` news; `results` only, and not the words of other nodes; `none` but
measured progress and a person: the plain count of a tool with the same arguments within `within` calls of its node,
contiguous or interleaved, whatever it answers (`halt`; `warn` in a row). `warn`/`halt` for answers equal byte for byte,
`masked_*` for those equal after masking, `unanswered_*` if no result was reported; `within` is the window in calls of
the agent. For what others find in between there are `own_warn` and `own_halt`, for live calls
`live_repeats_min`, `live_standstills`, `live_minutes`, `known_warn` and `known_halt`, and for writing calls
`written_warn` and `written_halt`.

Reference: "same tool called with identical arguments >= 3 times within 10 steps", with the novelty gate.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

from streamproc.core import kind
from streamproc.core.decision import Finding, Level, hex16
from streamproc.core.signals.calls import IDLE, Repeat
from streamproc.core.signals.novelty import Gate
from streamproc.core.signals.recent_calls import Recent
from streamproc.core.signals.statements import USER_NODES
from streamproc.core.signals.streaks import Streak
from streamproc.core.view import View
from streamproc.detectors.base import (
    START_MS,
    Detector,
    Example,
    RuleSettings,
    actor,
    args_excerpt,
    call,
    level,
    listed,
    said,
)
from streamproc.model.wire import NO_ANSWER


class RepeatedCall(Detector):
    code, name = "LOOP003", "repeated_call"
    kinds = kind.REPEATED_CALL
    evidence = "count", "turns", "match", "tool", "args_hash", "args_excerpt", "result_hash"
    gated = "calls"

    class Limits:
        """Counts of the same call with the same answer."""

        warn: int = 2  # in a row
        halt: int = 3
        masked_warn: int = 3  # only a time stamp differs: it may be a poll that is not known as one yet
        masked_halt: int = 5
        unanswered_warn: int = 3  # a missing result is no evidence; several in a row are
        unanswered_halt: int = 5
        within: int = 10  # calls
        live_repeats_min: int = 10  # of a poll, before an unchanged answer means anything
        gate: Gate = Gate.ANY  # a repeat between new findings is honest
        live_standstills: int = 3  # times the longest period without change so far, in repeats and in time
        live_minutes: int = 10  # since the last new answer of a poll, where there are times: jobs take minutes
        known_warn: int = 10  # answers of a poll in a row that it gave before: it changes back and forth
        known_halt: int = 25
        written_warn: int = 3  # the same call in a row that writes 120 characters or more, whatever its answers
        written_halt: int = 5
        own_warn: int = 10  # byte for byte, while others find something and the agent's calls do not; 10 or more
        own_halt: int = 25  # it may wait for them, and is no poll that is known as one

    def settings(self, limits: Limits | None) -> RuleSettings:
        own = limits or self.Limits()  # which answers of a poll are known matters to others as well
        return {
            "live_repeats_min": own.live_repeats_min,
            "live_standstills": own.live_standstills,
            "live_minutes": own.live_minutes,
            "known_warn": own.known_warn,
            "known_halt": own.known_halt,
        }

    def check(self, view: View, limits: Limits) -> Finding | None:
        best: tuple[Level, Repeat, int] | None = None
        for repeat in view.repeated:
            reached, count = _judge(view, repeat, limits)
            if reached is not None and (best is None or reached > best[0]):
                best = reached, repeat, count
        writes = view.run.calls.writes
        written = level(writes.count, limits.written_warn, limits.written_halt)
        if limits.gate != Gate.ANY:
            strongest = max(best[0] if best is not None else Level.INFO, written or Level.INFO)
            recent = self._recent(view, limits) if strongest < Level.HALT else None
            if recent is not None and recent.level > strongest:
                return recent
        if written is not None and (best is None or written > best[0]):
            return self._written(view, written, writes)
        if best is None:
            return None
        reached, repeat, count = best
        if self.reported(view, _loop(repeat), reached, _onset(repeat, count)):
            return None
        return self._finding(view, *best)

    def _written(self, view: View, reached: Level, writes: Streak) -> Finding | None:
        """Return the finding for a call that writes the same text again and again."""
        if self.reported(view, writes.value, reached):
            return None
        made = view.turn.calls[0]
        tool, count, first = made.name or "A tool", writes.count, writes.first
        message = f"{tool} has written the same text {count} times in a row, since turn {first}."
        return self.finding(
            reached, writes.value, message, onset=first,
            tool=made.name, args_hash=hex16(made.key), args_excerpt=args_excerpt(view.turn, made), count=count,
        )  # fmt: skip

    def _recent(self, view: View, limits: Limits) -> Finding | None:
        """Return the finding behind a gate of its own: a call that was made again and again in recent call turns."""
        best: tuple[Level, Recent, list[int]] | None = None
        for recent in view.recent:
            steps = [step for step in recent.call_turns if step > recent.call_turns[-1] - limits.within]
            turns = recent.turns[-len(steps) :]
            in_row = sum(step > steps[-1] - limits.warn for step in steps)
            reached = level(len(steps), 0, limits.halt) or level(in_row, limits.warn, 0)
            if reached is not None and (best is None or reached > best[0]):
                best = reached, recent, turns
        if best is None or self.reported(view, best[1].call.key, best[0]):
            return None
        reached, (made, _, _), turns = best
        plain = limits.gate == Gate.NONE
        what = "was called with the same arguments" if plain else "returned the same result for the same arguments"
        message = f"{made.name or 'A tool'} {what} at {listed(turns)}{'' if plain else _NO_RESULT}."
        return self.finding(
            reached, made.key, message, onset=turns[0],
            tool=made.name, args_hash=hex16(made.key), args_excerpt=args_excerpt(view.turn, made),
            result_hash=None if plain else hex16(made.exact), turns=turns, count=len(turns), match="exact",
        )  # fmt: skip

    def _finding(self, view: View, reached: Level, repeat: Repeat, count: int) -> Finding:
        made = repeat.call
        exact = repeat.exact_run >= count
        turns = repeat.turns[-count:]
        tool = made.name or "A tool"
        times = f" {count} times, most recently" if count > len(turns) else ""
        if repeat.known:
            times = f" {count} times, most recently"
            what = f"{tool} returned only results that it had returned before for the same arguments"
        elif made.outcome == NO_ANSWER:
            what = f"{tool} was called with the same arguments and reported no result"
        else:
            what = f"{tool} returned the same result for the same arguments"
        whose = f" in any call of {actor(view.turn)}" if repeat.own else ""
        message = f"{what}{times} at {listed(turns)}, with no new information{whose} in between."
        return self.finding(
            reached, _loop(repeat), message, onset=_onset(repeat, count),
            tool=made.name, args_hash=hex16(made.key), args_excerpt=args_excerpt(view.turn, made),
            result_hash=hex16(made.exact if exact else made.norm), turns=turns, count=count,
            match="exact" if exact else "normalised",
        )  # fmt: skip


_NO_RESULT: Final = ", with no new result in between"


def _loop(repeat: Repeat) -> int:
    """Return a number that identifies the loop: the call and its answer, unless that changes back and forth."""
    return repeat.call.key if repeat.known else repeat.call.key ^ repeat.norm


def _onset(repeat: Repeat, count: int) -> int:
    """Return the turn in which the counted occurrences began."""
    return repeat.known_since if repeat.known else repeat.turns[-count:][0]


def _in_row(steps: list[int], counted: int) -> int:
    """Return how many of the last so many call turns follow each other."""
    consecutive = 1
    while consecutive < counted and steps[-consecutive - 1] == steps[-consecutive] - 1:
        consecutive += 1
    return consecutive


def _last_words(view: View) -> int:
    """Return the last turn of a person, who may ask for the same again; -1: there was none."""
    people = (view.run.nodes.find(view.tag(name)) for name in USER_NODES)
    return max((one.last_turn for one in people if one is not None), default=-1)


def _judge(view: View, repeat: Repeat, limits: RepeatedCall.Limits) -> tuple[Level | None, int]:
    """Return the severity of this repeat and the number of occurrences counted."""
    if repeat.live:
        return Level.WARN if repeat.state == IDLE else Level.HALT, max(repeat.known, repeat.still)
    turns, steps = repeat.turns, repeat.call_turns
    found = view.run.novelty.last_news == view.index  # by another call of this turn
    news = view.index if found else view.news
    first = max(bisect_left(turns, news), bisect_left(steps, view.call_turns - limits.within + 1))
    counted = len(steps) - first
    if repeat.call.outcome == NO_ANSWER:
        consecutive = _in_row(steps, counted)
        return level(consecutive, limits.unanswered_warn, limits.unanswered_halt), consecutive
    exact = min(counted, repeat.exact_run)
    own = repeat.own and not found and max(view.run.novelty.last_progress, _last_words(view)) < repeat.turns[0]
    if own and limits.halt and 0 < limits.own_halt <= repeat.exact_run:
        return Level.HALT, repeat.exact_run
    if 0 < limits.halt <= exact:
        return Level.HALT, exact
    if 0 < limits.masked_halt <= counted:
        return Level.HALT, counted
    if 0 < limits.warn <= exact and limits.warn <= _in_row(steps, counted):
        return Level.WARN, exact
    if own and 0 < limits.own_warn <= repeat.exact_run:
        return Level.WARN, repeat.exact_run
    return (Level.WARN if 0 < limits.masked_warn <= counted else None), counted


DETECTOR = RepeatedCall()
_TESTS = "3 failed, 9 passed"
_SECOND = 1_000  # ms
_LINE = "def add(left, right):\n    return left + right\n" * 3


def _polls(answers: list[str], seconds: int, **args: Any) -> list[dict[str, Any]]:
    """Return polls at a steady pace."""
    return [
        call("poll", {"id": 1} | args, answer, at=START_MS + n * seconds * _SECOND) for n, answer in enumerate(answers)
    ]


HEALTHY = [
    Example("a job that runs for five minutes", _polls(["still running"] * 30, 10)),
    Example("a session of a shell that prints nothing", _polls(["session 4711, 0 bytes"] * 30, 10, session_id=4711)),
    Example("polls of a session whose answers are not reported", [
        call("write_stdin", {"session_id": 4711}, at=START_MS + n * 8 * _SECOND) for n in range(30)
    ]),
    Example("a known poll that pauses for a minute", _polls(["10%", "20%", *["30%"] * 12, "40%"], 6)),
    Example("a long test command that is run again until it passes", [
        call("bash", {"command": f"pytest -q {' '.join(f'tests/test_{n}.py' for n in range(12))}"}, f"{9 - n} failed")
        for n in range(9)
    ]),
    Example("two different texts written to one file in turn", [
        call("insert", {"path": "a.py", "insert_text": _LINE + str(n % 2)}, f"{n} lines") for n in range(8)
    ]),
    Example("a poll whose answers change", [call("poll", {"job": 7}, f"{n} of 8 done") for n in range(8)]),
    Example("a known poll whose answer stays the same for a while", [
        call("poll", {"job": 7}, answer)
        for answer in ("10%", "20%", "30%", "30%", "30%", "30%", "30%", "40%", "40%", "40%", "100%")
    ]),
    Example("a status that stays the same while other work gets done", [
        call("status", {}, "starting"), *(
            turn for n in range(15) for turn in (call("status", {}, "running"), call("visit", {"page": n}, f"page {n}"))
        ),
    ]),
    Example("nine looks into an empty inbox while another node works", [
        turn for n in range(9) for turn in (
            call("inbox", {}, "empty", node="lead"), call("read", {"f": n}, f"text {n}", node="worker"),
        )
    ]),
    Example("a person who asks for the same thirty times", [
        turn for n in range(30) for turn in (said("user", f"And now, at {n}?"), call("status", {}, "ok"))
    ]),
    Example("messages of a person who asks for the same thirty times, while another node works", [
        turn for n in range(30) for turn in (
            *([{"type": "user.message"}] * (n % 5 == 0)), call("status", {}, "ok"),
            call("read", {"f": n}, f"text {n}", node="worker"),
        )
    ]),
    Example("a status beside each file that the same agent reads, while another node works", [
        turn for n in range(30) for turn in (
            {"node": "lead", "tool_calls": [*call("status", {}, "ok")["tool_calls"],
                                            *call("read", {"page": n}, f"page {n}")["tool_calls"]]},
            call("read", {"f": n}, f"text {n}", node="worker"),
        )
    ]),
    Example("calls without answers while another node says something new", [
        turn for n in range(6) for turn in (call("next", {}, node="worker"), said("reader", f"Chapter {n} is good."))
    ]),
    Example("a file read again between new findings", [
        call("read", {"path": "a.py"}, "A"), call("read", {"path": "b.py"}, "B"), call("read", {"path": "a.py"}, "A"),
        call("read", {"path": "c.py"}, "C"), call("read", {"path": "a.py"}, "A"), call("read", {"path": "d.py"}, "D"),
    ]),
    Example("edit, then the same test again, with new output", [
        call("edit", {"line": 1}, "ok"), call("test", {}, "3 failed"), call("edit", {"line": 2}, "ok, 2"),
        call("test", {}, "2 failed"), call("edit", {"line": 3}, "ok, 3"), call("test", {}, "1 failed"),
    ]),
    Example("the same test result after three different edits", [
        call("edit", {"line": 1}, "ok"), call("test", {}, _TESTS), call("edit", {"line": 2}, "ok"),
        call("test", {}, _TESTS), call("edit", {"line": 3}, "ok"), call("test", {}, _TESTS),
    ]),
    Example("three nodes look at the same file", [
        call("read", {"path": "task.md"}, "the task", node=name) for name in ("planner", "coder", "reviewer")
    ]),
    Example("one read of the guide for each task", [
        call("read_guide", {}, "the guide", task_id=f"T{n}") for n in range(3)
    ]),
    Example("one read of the guide for each request", [
        call("read_guide", {}, "the guide", request=f"Translate page {n}.") for n in range(6)
    ]),
    Example("parallel siblings", [
        {"node": "agent", "tool_calls": [{"name": "ping", "args": {}, "result": "pong"}] * 6},
    ]),
    Example("retries after 429", [
        {"node": "agent", "tool_calls": [{"name": "llm", "args": {}, "error": "HTTP 429 Too Many Requests"}]},
    ] * 4),
    Example("a 429 reported as an answer", [call("search", {"q": 1}, "HTTP 429 Too Many Requests")] * 6),
    Example("batch work: different files, the same answer", [call("write", {"file": n}, "ok") for n in range(30)]),
]  # fmt: skip
STUCK = [
    Example("three times in a row", [call("run", {"cmd": "make"}, "error: no rule")] * 3, "halt", 2),
    Example("with narration in between", [
        call("run", {"cmd": "make"}, "error: no rule"), said("agent", "Let me try that again."),
        call("run", {"cmd": "make"}, "error: no rule"), said("agent", "Once more, carefully."),
        call("run", {"cmd": "make"}, "error: no rule"),
    ], "halt", 4),
    Example("a known call in between does not hide the repeat", [
        call("ls", {}, "a b"), call("run", {"cmd": "make"}, "error"), call("run", {"cmd": "make"}, "error"),
        call("ls", {}, "a b"), call("run", {"cmd": "make"}, "error"),
    ], "halt", 4),
    Example("answers that differ only by a time stamp", [
        call("run", {"cmd": "make"}, f"error at 2026-01-01T10:00:0{n}Z") for n in range(5)
    ], "halt", 4),
    Example("under `gate: none`, three times within ten calls, whatever it answers", [
        call("test", {}, "3 failed"), call("edit", {"line": 1}, "ok"), call("test", {}, "2 failed"),
        call("edit", {"line": 2}, "ok"), call("test", {}, "1 failed"),
    ], "halt", 4, {"detectors": {"LOOP003": {"gate": "none"}}}),
    Example("under `gate: results`, between the new words of another node", [
        turn for n in range(3) for turn in (call("run", {}, "error", node="a"), said("b", f"Try again{'!' * n}"))
    ], "halt", 4, {"detectors": {"LOOP003": {"gate": "results"}}}),
    Example("under the new words of the agent itself, between those of a harness", [
        turn for n in range(3) for turn in (
            said("harness", "Continue."), said("agent", f"Let me try {'x' * n} again."), said("harness", "Continue."),
            call("run", {"cmd": "make"}, "error: no rule"),
        )
    ], "halt", 11),
    Example("two calls in turn, 25 times, while another agent finds something each time", [
        turn for n in range(25) for turn in (
            call("run", {"cmd": "make"}, "error: no rule"), call("read", {"f": n}, f"text {n}", node="reader"),
            call("run", {"cmd": "ls"}, "a b"),
        )
    ], "halt", 72),
    Example("no answers at all", [call("run", {"cmd": "make"})] * 5, "halt", 4),
    Example("a key that is pressed three times", [call("press_key", {"key": "Down"}, "ok")] * 3, "warn", 2),
    Example("a job that never ends", _polls(["still running"] * 61, 10), "halt", 60),
    Example("a call that changes back and forth between two answers", [
        call("poll", {}, answer) for answer in (*("on", "off") * 13, "on")
    ], "halt", 26),
    Example("a file that grows by the same text", [
        call("insert", {"path": "a.py", "insert_text": _LINE}, f"{6 * n} lines") for n in range(5)
    ], "halt", 4),
]  # fmt: skip
