"""LOOP012 edits_without_effect: the same check gives the same answer after each of several edits.

Sees: one call of an agent with the same arguments, such as a test, a build or a query, whose answer is the same byte
for byte or, if it fails, the same but for times, durations and ids, and between these calls edits of the agent and
nothing else. An edit is known by the form of its arguments: a text for a place in a file, a patch, or a shell command
that only writes a file. Edits that were refused count as well.

Why: the edits do not reach what the check looks at. They are in another file, are not saved, not built, or refused, and
each is new, so nothing else repeats. A real run did this 31 times.

False alarms: a check that passes stays the same while an agent improves working code, so an answer that says so ("12
passed", "0 errors, 0 warnings", "Syntax OK") is not counted, and neither is an empty one, or one that only repeats the
command. Any other call of the agent in between, a person's message or measured progress start the count again. A poll
is no check.

Tuning: `warn` and `halt` count equal answers; 0 turns a level off.

Reference: agents' logs published in 2025 and 2026.
"""

from __future__ import annotations

from typing import Any

from streamproc.detectors.base import (
    Detector,
    Example,
    Finding,
    View,
    actor,
    args_excerpt,
    call,
    hex16,
    kind,
    level,
    said,
)


class EditsWithoutEffect(Detector):
    code, name = "LOOP012", "edits_without_effect"
    kinds = kind.REPEATED_CALL
    evidence = "count", "match", "tool", "args_hash", "args_excerpt", "result_hash"

    class Limits:
        """Equal answers of one check, with nothing but edits in between."""

        warn: int = 4
        halt: int = 6  # two more, after the nudge

    def check(self, view: View, limits: Limits) -> Finding | None:
        reruns = view.run.reruns
        if reruns.count < 2 or reruns.last != view.index:
            return None
        reached = level(reruns.count, limits.warn, limits.halt)
        if reached is None or self.reported(view, reruns.value, reached, reruns.first):
            return None
        made, count, first = view.turn.calls[0], reruns.count, reruns.first
        message = (
            f"{made.name or 'A call'} gave {actor(view.turn)} the same answer {count} times since turn {first}, with"
            " nothing but edits in between: they do not reach what it looks at."
        )
        return self.finding(
            reached, reruns.value, message, onset=first, count=count, match="normalised",
            tool=made.name, args_hash=hex16(made.key), args_excerpt=args_excerpt(view.turn, made),
            result_hash=hex16(made.norm),
        )  # fmt: skip


DETECTOR = EditsWithoutEffect()
_TEST = "FAILED test_a.py::test_add - assert 3 == 4"


def _edit(n: int, **more: Any) -> dict[str, Any]:
    """Return an edit that no other one equals."""
    return call("edit", {"path": "a.py", "old_str": "x", "new_str": f"x + {n}"}, f"edit {n} applied", **more)


def _rounds(times: int, answer: str) -> list[dict[str, Any]]:
    return [turn for n in range(times) for turn in (_edit(n), call("test", {}, answer))]


HEALTHY = [
    Example("the tests of working code that is improved", _rounds(9, "12 passed")),
    Example("a type checker that is content", _rounds(9, "Success: no issues found in 3 source files")),
    Example("a type checker that counts no errors", _rounds(9, "0 errors, 0 warnings, 0 informations")),
    Example("a linter that says nothing", _rounds(9, "> app@1.0.0 lint\n> eslint .\n")),
    Example("another answer after each edit", [
        turn for n in range(9) for turn in (_edit(n), call("test", {}, f"{_TEST} ({9 - n} failed)"))
    ]),
    Example("other work in between", [
        turn for n in range(9)
        for turn in (_edit(n), call("read", {"path": f"{n}.py"}, f"text {n}"), call("test", {}, _TEST))
    ]),
    Example("a person who speaks in between", [
        turn for n in range(9) for turn in (_edit(n), call("test", {}, _TEST), *[{"type": "user.message"}] * (n % 2))
    ]),
    Example("a resource that is made from each version of a file", [
        turn for n in range(9)
        for turn in (_edit(n), call("create", {"from": "a.json"}, f"made 0f00c0de-000{n}-4000-8000-00000000000{n}"))
    ]),
    Example("fewer failing tests", [
        turn for n in range(9)
        for turn in (_edit(n), call("test", {}, _TEST, tests={"failed": [f"t{m}" for m in range(9 - n)], "total": 9}))
    ]),
]  # fmt: skip
STUCK = [
    Example("six edits, and the test fails as before", _rounds(6, _TEST), "halt", 11),
    Example("edits that are refused", [
        turn for n in range(6) for turn in (
            {"node": "agent", "tool_calls": [
                {"name": "edit", "args": {"path": "a.py", "new_str": f"{n}"}, "error": f"no match for {n}"},
            ]},
            call("test", {}, _TEST),
        )
    ], "halt", 11),
    Example("with narration in between", [
        turn for n in range(6) for turn in (_edit(n), said("agent", f"Attempt {n}"), call("test", {}, _TEST))
    ], "halt", 17),
    Example("a report that ends in how long it took", [
        turn for n in range(6) for turn in (_edit(n), {"node": "agent", "tool_calls": [
            {"name": "test", "args": {}, "error": f"Exit code 1\n{_TEST}\n1 failed in 0.{n + 1}3s"},
        ]})
    ], "halt", 11),
    Example("through the shell", [
        turn for n in range(6) for turn in (
            call("bash", {"command": f"sed -i 's/a/{n}/' a.py"}, ""),
            call("bash", {"command": "make"}, "make: *** [a] 1"),
        )
    ], "halt", 11),
]  # fmt: skip
