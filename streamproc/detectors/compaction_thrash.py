"""STALL009 compaction_thrash: the context of an agent is compacted again and again, with nothing new in between.

Sees: compactions of one agent in a row between which the run got no new result and said nothing new; and compactions
that come within a few turns of each other, whatever was found in between.

Why: the summary fills the context again, or what the agent reads first does. Each compaction costs a full context, and
the agent forgets what it did: 106 of them cost 19.2 million tokens in two days.

False alarms: a long job is compacted often, with much new in between. A large file fills a context at once, so
compactions that are only close warn. A compaction that a person asks for, and one after a message of a person, starts
the count again. A poll that waits for something renews as a new result does.

Tuning: `warn` and `halt` count compactions in a row that nothing new came before, `close_warn` those that came within
`within` turns of the one before; 0 turns a level off.

Reference: anthropics/claude-code#94481 and #24179; Claude Code says that it is thrashing when the context is full
"within 3 turns of the previous compact, 3 times in a row".
"""

from __future__ import annotations

from typing import Final

from streamproc.detectors.base import Detector, Example, Finding, Level, RawTurn, View, call, kind, level, loop_of
from streamproc.model.wire import ContextCompacted

NODES_MAX: Final = 4  # agents of a run whose compactions are remembered
MANUAL: Final = "manual"  # the trigger of a compaction that a person asks for


class CompactionThrash(Detector):
    code, name = "STALL009", "compaction_thrash"
    kinds = kind.COMPACTED
    evidence = ("count",)

    class Limits:
        """Compactions in a row."""

        warn: int = 2  # one may follow another, because a summary came out too long
        halt: int = 4  # two more, after the nudge
        close_warn: int = 3  # as Claude Code's own limit; never a halt, because a new file may be that large
        within: int = 3  # turns

    def check(self, view: View, limits: Limits) -> Finding | None:
        event = view.event
        if not isinstance(event, ContextCompacted):
            return None
        memory, key = view.memory(self.code), f"{view.tag(event.node):x}"
        last = max(0, view.index - 1)
        before, barren, close, since = memory.pop(key, (-1, 0, 0, last))
        novelty = view.novelty
        worked = before < 0 or max(novelty.last_result, novelty.last_discovery) >= before
        restarted = event.trigger == MANUAL or before < 0 or novelty.last_progress >= before
        barren = 0 if worked or event.trigger == MANUAL else barren + 1
        close = close + 1 if not restarted and view.index - before <= limits.within else 0
        since = since if barren or close else last
        memory[key] = (view.index, barren, close, since)
        while len(memory) > NODES_MAX:
            del memory[next(iter(memory))]
        loop = loop_of(key, since)
        found = level(barren, limits.warn, limits.halt)
        if found is not None and not self.reported(view, loop, found, since):
            message = f"The context was compacted {barren} times in a row with nothing new in between{_to(event)}."
            return self.finding(found, loop, message, onset=since, count=barren, node=event.node)
        if 0 < limits.close_warn <= close and not self.reported(view, loop, Level.WARN, since):
            message = f"The context was full again within {limits.within} turns, {close} times in a row{_to(event)}."
            return self.finding(Level.WARN, loop, message, onset=since, count=close, node=event.node)
        return None


def _to(event: ContextCompacted) -> str:
    """Say what the last compaction saved, if that is known and little."""
    if not event.before_tokens or not event.after_tokens or event.after_tokens * 2 < event.before_tokens:
        return ""
    return f"; the last one left {event.after_tokens} of {event.before_tokens} tokens"


def compacted(**fields: object) -> RawTurn:
    """Return a compaction of an example."""
    return {"type": "context.compacted", "trigger": "auto", **fields}


def _read(number: int) -> RawTurn:
    return call("read", {"file": f"{number}.py"}, f"text {number}")


DETECTOR = CompactionThrash()
HEALTHY = [
    Example("a long job with new results between its compactions", [
        turn for n in range(8) for turn in (*[_read(8 * n + k) for k in range(6)], compacted())
    ]),
    Example("compactions that a person asks for", [_read(0), *[compacted(trigger="manual")] * 5]),
    Example("a person who goes on after each one", [
        turn for n in range(5) for turn in ({"type": "user.message"}, _read(0), compacted())
    ]),
    Example("waiting for a build that makes progress", [
        turn for n in range(6)
        for turn in (*[call("poll", {"job": 7}, f"running, {5 * n + k} %") for k in range(5)], compacted())
    ]),
    Example("agents beside each other, each with its own context", [
        turn for n in range(4) for turn in (*[_read(8 * n + k) for k in range(8)],
                                            compacted(node="a"), compacted(node="b"), compacted(node="c"))
    ]),
]  # fmt: skip
STUCK = [
    Example("claude-code#94481: what is read again after each compaction fills the context", [
        turn for n in range(6)
        for turn in (*[_read((5 * k + 7 * n) % 12) for k in range(12)], compacted(before_tokens=167_000))
    ], "halt", 59),
    Example("one compaction after another, of which none makes room", [
        _read(1), *[compacted(before_tokens=167_000, after_tokens=140_000)] * 5,
    ], "halt", 0),
    Example("a new large file fills each context", [
        turn for n in range(6) for turn in (_read(2 * n), _read(2 * n + 1), compacted())
    ], "warn", 7),
]  # fmt: skip
