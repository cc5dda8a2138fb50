"""ERROR001 repeated_error: a repair attempt ends in the same error as before.

Sees: a node's `errors` with the same error signature as the ones before. The signature is the first 50 characters of
each of the first three messages, masked and joined with a bar; of a traceback, those of its last line.

Why: if a repair cannot fix an error, the error stays the same. Stopping after the first futile repair needs no
classification of errors; where this rule comes from, it turned 27 attempts into 2.

False alarms: retryable infrastructure errors (429, 5xx, declared `retryable`; `retryable: false` is believed, whatever
the text) are not counted. An empty `errors` list means that nothing failed and ends the streak. So does measured
progress, or a new tool answer of the same node in between: a lone agent that investigates is not in a futile repair
loop.

Tuning: `halt` counts attempts with the same error; 2 stops after the first futile repair. `every_error: 1`, as in the
preset `repair`, is for work that consists of attempts and repairs: retryable errors count too, unless the same one
follows at once with no turn in between, which is a retry and no repair; failed calls count like reported errors, per
tool, and by their whole text if it has several lines, because the output of a test runner always begins alike; and what
a node finds out in between excuses nothing. The attempts of a run at one task (`task_id`) count whichever node reports
them: `attempt-1`, `attempt-2` and `attempt-3` with one error are three attempts. Tasks that fail in turn are compared
each with its own last failure. Nodes of other names that fail alike one right after the other are one: nothing was
repaired yet. Nodes that fail otherwise right after each other are one attempt, too: it is compared once all of them
have reported again. What another node does later in the same attempt is not known yet: send the errors of an attempt as
those of one turn to have them compared as a whole. Agents that explore fail alike more often.

Reference: repair-loop requirement "compare error signatures before and after repair attempts"; "comparing signatures
is universal: works for any error type".
"""

from __future__ import annotations

from streamproc.core.decision import REPEATED_ERROR
from streamproc.detectors.base import (
    Detector,
    Example,
    Finding,
    Level,
    RuleSettings,
    View,
    call,
    hex16,
    kind,
    level,
    said,
)


class RepeatedError(Detector):
    code, name = "ERROR001", "repeated_error"
    kinds = kind.ERRORS
    evidence = "count", "match", "hashes", "first_error"
    reason = REPEATED_ERROR

    class Limits:
        """Attempts in a row that end in the same error."""

        warn: int = 0  # the first repeat already halts
        halt: int = 2
        every_error: int = 0  # 1: retryable errors and failed calls are attempts as well

    def settings(self, limits: Limits | None) -> RuleSettings:
        return {"every_error": limits is not None and bool(limits.every_error)}

    def check(self, view: View, limits: Limits) -> Finding | None:
        streak, errors = view.node.errors, view.turn.errors
        of_run = None
        if limits.every_error:
            streak, errors = view.node.attempts, errors or view.turn.call_errors
            of_run = view.run.attempts.youngest()
        if not streak.count or errors is None or not errors.count:
            return None
        loop, count, first = view.node_tag ^ streak.value, streak.count, streak.first
        message = f"{view.turn.node} reported the same error in {count} consecutive attempts"
        if of_run is not None and of_run.count > count:
            loop, count, first = streak.value, of_run.count, of_run.first
            message = f"{count} consecutive attempts ended in the same error, the last one reported by {view.turn.node}"
        of_task = view.task_attempt if limits.every_error else None
        if of_task is not None and of_task.count > count:
            loop, count, first = of_task.failure, of_task.count, of_task.first
            message = f"{count} consecutive attempts at {view.turn.task_id} ended in the same error"
        if (reached := level(count, limits.warn, limits.halt)) is None:
            return None
        excerpt = errors.excerpt
        if errors is view.turn.call_errors:
            excerpt = excerpt or f"{errors.error_class} failed (the text of a call's error is not published)"
        message = f"{message}: {excerpt}"
        if reached is Level.HALT:
            message = f"Same error after repair attempt, stopping: {message}"
        return self.finding(
            reached, loop, message, onset=first,
            count=count, first_error=errors.excerpt or None, hashes=[hex16(errors.signature)], match="normalised",
        )  # fmt: skip


DETECTOR = RepeatedError()


def _failed(message: str, node: str = "executor") -> dict[str, object]:
    return {"node": node, "errors": [{"message": message}]}


HEALTHY = [
    Example("the repair gets further", [
        _failed("Template ${foo.bar} not found"), said("repair", "use foo.baz"),
        _failed("Command failed with exit code 1"),
    ]),
    Example("two tracebacks that only start alike", [
        _failed("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    run()\nKeyError: 'a'"),
        _failed("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    run()\nTypeError: b"),
    ]),
    Example("rate limits", [_failed("HTTP 429 Too Many Requests")] * 5),
    Example("a success in between", [_failed("boom"), {"node": "executor", "errors": []}, _failed("boom")]),
    Example("a lone agent that investigates", [
        _failed("boom", "agent"), call("read", {"f": 1}, "one"), _failed("boom", "agent"),
    ]),
]  # fmt: skip
_REPAIR = {"detectors": {"ERROR001": {"every_error": 1}}}
_RUN = {"node": "agent", "tool_calls": [{"name": "run_workflow", "args": {}, "error": "channel_not_found"}]}
STUCK = [
    Example("a server error after a repair", [
        _failed("HTTP 503 Unavailable"), said("repair", "another host"), _failed("HTTP 503 Unavailable"),
    ], "halt", 2, _REPAIR),
    Example("failures of calls, with an edit in between", [
        _RUN, call("edit", {"line": 1}, "ok"), _RUN,
    ], "halt", 2, _REPAIR),
    Example("attempts of three nodes", [
        _failed("Template ${foo} not found", "attempt-1"), _failed("Template ${foo} not found", "attempt-2"),
        _failed("Template ${foo} not found", "attempt-3"),
    ], "halt", 1, _REPAIR),
    Example("two tasks that are repaired in turn", [
        _failed("Template ${foo} not found") | {"task_id": "T1"}, _failed("boom") | {"task_id": "T2"},
        said("repair", "use foo.baz"),
        _failed("Template ${foo} not found") | {"task_id": "T1"},
    ], "halt", 3, _REPAIR),
    Example("a futile repair", [
        _failed("API error: channel_not_found"), said("repair", "join the channel first"),
        _failed("API error: channel_not_found"),
    ], "halt", 2),
    Example("errors that differ only by an id", [
        _failed("Request 550e8400-e29b-41d4-a716-446655440000 refused"),
        _failed("Request 6ba7b810-9dad-11d1-80b4-00c04fd430c8 refused"),
    ], "halt", 1),
]  # fmt: skip
