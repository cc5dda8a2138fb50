"""A planner that waits for several nodes at once: each edge is judged by what its own node brings."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest
from hypothesis import given, strategies as st

from streamproc.policy import Policy, load_policy
from tests.feeding import STANDARD, Raw, decisions, halts

PLANNER: Final = load_policy("planner")
WORDS: Final = [
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "omicron", "pi",
]  # fmt: skip
ALLOWED: Final = {"researcher": 5, "coder": 5, "verifier": 3}  # `MAX_LOOP_EDGE` of the seed, and its lower one
ROUNDS: Final = 9


def decided(number: int, node: str, source: str = "") -> Raw:
    text = f"Look at {WORDS[number]} and {WORDS[number * 3 % 16]}, {node}."
    return {"node": "planner", "output": text, "decision": {"next": node}} | ({"from": source} if source else {})


def answered(number: int, node: str, *, stuck: bool) -> Raw:
    """Return what a node brings back: the same as ever if it is stuck, else what is new of its kind."""
    left = 0 if stuck else number
    brought: dict[str, dict[str, Any]] = {
        "researcher": {"output": "Already done."} if stuck else {
            "output": f"{WORDS[number]} is in {WORDS[number * 5 % 16]}",
            "query": f"where is {WORDS[number]}, {WORDS[number * 7 % 16]}",
        },
        "coder": {"artifact": {f"part_{left}.py": "x = 1"}},
        "verifier": {"tests": {"failed": [f"t{n}" for n in range(12 - left)], "passed": left, "total": 12}},
    }  # fmt: skip
    return {"node": node, "from": "planner", **brought[node]}


def rounds(deciding: list[str], answering: list[str], stuck: set[str], *, sources: bool) -> list[Raw]:
    """Return rounds in which a planner decides about several nodes before they answer, in another order."""
    return [
        turn
        for n in range(ROUNDS)
        for turn in (
            *(decided(n, node, node if sources and n else "") for node in deciding),
            *(answered(n, node, stuck=node in stuck) for node in answering),
        )
    ]


@given(
    st.permutations(list(ALLOWED)), st.permutations(list(ALLOWED)), st.integers(2, 3), st.booleans(),
    st.sets(st.sampled_from(list(ALLOWED))),
)  # fmt: skip
def test_in_any_order_a_node_is_judged_by_what_it_brings_back(
    deciding: list[str], answering: list[str], size: int, sources: bool, idle: set[str]
) -> None:
    asked = deciding[:size]
    idle |= {"verifier"} if "coder" in idle else set()  # fewer failures would be the coder's progress
    stuck = idle & set(asked)
    turns = rounds(asked, [node for node in answering if node in asked], stuck, sources=sources)
    halt = next((one for one in decisions(turns, PLANNER) if one.severity == "halt"), None)
    if not stuck:
        assert halt is None
        return
    assert halt is not None
    assert halt.evidence.edge is not None
    assert halt.trigger.turn is not None
    _, node = halt.evidence.edge
    decided_on = [turn["decision"]["next"] for turn in turns[: halt.trigger.turn + 1] if "decision" in turn]
    assert (halt.code, node in stuck) == ("LOOP005", True)
    assert halt.evidence.count == ALLOWED[node] + 1 == min(ALLOWED[other] for other in stuck) + 1
    assert decided_on.count(node) == halt.evidence.count + 1  # what it brought the first time was new


@pytest.mark.parametrize("brought", [
    {"output": "{0} and {1}", "query": "{1} or {0}"}, {"artifact": {"{0}.py": "x"}},
    {"tool_calls": [{"name": "edit", "args": {"file": "{0}"}, "result": "changed {0}"}]},
])  # fmt: skip
@pytest.mark.parametrize("node", ["researcher", "coder"])
def test_a_node_that_works_for_several_turns_may_name_its_sender_in_each(node: str, brought: dict[str, Any]) -> None:
    filled = [
        orjson.loads(orjson.dumps(brought).decode().replace("{0}", word).replace("{1}", word[::-1])) for word in WORDS
    ]
    work = [{"node": node, "from": "planner", **one} for one in filled]
    assert halts([decided(0, node), *work], PLANNER) == []
    idle = [{"node": node, "from": "planner", "output": "Already done."}] * 9
    assert halts([decided(0, node), *idle], PLANNER)


def test_news_of_a_loop_beside_it_excuses_no_planner_that_waits() -> None:
    """What nodes find that the planner has not asked may be found for it, unless they are a loop of their own."""
    stuck = [
        turn
        for n in range(ROUNDS)
        for turn in (
            decided(n, "researcher", "researcher"),
            {"node": "researcher", "from": "planner", "output": "Already done."},
            {"node": "writer", "from": "editor", "docs": f"# Part {WORDS[n]}"},
            {"node": "editor", "from": "writer", "output": f"More on {WORDS[n]}, please."},
        )
    ]
    assert [one.code for one in halts(stuck, PLANNER)] == ["LOOP005"]
    helped = [
        turn
        for n in range(ROUNDS)
        for turn in (
            decided(n, "librarian"),
            {"node": "searcher", "from": "librarian", "output": f"{WORDS[n]} is in {WORDS[n * 3 % 16]}"},
            {"node": "librarian", "from": "searcher", "output": "Already done."},
        )
    ]
    assert halts(helped, PLANNER) == []


@pytest.mark.parametrize("policy", [PLANNER, STANDARD])
def test_a_node_that_polls_is_handed_over_to_without_end(policy: Policy) -> None:
    poll = {"name": "wait", "args": {"job": 1}, "result": "running"}
    asked: list[list[Raw]] = [
        [{"node": "router", "decision": {"next": "worker"}}, {"node": "worker", "tool_calls": [poll]}],
        [{"node": "router", "output": "Wait."}, {"node": "worker", "from": "router", "tool_calls": [poll]}],
        [{"node": "worker", "from": "router", "tool_calls": [poll]}],
    ]
    for turns in asked:
        assert halts(turns * 9, policy) == []
    poll["result"] = "exit code 1"
    for turns in asked[:2]:
        assert halts(turns * 9, policy)


def test_a_short_line_around_a_test_that_is_run_again_is_no_loop() -> None:
    edits = ({"name": "edit", "args": {"line": n}, "result": "ok"} for n in range(9))
    test = {"name": "test", "args": {}, "result": "3 failed"}
    work = [[{"node": "coder", "tool_calls": [call]}] * 2 for edit in edits for call in (edit, test)]
    assert halts([turn for pair in work[:6] for one in pair for turn in (PROMPT, one)]) == []
    assert next(one.code for one in halts([PROMPT, {"node": "coder", "output": "On it."}] * 5)) == "LOOP002"


def test_calls_outside_of_its_loop_excuse_no_node_that_repeats_itself() -> None:
    stuck = {"node": "coder", "from": "coder", "output": "I have done all that was asked."}
    work = [
        {"node": "reader", "from": "lead", "tool_calls": [{"name": "read", "args": n, "result": f"{n * n}"}]}
        for n in range(9)
    ]
    assert [one.code for one in halts([turn for one in work for turn in (stuck, one)])][:1] == ["LOOP001"]


def test_two_nodes_that_only_hand_over_to_each_other_bring_nothing() -> None:
    there = {"node": "lead", "decision": {"next": "coder"}}
    back = {"node": "coder", "decision": {"next": "lead"}}
    assert [one.code for one in halts([there, back] * 9)][:1] == ["LOOP005"]
    assert halts([turn for _ in range(9) for turn in (there, {"node": "coder"})]) == []  # it may have done its work


PROMPT: Final[Raw] = {"node": "harness", "output": "Continue."}
