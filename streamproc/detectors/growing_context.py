"""STALL010 growing_context: the context of an agent grows turn by turn, and its calls return only what is known.

Sees: turns of one node that read more input tokens each time, while most of its recent calls returned only results that
the run had already seen.

Why: a sign that comes before the compaction: each turn costs more than the one before, and brings nothing.

False alarms: every context grows while an agent works. It therefore counts only turns of LOOP009's kind, in which the
recent calls were stale, starts again at each new result, and only warns.

Tuning: `warn` counts such turns (0: off); `growth_tokens` is by how much the context must have grown in them.

Reference: anthropics/claude-code#94481.
"""

from __future__ import annotations

from typing import Final

from streamproc.core.marks import NEVER
from streamproc.detectors.base import Detector, Example, Finding, Level, RawTurn, View, call, kind, loop_of

STALE_TURNS: Final = 3  # of the last six turns with calls


class GrowingContext(Detector):
    code, name = "STALL010", "growing_context"
    kinds = kind.STALE
    evidence = "count", "used", "unit"

    class Limits:
        """Turns in a row."""

        warn: int = 8  # LOOP009 has warned some turns before
        growth_tokens: int = 8_000  # a few long results; less is no reason to warn

    def marks(self, limits: Limits) -> dict[str, int]:
        return {"stale_turns": STALE_TURNS if limits.warn else NEVER, "stale_turns_known": NEVER}

    def check(self, view: View, limits: Limits) -> Finding | None:
        usage, calls = view.turn.usage, view.run.calls
        known = 0 <= calls.stale_since <= view.halt_seen  # a halt has reported it
        if limits.warn <= 0 or usage is None or known or calls.stale_bits.bit_count() < STALE_TURNS:
            return None
        memory, size = view.memory(self.code), usage.input_tokens
        since, count = memory.get("since", view.index), memory.get("count", 0)
        grows = memory.get("node") == view.node_tag and size > memory.get("size", 0)
        if not grows or view.novelty.last_result > since:
            memory["since"], memory["first"], count = view.index, size, 0
            since = view.index
        memory |= {"node": view.node_tag, "size": size, "count": count + 1}
        loop = loop_of("growing", since)
        if count + 1 < limits.warn or size - memory["first"] < limits.growth_tokens:
            return None
        if self.reported(view, loop, Level.WARN, since):
            return None
        message = (
            f"The context has grown from {memory['first']} to {size} tokens in {count + 1} turns, "
            "in which calls returned only results that this run had already seen."
        )
        return self.finding(Level.WARN, loop, message, onset=since, count=count + 1, used=size, unit="tokens")


def _reading(name: object, tokens: int) -> RawTurn:
    return call("read", {"file": name}, f"text of {name}", usage={"input_tokens": tokens})


DETECTOR = GrowingContext()
HEALTHY = [
    Example("a context that grows with new results", [_reading(n, 10_000 + 5_000 * n) for n in range(30)]),
    Example("known results in a context that stays small", [
        _reading(n % 2, 900 + n) for n in range(5)
    ], policy={"detectors": {"LOOP002": "off", "LOOP003": "off"}}),
    Example("a second look at some files, with new ones in between", [
        _reading(n if n % 3 else 0, 10_000 + 2_000 * n) for n in range(24)
    ]),
]  # fmt: skip
STUCK = [
    Example("the same files again and again, in a context that grows each turn", [
        *[_reading(n, 10_000) for n in range(9)], *[_reading((7 * n) % 9, 12_000 + 3_000 * n) for n in range(16)],
    ], "warn", 18, policy={"detectors": {"LOOP002": "off", "LOOP003": "off"}}),
    Example("under a policy that warns sooner", [
        *[_reading(n, 10_000) for n in range(9)], *[_reading((7 * n) % 9, 12_000 + 3_000 * n) for n in range(16)],
    ], "warn", 15, policy={"detectors": {"LOOP002": "off", "LOOP003": "off", "STALL010": {"warn": 5}}}),
]  # fmt: skip
