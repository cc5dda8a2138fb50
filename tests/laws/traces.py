"""Raw traces for Hypothesis: blocks of events from a small alphabet, some repeated, which makes loops frequent.

A trace is drawn as numbers (which templates, how often): it is quick to draw, and shrinks to the essential events.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import settings, strategies as st

Raw = dict[str, Any]

BRIEF: Final = settings(max_examples=60, deadline=None, derandomize=True, print_blob=True)
LONGER: Final = settings(BRIEF, max_examples=150)

START_MS: Final = 1_767_225_600_000  # 2026-01-01
GRAPH: Final = {
    "nodes": ["planner", "coder", "verifier", {"id": "end", "terminal": True}],
    "edges": [["planner", "coder"], ["coder", "verifier"], ["verifier", "coder"], ["verifier", "end"]],
}


def _call(name: str, n: int, result: Any = None, **more: Any) -> Raw:
    return {"name": name, "args": {"n": n}} | ({} if result is None else {"result": result}) | more


def _calls(node: str, *calls: Raw, **more: Any) -> Raw:
    return {"node": node, "tool_calls": list(calls), **more}


def _tests(node: str, *failed: str, **more: Any) -> Raw:
    return {"node": node, "tests": {"failed": list(failed), "passed": 3 - len(failed), "total": 3}, **more}


TURNS: Final[tuple[Raw, ...]] = (
    *(_calls("coder", _call("run", n, f"answer {answer}")) for n in range(2) for answer in range(2)),
    _calls("coder", _call("run", 0)),
    _calls("verifier", _call("run", 0, "answer 0")),
    _calls("coder", _call("poll", 0, "at 2026-01-01T10:00:01Z")),
    _calls("coder", _call("poll", 0, "at 2026-01-01T10:00:02Z")),
    _calls("coder", _call("run", 0, "answer 0"), _call("run", 1, "answer 0")),
    _calls("coder", _call("run", 0, "answer 0"), _call("run", 0, "answer 0"), _call("read", 0, "text")),
    _calls("coder", _call("run", 0, error="boom")),
    _calls("coder", _call("run", 0, error="HTTP 429 Too Many Requests")),
    _calls("coder", _call("run", 0, "answer 0"), output="Let me try again."),
    *({"node": node, "output": text} for node in ("planner", "coder") for text in ("use a list", "use a set")),
    {"node": "planner", "output": "now 10:00:01", "decision": {"next": "coder"}},
    {"node": "planner", "structured_output": {"next": "coder"}, "query": "what is a list?"},
    {"node": "planner", "structured_output": {"next": "verifier"}, "output": "use a list"},
    {"node": "planner", "docs": "# Plan"},
    {"node": "coder", "artifact": "+a", "from": "planner"},
    {"node": "coder", "artifact": {"a.py": "+b"}, "from": "verifier"},
    _tests("verifier"),
    _tests("verifier", "t1"),
    _tests("verifier", "t2"),
    _tests("verifier", "t1", "t2"),
    _tests("verifier", "t1", "t2", "t3"),
    _tests("verifier", "t1", artifact="+a"),
    _tests("verifier", "t1", errors=["boom"]),
    _tests("coder", tool_calls=[_call("run", 0, "answer 0")]),
    _tests("coder", "t1", tool_calls=[_call("run", 0)]),
    {"node": "coder", "errors": ["boom"]},
    {"node": "coder", "errors": [{"message": "HTTP 503", "retryable": True}]},
    {"node": "coder", "errors": []},
    {"node": "coder", "progress": {"score": 1}},
    {"node": "coder", "progress": {"score": 2}, "artifact": "+a"},
    {"node": "coder", "usage": {"input_tokens": 9, "cost_usd": "0.30", "duration_ms": 7}},
    {"node": "coder", "usage": {"output_tokens": 9}},
    {"node": "coder", "output": "half a", "stop_reason": "max_tokens", "usage": {"input_tokens": 90_000}},
    {"node": "coder", "output": "", "stop_reason": "end_turn"},
    {"node": "verifier", "findings": [{"id": "F1", "severity": "high"}, {"id": "F2", "severity": "low"}]},
    {"node": "verifier", "findings": [{"id": "F1", "severity": "high"}]},
    {"node": "verifier", "findings": []},
)  # fmt: skip
OTHERS: Final[tuple[Raw, ...]] = (
    {"type": "user.message"},
    {"type": "turn.started", "title": "later"},
    {"type": "run.started", "workflow": "w", "tier": "free"},
    {"type": "run.started", "graph": GRAPH},
    {"type": "run.started", "budgets": {"maxSteps": 9, "maxCycleIterations": 3, "maxTurnsPerNode": 7}},
    {"type": "context.compacted", "trigger": "auto", "before_tokens": 160_000, "after_tokens": 20_000},
    {"type": "context.compacted"},
    {"type": "run.continued", "by": "Stop hook", "reason": "Run the tests."},
    {"type": "run.continued"},
    {"type": "run.started", "parent_run_id": "root", "session_id": "root", "prompt": "Look."},
    {"type": "model.called", "provider": "p", "model": "m", "status": 429, "retry_after": 30, "duration_ms": 12},
)


def _move(task: str, source: str, to: str, **more: Any) -> Raw:
    return {"type": "task.transition", "task_id": task, "from": source, "to": to, **more}


BOARD: Final[tuple[Raw, ...]] = (
    *({"type": "task.created", "task_id": f"T{n}", "depends_on": [f"T{n - 1}"], "module": "m"} for n in range(4)),
    {"type": "task.created", "task_id": "T1", "ui_touching": True, "depends_on": ["design-1"]},
    {"type": "task.delegated", "agent": "coder", "tasks": ["T1", "T2", "T3", "T4"], "max_token_budget": 900},
    *(_move(task, "", to) for task in ("T1", "T2", "T3") for to in ("IMPLEMENTING", "QA_REVIEW", "REWORK", "BLOCKED")),
    _move("T1", "QA_REVIEW", "VALIDATION", dod=False),
    _move("T1", "QA_REVIEW", "VALIDATION", dod=True),
    _move("T2", "READY", "IMPLEMENTING", init=True, approvals="ann"),
    _move("T2", "BLOCKED", "IMPLEMENTING", root_cause="the key was wrong", failure_class="key"),
    _move("T3", "COMMIT", "DONE"),
    *({"type": "task.verdict", "task_id": f"T{n}", "verdict": "REJECTED", "failure_class": "x"} for n in range(1, 4)),
    {"type": "task.verdict", "task_id": "T1", "verdict": "APPROVED"},
    {"type": "task.verdict", "task_id": "T1", "verdict": "REJECTED", "findings": ["F1", "F3"]},
    {"type": "cycle.completed"},
    {"type": "cycle.completed", "completed": 1},
    {"node": "coder", "task_id": "T1", "errors": [{"message": "boom", "class": "Boom"}]},
)  # fmt: skip
CLOCKS: Final[tuple[Raw, ...]] = (
    {"type": "turn.started", "node": "coder"},
    {"type": "turn.started", "node": "coder", "task_id": "T1", "wait_s": 40},
    {"type": "deadline", "wait_s": 700},
    {"type": "deadline", "wait_s": 0},
    {"type": "user.message", "wait_s": 1_300},
    {"node": "coder", "output": "sorry to be late", "wait_s": 1_300},
    {"node": "verifier", "output": "still here", "wait_s": 500},
    {"node": "coder", "round": 3, "convergence": 0.9, "consensus": 0.5},
    {"node": "coder", "round": 16, "usage": {"total_tokens": 9_000, "duration_ms": 700_000}},
    {"type": "run.started", "budgets": {"turnTimeoutMs": 600_000, "maxTokens": 8_000, "maxRounds": 7}},
    {"type": "run.started", "budgets": {"maxRuntimeMs": 3_600_000, "maxRounds": 15}},
)  # fmt: skip
ENDINGS: Final[tuple[Raw, ...]] = (
    {"type": "run.finished"},
    {"type": "run.finished", "status": "success"},
    {"type": "operator.stop", "by": "ann"},
    {"type": "operator.resume", "by": "ann", "grant": {"turns": 3, "iterations": 1, "cost": "0.01"}},
    {"type": "halt.acknowledged", "by": "ann"},
)
EVENTS: Final = (*TURNS, *BOARD, *CLOCKS, *OTHERS, *ENDINGS)


def _unrolled(blocks: list[tuple[list[Raw], int]]) -> list[Raw]:
    return [raw for block, times in blocks for _ in range(times) for raw in block]


def identified(raws: list[Raw]) -> list[Raw]:
    """Return the events with ids and times: `wait_s` seconds after the event before, one by default."""
    at_ms, found = START_MS - 1_000, []
    for n, raw in enumerate(raws):
        at_ms += 1_000 * raw.get("wait_s", 1)
        found.append(
            {name: value for name, value in raw.items() if name != "wait_s"} | {"event_id": f"e{n}", "at": at_ms}
        )
    return found


def _of(alphabet: tuple[Raw, ...], blocks_max: int) -> st.SearchStrategy[list[Raw]]:
    block = st.tuples(st.lists(st.sampled_from(alphabet), min_size=1, max_size=4), st.integers(1, 6))
    return st.lists(block, min_size=1, max_size=blocks_max).map(_unrolled).map(identified)


traces: Final = _of(EVENTS, 8)
"""Any events of one run, in order, each with an id and a time."""

boards: Final = _of((*BOARD, *TURNS[-6:], *OTHERS[:2]), 10)
"""Mostly board events."""

clocks: Final = _of((*CLOCKS, *OTHERS[:3], *TURNS[-6:]), 10)
"""Mostly events with pauses between them."""

turns_only: Final = _of(TURNS, 8)
"""Turns of one run, without budgets, user messages and endings."""
