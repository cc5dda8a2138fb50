"""What one agent's calls do neither adds to another's streaks nor ends them, however their turns interleave.

Each test puts a stuck agent among healthy ones, or only healthy ones, into one run: the stuck one is halted in the same
turn of its own as if it were alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from streamproc import Monitor, load_policy
from streamproc.core.run_state import HEAD, HEADS, STATE_VERSION
from tests.feeding import Feed, event_of

Raw = dict[str, Any]
Stuck = Callable[[int], Raw]
WORDS: Final = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "omicron", "pi", "rho", "sigma", "tau", "upsilon",
)  # fmt: skip
TEXT: Final = "def handler(event):\n    value = compute(event)\n    return value\n" * 4
STANDARD: Final = load_policy()
CALLERS_BYTES: Final = 5  # of `Callers` with one caller: its tag, and the number of others


def made(tool: str, args: Raw, result: str | None = None, error: str | None = None) -> Raw:
    call = {"name": tool, "args": args, "result": result, "error": error}
    return {"tool_calls": [{name: value for name, value in call.items() if value is not None}]}


def same_error(n: int) -> Raw:
    return made("bash", {"command": f"psql -c 'select {n}'"}, error="relation users does not exist")


def other_errors(n: int) -> Raw:
    return made("edit", {"path": f"f{n}"}, error=f"{WORDS[n % 20]} is broken at {WORDS[n * 7 % 20]}")


def same_call(_: int) -> Raw:
    return made("bash", {"command": "make test"}, "make: *** No rule to make target 'test'.")


def check_after_edits(n: int) -> Raw:
    if n % 2:
        return made("bash", {"command": "pytest -q t.py"}, "FAILED t.py::test_x - AssertionError: wrong")
    return made(
        "edit_file", {"path": "a.py", "old_string": f"x = {n}", "new_string": f"x = {n + 1}"}, "It was updated."
    )


def same_text_written(n: int) -> Raw:
    return made("insert", {"path": "a.py", "line": 1, "text": TEXT}, f"The file has {12 * n + 12} lines")


def reads(name: str, n: int) -> Raw:
    return made("bash", {"command": f"cat {name}/{n}.py"}, f"the text of file {n} of {name}")


def turn(node: str, raw: Raw, *, apart: bool = True) -> Raw:
    """Return a turn of an agent that works for itself: it hands over to nobody."""
    return {"run_id": "r", "node": node, "task_id": f"T-{node}", **({"from": node} if apart else {}), **raw}


def halt_of(turns: list[Raw], policy: Any = STANDARD) -> tuple[str, int] | None:
    """Return the code of the first halt, and in which of its own turns the node was halted, from 1."""
    monitor, own = Monitor(policy=policy), dict[str, int]()
    for raw in turns:
        own[raw["node"]] = own.get(raw["node"], 0) + 1
        for decision in monitor.feed(raw):
            if decision.severity == "halt":
                return decision.code, own[raw["node"]]
    return None


def among(stuck: Stuck, others: int, dice: random.Random, times: int) -> list[Raw]:
    """Return turns of a stuck agent among healthy ones, in a random order, in which none waits for long."""
    names = [f"w{number}" for number in range(others)]
    turns: list[Raw] = []
    for n in range(times):
        round_ = [turn("A", stuck(n)), *(turn(name, reads(name, n)) for name in names)]
        dice.shuffle(round_)
        turns += round_
    return turns


@pytest.mark.parametrize("others", range(1, 6))
@pytest.mark.parametrize(
    ("stuck", "code"),
    [
        (same_error, "ERROR005"), (other_errors, "ERROR003"), (same_call, "LOOP003"), (check_after_edits, "LOOP012"),
        (same_text_written, "LOOP003"),
    ],
)  # fmt: skip
def test_a_stuck_agent_is_halted_in_the_turn_in_which_it_would_be_alone(stuck: Stuck, code: str, others: int) -> None:
    """Seed 004: "Same tool called with identical arguments ≥ 3 times within 10 steps"."""
    alone = halt_of([turn("A", stuck(n)) for n in range(40)])
    assert alone is not None
    assert alone[0] == code
    for seed in range(5):
        assert halt_of(among(stuck, others, random.Random(seed), 20)) == alone, seed


@pytest.mark.parametrize("stuck", [same_error, other_errors])
def test_failures_are_found_among_twelve_agents(stuck: Stuck) -> None:
    """The state is full then, and drops agents that do not fail first."""
    for seed in range(5):
        found = halt_of(among(stuck, 12, random.Random(seed), 20))
        assert found is not None
        assert found[1] <= 8, seed


@pytest.mark.parametrize("workers", [2, 4, 8, 12])
@pytest.mark.parametrize("apart", [True, False])
def test_agents_of_which_each_fails_once_are_no_agent_that_fails_again_and_again(workers: int, apart: bool) -> None:
    missing = made("bash", {"command": "pytest -q"}, error="pytest: command not found")
    same = [turn(f"w{n}", missing, apart=apart) for n in range(workers)]
    other = [turn(f"w{n}", made(f"tool{n}", {"n": n}, error=f"{WORDS[n]} is missing")) for n in range(workers)]
    works = [turn(f"w{n}", reads(f"w{n}", n), apart=apart) for n in range(workers)]

    assert halt_of(same + works) is None
    assert halt_of(other + works) is None


def test_agents_of_one_node_are_apart() -> None:
    calls = [turn("worker", other_errors(n)) | {"agent": f"agent-{n % 4}"} for n in range(28)]

    assert halt_of(calls) is None
    assert halt_of([one | {"agent": "agent-0"} for one in calls]) == ("ERROR003", 8)


@pytest.mark.parametrize("workers", range(1, 13))
@pytest.mark.parametrize("policy", ["standard", "tickets"])
def test_workers_that_report_their_own_unchanged_diff_beside_new_findings_are_left_alone(
    policy: str, workers: int
) -> None:
    """A state that is full forgets nodes. What one of them reports then is not taken for an edit."""
    turns = [
        turn(f"w{n}", reads(f"w{n}", round_)) | {"artifact": f"diff --git a/m{n}.py b/m{n}.py\n+{WORDS[n]}"}
        for round_ in range(6)
        for n in range(workers)
    ]

    assert halt_of(turns, load_policy(policy)) is None


@pytest.mark.parametrize("others", [8, 9])
@pytest.mark.parametrize(
    "stuck",
    [
        {"tests": {"failed": ["t1", "t2"], "passed": 3, "total": 5}},
        {"artifact": "diff --git a/x b/x\n+one line", "output": "One more attempt at the task."},
        {"errors": ["API error: channel_not_found"], "output": "One more attempt at the task."},
    ],
    ids=["tests", "artifact", "errors"],
)
def test_a_full_state_forgets_nodes_that_repeat_nothing_first(stuck: Raw, others: int) -> None:
    """Seed 000: "unchanged diff: 2 times", "unchanged failures: 2-3 iterations"."""
    names = [f"w{number}" for number in range(others)]
    turns = [one for n in range(10) for one in (turn("A", stuck), *(turn(name, reads(name, n)) for name in names))]

    found = halt_of(turns)

    assert found is not None
    assert found[1] <= 4


def test_a_repeated_call_among_eight_agents_is_found() -> None:
    """Each has a memory of its own as long as the state has room for it."""
    for seed in range(6):
        found = halt_of(among(same_call, 8, random.Random(seed), 20))
        assert found is not None, seed


def test_a_tool_that_fails_is_not_forgotten_for_the_many_tools_of_another_agent() -> None:
    def busy(n: int) -> Raw:
        return {"tool_calls": [
            {"name": f"tool{number}", "args": {"n": n}, "result": f"the answer {n} of {number}"} for number in range(18)
        ]}  # fmt: skip

    turns = [one for n in range(8) for one in (turn("A", same_error(n)), turn("B", busy(n)))]

    assert halt_of(turns) == ("ERROR005", 6)


def test_words_of_a_person_end_the_streaks_of_every_agent() -> None:
    """Also of those whose turn it is not."""
    before = [turn(name, other_errors(n)) for n in range(7) for name in ("A", "B")]
    after = [turn(name, other_errors(n)) for n in range(7, 9) for name in ("A", "B")]
    word = {"run_id": "r", "type": "user.message"}
    monitor = Monitor(policy=STANDARD)

    decisions = [one for raw in (*before, word, *after) for one in monitor.feed(raw)]

    assert [one.severity for one in decisions if one.severity == "halt"] == []
    assert halt_of([*before, *after]) == ("ERROR003", 8)


@pytest.mark.parametrize("seed", range(20))
def test_a_state_that_is_stored_after_each_turn_is_the_same(seed: int) -> None:
    """And the count of an agent's calls never falls, also if the state had no room for the agent meanwhile."""
    dice = random.Random(seed)
    kinds = (same_error, other_errors, same_call, check_after_edits, same_text_written)
    names = [f"w{number}" for number in range(dice.choice((2, 3, 20)))]
    kept, restarted = Feed(), Feed()
    for n in range(80):
        name, kind = dice.choice(names), dice.choice(kinds)
        raw = kind(dice.randrange(4)) if dice.random() < 0.7 else reads(name, n)
        if dice.random() < 0.2:  # parallel calls end a check
            raw = {"tool_calls": [*raw["tool_calls"], *reads(name, n)["tool_calls"]]}
        event = event_of(turn(name, raw))
        kept.event(event)
        restarted.event(event)
        restarted.restart()
        assert restarted.stored == kept.stored
        for memory in kept.state.calls.table.rows:
            counts = memory.times.last_numbers(memory.times.size)
            assert counts == sorted(set(counts))


def test_a_state_of_the_version_before_goes_on_with_its_streaks() -> None:
    """It has no callers: its streaks are those of the one that calls next."""
    feed = Feed()
    for n in range(5):
        feed.event(event_of(turn("A", same_error(n))))
    state = feed.stored
    end = len(state) - 2 - len(feed.state.cold_raw)
    older = HEADS[1] + state[len(HEAD) : end - CALLERS_BYTES] + state[end:]

    again = Feed(stored=older)

    assert older[0] == STATE_VERSION - 1
    assert [(one.code, one.severity) for one in again.event(event_of(turn("A", same_error(5))))] == [
        ("ERROR005", "halt")
    ]
