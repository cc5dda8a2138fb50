"""Marks save calls of detectors, and never a finding: asking on every turn all the same finds nothing more."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from streamproc.core.marks import BUDGET_KINDS, KINDS, BudgetMarks, InForce, Marks
from streamproc.core.rules import DetectorProtocol, Rules
from streamproc.detectors import MODULES
from streamproc.detectors.base import Finding, View, call, kind
from streamproc.policy import Policy, load_policy
from tests.feeding import STANDARD, Feed, Raw, written
from tests.laws.traces import LONGER, boards, clocks, identified, traces, turns_only

GOLDEN: Final = Path(__file__).parents[1] / "golden"
POLICIES: Final = tuple(load_policy(name) for name in ("standard", "loop-safety", "deliberation", "tickets"))


class Recording:
    """A detector that records what it finds."""

    def __init__(self, detector: DetectorProtocol, found: list[tuple[int, str, Any]]) -> None:
        self._detector, self._found = detector, found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._detector, name)

    def check(self, view: View, limits: Any) -> Finding | tuple[Finding, ...] | None:
        finding = self._detector.check(view, limits)
        if finding:
            self._found.append((view.index, self.code, finding))
        return finding


class Watched:
    """A policy whose detectors record what they find; `always` asks them on every turn that has their evidence."""

    def __init__(self, policy: Policy, *, always: bool) -> None:
        self._policy, self._always = policy, always
        self.found: list[tuple[int, str, Any]] = []

    def rules(self, workflow: str, tenant: str, tier: str) -> Rules:
        rules = copy.copy(self._policy.rules(workflow, tenant, tier))
        rules._detectors = tuple((Recording(one, self.found), limits) for one, limits in rules._detectors)
        rules._by_kinds = {}
        if self._always:
            rules.marks = Marks()
            for name in KINDS:
                setattr(rules.marks, name, 1)  # as for a detector that gives no marks
            rules.in_force = lambda scope: InForce(
                {**rules.budgets, **scope.budgets}, BudgetMarks(), rules.marks, rules.switches
            )
        return rules


def unasked(raws: Iterable[Raw], policy: Policy) -> int:
    """Compare both, event by event; return the kinds of evidence about which the marks saved a question."""
    marked, always = Watched(policy, always=False), Watched(policy, always=True)
    first, second = Feed(marked), Feed(always)
    saved = 0
    for raw in raws:
        assert written(first.raw(raw)) == written(second.raw(raw))
        assert marked.found == always.found
        assert first.stored == second.stored
        if second.state.turns and raw.get("type", "turn") == "turn":
            saved |= second.engine.view.kinds & ~first.engine.view.kinds
    return saved


@given(traces | boards | clocks | turns_only, st.sampled_from(POLICIES))
@LONGER
def test_detectors_that_are_always_asked_find_nothing_more(trace: list[Raw], policy: Policy) -> None:
    unasked(trace, policy)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.json")), ids=lambda file: file.stem)
def test_they_find_nothing_more_in_golden_traces(file: Path) -> None:
    for trace in json.loads(file.read_text("utf-8")):
        if "events" in trace:
            unasked(trace["events"], load_policy(trace.get("preset", "standard")))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.DETECTOR.code)
def test_they_find_nothing_more_in_the_examples_of_detectors(module: Any) -> None:
    for example in (*module.HEALTHY, *module.STUCK):
        unasked(example.turns, STANDARD if example.policy is None else load_policy(example.policy))


limits = st.dictionaries(
    st.sampled_from([
        "maxSteps", "maxRuntimeMs", "maxTurnsPerNode", "maxRuntimeMsPerNode", "maxTokens", "turnTimeoutMs",
        "maxCycleIterations", "maxCycleRuntimeMs",
    ]),
    st.integers(1, 12),
    min_size=1,
)  # fmt: skip
small: Final = st.sampled_from([1, 900, 1_000])  # times, in steps of what turns take and of what lies between them


@given(limits, small, st.integers(0, 12), turns_only, st.sampled_from(POLICIES))
@LONGER
def test_they_find_nothing_more_in_runs_with_budgets(
    budgets: dict[str, int], size: int, cost: int, trace: list[Raw], policy: Policy
) -> None:
    declared: Raw = {
        name: value * size if name.endswith(("Ms", "MsPerNode")) else value for name, value in budgets.items()
    }
    declared |= {"maxCostUsd": f"{cost * 0.07:.2f}", "maxCycleCost": f"{cost * 0.07:.2f}"}
    spent = {"usage": {"input_tokens": 5, "cost_usd": "0.07", "duration_ms": 900}}
    turns = [raw | spent if n % 3 else raw for n, raw in enumerate(trace)]
    unasked(identified([{"type": "run.started", "budgets": declared}, *turns]), policy)


def test_each_mark_saves_questions() -> None:
    """The laws above would prove little if no mark were ever in force."""
    call = {"name": "run", "args": {"n": 0}, "error": "HTTP 429 Too Many Requests"}
    spent = {"usage": {"total_tokens": 1, "cost_usd": "0.01"}}
    turns: list[Raw] = [
        *[{"node": "a", "tool_calls": [{"name": "run", "args": {"n": n}, "result": "x"}]} for n in range(4)],
        {"node": "a", "tool_calls": [{"name": "get", "args": {}, "error": "boom"}]},
        {"node": "a", "tool_calls": [{"name": "get", "args": {"n": 1}, "error": "boom"}]},
        {"node": "a", "tool_calls": [call]},
        *[{"node": "a", "tool_calls": [{"name": "read", "args": {}, "result": "y"}]}] * 9,
        *[{"node": "b", "output": "done"}] * 2,
        *[{"node": node, "from": other, **spent} for other, node in ("ab", "ba") * 4],
    ]
    budgets = {"maxSteps": 90, "maxCostUsd": "9", "maxTokens": 900, "maxCycleIterations": 9}
    saved = unasked(identified([{"type": "run.started", "budgets": budgets}, *turns]), STANDARD)
    assert [name for name, bit in (*KINDS.items(), *BUDGET_KINDS.items()) if not saved & bit] == []


def kinds_of(turns: Iterable[Raw]) -> list[int]:
    """Return the kinds of evidence of each turn about which detectors are asked."""
    feed, kinds = Feed(), []
    for raw in identified(turns):
        feed.raw(raw)
        kinds.append(feed.engine.view.kinds)
    return kinds


def test_a_tool_that_only_acknowledges_is_not_asked_about() -> None:
    acknowledged: list[Raw] = [call("write", {"file": n}, "ok") for n in range(9)]
    assert not any(kinds & kind.TOOL for kinds in kinds_of(acknowledged))
    varied: list[Raw] = [call("write", {"file": "x"}, "new"), *acknowledged]
    assert [bool(kinds & kind.TOOL) for kinds in kinds_of(varied)] == [False] * 5 + [True] * 5
    both: list[Raw] = [
        {
            "node": "a",
            "tool_calls": [
                *call("write", {"file": n}, "ok")["tool_calls"],
                *call("find", {"n": n}, found)["tool_calls"],
            ],
        }
        for n, found in enumerate(("one", *["none"] * 8))
    ]
    unasked(identified(both), STANDARD)


def test_a_loop_that_goes_on_after_its_halt_is_not_asked_about_as_stale_again() -> None:
    turns: list[Raw] = [call("run", {}, "error")] * 9
    assert not any(kinds & kind.STALE for kinds in kinds_of(turns))
    later: list[Raw] = [call("read", {"f": name}, name) for name in "abcdefabc"]
    assert kinds_of([*turns, *later])[-1] & kind.STALE


@pytest.mark.parametrize("budget", ["maxCycleIterations", "maxCycleRuntimeMs", "maxCycleCost", "turnTimeoutMs"])
@pytest.mark.parametrize("value", range(1, 9))
def test_a_limit_that_is_reached_exactly_is_found_at_once(budget: str, value: int) -> None:
    step = {"maxCycleRuntimeMs": 1_000, "turnTimeoutMs": 300}.get(budget, 1)
    limit: Any = f"{value * 0.07:.2f}" if budget == "maxCycleCost" else value * step
    spent = {"usage": {"input_tokens": 5, "cost_usd": "0.07", "duration_ms": 900}}
    turns = [
        {"node": node, "from": other, "output": f"{n} {node}", **spent}
        for n in range(9)
        for other, node in ("ab", "ba")
    ]
    unasked(identified([{"type": "run.started", "budgets": {budget: limit}}, *turns]), STANDARD)
