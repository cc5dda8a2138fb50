"""What starts the count of a repetition again is a setting: `gate: any`, `results` or `none`."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from streamproc.core.signals.calls import OCCURRENCES_MAX
from streamproc.core.signals.nodes import NODES_MAX
from streamproc.core.signals.recent_calls import TURNS_MAX
from streamproc.errors import InvalidPolicy
from streamproc.policy import Policy, load_policy
from tests.feeding import STANDARD, Feed, Raw, Reported, halts

CODES = ("LOOP001", "LOOP002", "LOOP003", "STALL001", "STALL002", "STALL003", "STALL004")
PROGRAM = "\n".join(f"def step_{n}(state):\n    return state.advance({n}, keep=True)" for n in range(9))
STATE_BYTES_MAX = 4_096


def gated(gate: str, *codes: str) -> Policy:
    return load_policy({"detectors": {code: {"gate": gate} for code in codes}})


def said(node: str, text: str, **more: Any) -> Raw:
    return {"node": node, "output": text, **more}


def called(args: object, result: str | None = "ok", node: str = "coder", tool: str = "run", **more: Any) -> Raw:
    call = {"name": tool, "args": args} | ({} if result is None else {"result": result})
    return {"node": node, "tool_calls": [call], **more}


def answered(turns: list[Raw], texts: str = "abcdefghij") -> list[Raw]:
    """Return turns of a coder with new words of a verifier after each."""
    return [one for turn, text in zip(turns, texts, strict=False) for one in (turn, said("verifier", f"no, {text}"))]


# Outputs.


@pytest.mark.parametrize(("gate", "at"), [("any", []), ("results", [4]), ("none", [4])])
def test_a_short_text_between_the_words_of_others_counts_behind_the_gate(gate: str, at: list[int]) -> None:
    found = halts(answered([said("coder", "Fixed.")] * 5), gated(gate, "LOOP001"))
    assert found == [Reported("LOOP001", "halt", turn) for turn in at]


@pytest.mark.parametrize("result", [
    called(1, "42", node="runner"), {"node": "runner", "tests": {"failed": ["a"], "passed": 1, "total": 2}},
    {"node": "runner", "artifact": "+new"}, {"node": "runner", "docs": "# New"},
    {"node": "runner", "errors": ["ValueError: 7"]},
    said("researcher", "Whales are mammals.", query="what are whales?"), said("user", "Try the other one."),
    {"type": "user.message"},
], ids=lambda raw: next(name for name in reversed(raw) if name != "output"))  # fmt: skip
def test_a_result_or_a_person_restarts_the_count_but_words_do_not(result: Raw) -> None:
    turns = [said("coder", PROGRAM), said("coder", PROGRAM), result, said("coder", PROGRAM), said("coder", PROGRAM)]
    assert halts(turns, gated("results", "LOOP001")) == []
    words = [*turns[:2], said("verifier", "No."), *turns[3:]]
    assert halts(words, gated("results", "LOOP001")) == [Reported("LOOP001", "halt", 3)]


def test_the_answer_to_a_query_is_a_result_also_of_a_researcher_that_calls_tools() -> None:
    answers = [said("researcher", f"Fact {'x' * n}.", query=f"what about {'x' * n}?") for n in range(4)]
    turns = [turn for answer in answers for turn in (said("planner", PROGRAM), answer)]
    assert halts([called(0, "a", node="researcher"), *turns]) == []
    silent = [turn | ({"query": None} if "query" in turn else {}) for turn in turns]
    assert halts([called(0, "a", node="researcher"), *silent]) == [Reported("LOOP001", "halt", 5)]


def test_the_plain_count_ignores_results_and_counts_texts_beside_calls() -> None:
    turns = [called(n, f"result {n}", output="All done.") for n in range(3)]
    assert halts(turns, gated("none", "LOOP001")) == [Reported("LOOP001", "halt", 2)]
    assert halts(turns, gated("results", "LOOP001")) == []
    assert halts(turns) == []


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("between", [{"type": "user.message"}, {"node": "judge", "progress": {"score": 1}}])
def test_a_person_and_measured_progress_restart_the_plain_count(code: str, between: Raw) -> None:
    turn = called(1, "same", output="Done.", artifact="+a", tests={"failed": ["a"], "passed": 1, "total": 2})
    worst = {"node": "judge", "progress": {"score": 0}}
    policy = gated("none", "LOOP001", code)
    assert halts([worst, turn, turn, between, turn, turn], policy) == []
    assert halts([worst, turn, turn, turn], policy) != []


def test_a_long_text_of_a_person_is_not_a_loop() -> None:
    assert halts([turn for n in range(4) for turn in (said("user", PROGRAM), said("agent", f"Answer {'x' * n}"))]) == []


# Sequences.


@pytest.mark.parametrize("texts", ["ababab", "abcabcabc"])
@pytest.mark.parametrize("gate", ["results", "none"])
def test_texts_in_turn_of_one_node_are_found_between_the_words_of_others(gate: str, texts: str) -> None:
    turns = answered([said("coder", f"use {text}") for text in texts])
    period = len(set(texts))
    assert halts(turns, gated(gate, "LOOP002")) == [Reported("LOOP002", "halt", 4 * period - 2)]
    assert halts(turns) == []


def test_results_end_a_round_unless_the_count_is_plain() -> None:
    turns = [turn for n in range(6) for turn in (said("coder", f"use {n % 2}"), called(n, f"{n}", node="runner"))]
    assert halts(turns, gated("results", "LOOP002")) == []
    assert halts(turns, gated("none", "LOOP002")) == [Reported("LOOP002", "halt", 6)]


# Calls.


def test_the_plain_count_of_calls_is_contiguous_or_interleaved_whatever_they_answer() -> None:
    turns = [called("pytest", f"{n} failed") if n % 2 else called(n, f"edit {n}", tool="edit") for n in range(8)]
    assert halts(turns, gated("none", "LOOP003")) == [Reported("LOOP003", "halt", 5)]
    assert halts(turns) == halts(turns, gated("results", "LOOP003")) == []


def test_the_plain_count_looks_back_over_ten_calls() -> None:
    others = [called(n, f"{n}") for n in range(9)]
    same = called("x", None)
    assert halts([same, *others[:4], same, *others[4:8], same], gated("none", "LOOP003")) == []
    assert halts([same, *others[:4], same, *others[4:7], same], gated("none", "LOOP003")) == [
        Reported("LOOP003", "halt", 9)
    ]


def test_parallel_calls_and_calls_of_other_nodes_are_not_repeats_in_the_plain_count() -> None:
    call = called(1)["tool_calls"][0]
    siblings = {"node": "coder", "tool_calls": [call] * 6}
    assert halts([siblings, *(called(1, node=name) for name in "abcd")], gated("none", "LOOP003")) == []


def test_calls_that_failed_for_reasons_of_infrastructure_count_in_the_plain_count_only() -> None:
    failed = {"node": "a", "tool_calls": [{"name": "llm", "args": {}, "error": "HTTP 429 Too Many Requests"}]}
    assert halts([failed] * 5, gated("none", "LOOP003")) == [Reported("LOOP003", "halt", 2)]
    assert halts([failed] * 5, gated("results", "LOOP003")) == halts([failed] * 5) == []


def test_words_of_others_do_not_restart_a_repeated_call_behind_results() -> None:
    turns = answered([called(1, "error: no rule")] * 4)
    assert halts(turns, gated("results", "LOOP003")) == [Reported("LOOP003", "halt", 4)]
    assert halts(turns) == []


# Artifacts.


def test_the_gate_of_artifacts() -> None:
    reading = [called(n, f"text {n}", artifact="+a") for n in range(4)]
    assert halts(reading) == halts(reading, gated("any", "STALL001")) == []
    assert halts(reading, gated("none", "STALL001")) == [Reported("STALL001", "halt", 2)]
    talked_about = answered([{"node": "coder", "artifact": "+a"}] * 4)
    assert halts(talked_about) == [Reported("STALL001", "halt", 4)]
    assert halts(talked_about, gated("any", "STALL001")) == []


# The policy, and the state.


def test_a_gate_that_is_not_a_choice_is_refused_with_the_choices() -> None:
    with pytest.raises(InvalidPolicy, match="use one of any, results, none") as caught:
        gated("some", "LOOP001")
    assert "detectors.LOOP001.gate: 'some' is not a choice" in str(caught.value)


@pytest.mark.parametrize("code", CODES)
def test_the_gate_is_in_force_and_one_gate_does_not_open_another(code: str) -> None:
    limits = gated("none", code).effective()["detectors"]
    assert {other: limits[other]["gate"] == "none" for other in CODES} == {other: other == code for other in CODES}


def test_without_a_gate_of_its_own_a_run_has_no_memory_for_one() -> None:
    feed = Feed(STANDARD)
    feed.all(answered([called(n, output="Done.") for n in range(9)]))
    assert feed.state.cold.recent_calls == []
    assert max(window.key for window in feed.state.streams.windows.rows) < 8


def test_the_memory_behind_the_gates_is_bounded() -> None:
    feed, dice = Feed(gated("none", *CODES)), random.Random(0)
    for index in range(3_000):
        node = f"node {dice.randrange(12)}"
        text = said(node, f"text {dice.randrange(4)}", structured_output={"n": dice.randrange(9)})
        calls = [{"name": f"t{n}", "args": dice.randrange(5), "result": str(index)} for n in range(12)]
        feed.raw(text | ({"tool_calls": calls} if dice.random() < 0.5 else {}))
        assert len(feed.stored) <= STATE_BYTES_MAX
        assert len(feed.state.streams.windows) <= 4 + NODES_MAX
        assert len(feed.state.cold.recent_calls) <= TURNS_MAX
        assert max(Counter(entry[0] for entry in feed.state.cold.recent_calls).values(), default=0) <= OCCURRENCES_MAX
    feed.restart()


def first_by_the_book(turns: list[Raw]) -> int | None:
    """Return the first turn with a third equal text, a second round of texts, or a third equal call of one node."""
    texts: dict[str, list[str]] = {}
    calls: dict[str, list[int]] = {}
    for index, turn in enumerate(turns):
        own = texts.setdefault(turn["node"], [])
        if "output" in turn:
            own.append(turn["output"])
            if own[-3:] == [own[-1]] * 3:
                return index
            for period in range(2, len(own) // 2 + 1):
                block = own[-period:]
                if block == own[-2 * period : -period] and len(set(block)) > 1:
                    return index
        for call in turn.get("tool_calls", ()):
            made = calls.setdefault(turn["node"], [])
            made.append(call["args"])
            if made[-10:].count(made[-1]) >= 3:
                return index
    return None


@pytest.mark.parametrize("seed", range(200))
def test_the_plain_count_agrees_with_its_definition(seed: int) -> None:
    dice = random.Random(seed)
    turns: list[Raw] = []
    for number in range(dice.randint(5, 40)):
        node = dice.choice("ab")
        if dice.random() < 0.5:  # one node speaks: a ring of several is found by all gates
            turns.append(said("a", f"text {dice.randrange(3 + seed % 9)}"))
            turns.append(said("c", f"new words {'x' * number}"))
        else:
            turns.append(called(dice.randrange(3 + seed % 20), f"answer {number % (1 + seed % 3)}", node=node))
    found = halts(turns, gated("none", *CODES))
    assert next((one.at for one in found if one.code in CODES), None) == first_by_the_book(turns)
