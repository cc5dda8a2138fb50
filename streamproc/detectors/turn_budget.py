"""BUDGET001 turn: one turn takes too long, or too many tokens.

Sees: a turn against `turnTimeoutMs` and `maxTokens`. The duration of a turn is its measured `usage.duration_ms`, or
the log time since its `turn.started`, whichever is longer. A turn that was started and has not ended is also detected:
at the next event of its run or, if none comes, by the `deadline` event that the worker publishes. Reaching a token
limit exactly warns, exceeding it halts. Tokens are those of input and output; what a cache held counts in full.

Why: one invocation that hangs, or fills a whole context window, delays everything behind it.

False alarms: none if the numbers are right; nothing is limited unless the run or the policy declares it. A publisher
that sends `turn.started` and never publishes the turn looks like a turn that hangs. Parallel siblings of one node need
a `task_id` each; without one only the last to start has a clock.

Tuning: declare `turnTimeoutMs`, `maxTokens` on `run.started` or in the policy. If no time-out is declared, STALL007
detects silent turns.

Reference: loop-safety requirement "per-turn budget": `turnTimeoutMs` 10 minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamproc.core.deadlines import Due
from streamproc.core.marks import NEVER
from streamproc.core.run_state import RunState
from streamproc.core.signals.open_turns import node_of
from streamproc.detectors.base import START_MS, Example, Finding, View, kind, said, started
from streamproc.detectors.budget_detector import Measure, MeasuredBudget, layer_of, more_severe
from streamproc.model.wire import Turn


class TurnBudget(MeasuredBudget):
    code, name = "BUDGET001", "turn"
    kinds = kind.SPENDING | kind.CLOCK
    measures = (Measure("turnTimeoutMs", "ms", "turn_ms"), Measure("maxTokens", "tokens", "turn_tokens"))

    def check(self, view: View, limits: Any) -> tuple[Finding, ...]:
        timeout_ms = view.budgets.get("turnTimeoutMs", NEVER)
        ended = self._ended(view, timeout_ms) if type(view.event) is Turn else None
        found = [] if ended is None else [ended]
        for turn in view.run.open_turns:
            open_ms = view.run.at_ms - turn.started_ms
            if open_ms >= timeout_ms:
                subject, layer = f"An open turn of {turn.name or 'the run'}", layer_of(view, "turnTimeoutMs")
                found.append(self.overdue(open_ms, timeout_ms, subject, turn.node, layer, node=node_of(turn)))
        return tuple(found)

    def _ended(self, view: View, timeout_ms: int) -> Finding | None:
        usage, found = view.turn.usage, None
        took_ms = max(view.took_ms, usage.duration_ms if usage is not None else 0)
        tokens = -1 if usage is None else usage.total_tokens or usage.input_tokens + usage.output_tokens
        if took_ms <= timeout_ms and tokens < view.budgets.get("maxTokens", NEVER):
            return None
        subject = f"The turn of {view.turn.node}"
        if took_ms > timeout_ms:
            found = self.overdue(took_ms, timeout_ms, subject, view.node_tag, layer_of(view, "turnTimeoutMs"))
        return more_severe(found, self.worst(view, (-1, tokens), subject, view.node_tag))

    def due(self, run: RunState, budgets: Mapping[str, int], limits: Any) -> list[Due]:
        timeout_ms = budgets.get("turnTimeoutMs")
        if timeout_ms is None:
            return []
        return [Due(turn.started_ms + timeout_ms, self.code, turn.started_ms, turn.name) for turn in run.open_turns]


DETECTOR = TurnBudget()
_TIMEOUT = {"type": "run.started", "budgets": {"turnTimeoutMs": 600_000}, "at": START_MS}
_TOKENS = started(maxTokens=8_000)
_STARTED = {"type": "turn.started", "node": "coder", "at": START_MS}
HEALTHY = [
    Example("no limit is set", [said("coder", "done", usage={"duration_ms": 7_200_000, "total_tokens": 10**6})]),
    Example("a turn that ends in time", [_TIMEOUT, _STARTED, said("coder", "done", at=START_MS + 599_000)]),
    Example("two tasks of one node, each within its limit", [
        _TIMEOUT, _STARTED | {"task_id": "T1"}, _STARTED | {"task_id": "T2", "at": START_MS + 300_000},
        said("coder", "one", task_id="T1", at=START_MS + 500_000),
        said("coder", "two", task_id="T2", at=START_MS + 800_000),
    ]),
]  # fmt: skip
STUCK = [
    Example("a turn that never ends", [
        _TIMEOUT, said("planner", "go", at=START_MS), _STARTED, {"type": "deadline", "at": START_MS + 600_000},
    ], "halt", 0),
    Example("an open turn, detected at the next event of the run", [
        _TIMEOUT, _STARTED, said("planner", "still waiting", at=START_MS + 660_000),
    ], "halt", 0),
    Example("a measured duration", [_TIMEOUT, said("coder", "done", usage={"duration_ms": 600_001})], "halt", 0),
    Example("too many tokens", [_TOKENS, said("coder", "done", usage={"input_tokens": 7_900, "output_tokens": 200})],
            "halt", 0),
    Example("exactly the allowed tokens", [_TOKENS, said("coder", "done", usage={"total_tokens": 8_000})], "warn", 0),
]  # fmt: skip
