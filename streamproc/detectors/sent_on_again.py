"""LOOP014 sent_on_again: an agent that is about to stop is sent on again and again, and nothing comes of it.

Sees: `run.continued` events between which the run got no new result: for the same reason, or for different ones; and
the same reason many times, although something new happened in between.

Why: a Stop hook or a gate that the agent cannot satisfy sends it on for ever, at a full model turn each. CLIs have no
cap, or a high one.

False alarms: a hook that sends an agent on to the next item of a list has the same reason each time: its work brings
new results, and it only warns late. In a run without any tools, new texts are results. Waiting for something that is
still running is not counted. Measured progress and a person start the counts again.

Tuning: `warn` and `halt` count how often the same reason came with no new result in between, `other_warn` and
`other_halt` the same for any reasons, `busy_warn` and `busy_halt` how often one reason came at all; 0 turns a level
off.

Reference: openai/codex#37937 (a Stop hook that fails the same way for ever), kunchenguid/no-mistakes#683 (27 rounds).
"""

from __future__ import annotations

from typing import Any, Final

from streamproc.core.records import TAG
from streamproc.detectors.base import Detector, Example, Finding, RawTurn, View, call, kind, level, loop_of, said
from streamproc.model.wire import RunContinued

REASONS_MAX: Final = 6  # different reasons that are counted


class SentOnAgain(Detector):
    code, name = "LOOP014", "sent_on_again"
    kinds = kind.CONTINUED
    evidence = ("count",)

    class Limits:
        """How often the run was sent on."""

        warn: int = 2  # the first time is what hooks are for
        halt: int = 3  # as LOOP003: the same, with the same outcome, for the third time
        other_warn: int = 3
        other_halt: int = 6  # reasons that differ may be steps of one check
        busy_warn: int = 10  # work goes on in between: a person should look at the hook
        busy_halt: int = 0  # off: a hook that hands out the items of a list has one reason

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = view.event
        if not isinstance(event, RunContinued):
            return None
        memory = view.memory(self.code)
        before, novelty, last = memory.get("at", -1), view.novelty, max(0, view.index - 1)
        if before < 0 or novelty.last_progress >= before:
            memory.clear()
        reason = event.reason.norm & TAG if event.reason is not None else 0
        talks = not view.run.call_turns and novelty.last_discovery >= before
        barren = before >= 0 and bool(memory) and novelty.last_result < before and not talks
        same = barren and reason and reason == memory.get("reason")
        memory["same"] = memory.get("same", 0) + 1 if same else 1
        memory["any"] = memory.get("any", 0) + 1 if barren else 1
        memory["same_since"] = memory["same_since"] if same else last
        memory["any_since"] = memory["any_since"] if barren else last
        memory |= {"at": view.index, "reason": reason}
        return self._found(view, event, limits, memory, _counted(memory, reason, last))

    def _found(
        self, view: View, event: RunContinued, limits: Limits, memory: dict[str, Any], busy: tuple[int, int]
    ) -> Finding | None:
        by = f" by {event.by}" if event.by else ""
        times, since = busy
        rules = (
            (memory["same"], memory["same_since"], limits.warn, limits.halt,
             f"The run was sent on{by} {memory['same']} times for the same reason, with no new result in between."),
            (memory["any"], memory["any_since"], limits.other_warn, limits.other_halt,
             f"The run was sent on{by} {memory['any']} times in a row with no new result in between."),
            (times, since, limits.busy_warn, limits.busy_halt,
             f"The run was sent on{by} {times} times for the same reason."),
        )  # fmt: skip
        found: Finding | None = None
        for rule, (count, onset, warn, halt, message) in enumerate(rules):
            reached = level(count, warn, halt)
            loop = loop_of(rule, onset)
            if reached is None or (found is not None and reached <= found.level):
                continue
            if not self.reported(view, loop, reached, onset):
                found = self.finding(reached, loop, message, onset=onset, count=count, node=event.node)
        return found


def _counted(memory: dict[str, Any], reason: int, index: int) -> tuple[int, int]:
    """Count a reason, and return how often it came and since which turn; none that is not known."""
    if not reason:
        return 0, index
    reasons: dict[str, list[int]] = memory.setdefault("reasons", {})
    times, since = reasons.pop(f"{reason:x}", (0, index))
    reasons[f"{reason:x}"] = [times + 1, since]
    while len(reasons) > REASONS_MAX:
        del reasons[next(iter(reasons))]
    return times + 1, since


def sent_on(reason: str | None, by: str = "Stop hook") -> RawTurn:
    """Return an event of an example."""
    return {"type": "run.continued", "by": by} | ({} if reason is None else {"reason": reason})


DETECTOR = SentOnAgain()
HEALTHY = [
    Example("a hook that asks for the tests, and gets them", [
        call("edit", {"n": 0}, "ok"), said("agent", "Done."), sent_on("Run the tests."),
        call("test", {}, "12 passed"), said("agent", "Done, and tested."),
    ]),
    Example("the next item of a list, for the same reason each time", [
        turn for n in range(9) for turn in (call("write", {"file": n}, f"written {n}"), sent_on("Do the next item."))
    ]),
    Example("a writer without tools who is sent on to the next chapter", [
        turn for n in range(8) for turn in (said("writer", f"Chapter {n}: {'abcdefgh'[n] * 9} met a stranger."),
                                            sent_on("Write the next chapter."))
    ]),
    Example("a reviewer that is still running", [
        turn for n in range(8) for turn in (call("status", {"agent_id": "r"}, f"running for {n} m, r is at file {n}"),
                                            sent_on("The review is pending."))
    ]),
    Example("a person who answers in between", [
        turn for _ in range(5) for turn in (sent_on("Ask the user."), {"type": "user.message"})
    ]),
]  # fmt: skip
STUCK = [
    Example("codex#37937: a hook that fails the same way whatever the agent says", [
        call("read", {"file": "a"}, "text"), said("agent", "The work is done."), sent_on("node: command not found"),
        said("agent", "I cannot repair the hook."), sent_on("node: command not found"),
        said("agent", "As I said, node is missing here."), sent_on("node: command not found"),
    ], "halt", 3),
    Example("another reason each time, and no work", [
        call("read", {"file": "a"}, "text"),
        *[turn for n in range(6) for turn in (said("agent", f"Sure, {'abcdef'[n] * 5} it is."),
                                              sent_on(f"Criterion {'abcdef'[n] * 4} is not met."))],
    ], "halt", 6),
    Example("no-mistakes#683: 27 rounds of one gate, each with an edit", [
        turn for n in range(27) for turn in (call("edit", {"n": n}, f"edited line {n}"), sent_on("Fix what it found."))
    ], "warn", 9),
    Example("a hook of which no reason is known", [
        call("read", {"file": "a"}, "text"), *[sent_on(None)] * 6,
    ], "halt", 0),
]  # fmt: skip
