"""Public complaints about trees of agents, each as a trace that has the numbers of its thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from streamproc import Monitor
from streamproc.detectors.base import START_MS
from tests.feeding import Raw

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND


class Told(NamedTuple):
    """A decision: by which detector, how severe, about which run, and after how many births."""

    code: str
    severity: str
    run_id: str
    births: int


def watched(events: Iterable[Raw], policy: Any = None) -> list[Told]:
    """Return the decisions about a session."""
    monitor, births, found = Monitor(policy), 0, []
    for event in events:
        births += event.get("type") == "run.started"
        found += [Told(one.code, one.severity, one.run_id, births) for one in monitor.feed(event)]
    return found


def born(run_id: str, parent: str, at: int, **fields: Any) -> Raw:
    return {"type": "run.started", "run_id": run_id, "session_id": "s", "parent_run_id": parent, "at": at, **fields}


ROOT: Final[Raw] = {"type": "run.started", "run_id": "root", "session_id": "s", "at": START_MS}


def cascade(children: int, waves: Iterable[tuple[int, int]], **fields: Any) -> list[Raw]:
    """Return runs that are born in waves of (minute, births), each parent having so many children."""
    found: list[Raw] = [ROOT]
    for minute, births in waves:
        for n in range(births):
            number = len(found) - 1
            parent = f"c{(number - 2) // children}" if number >= 2 else "root"
            at = START_MS + minute * MINUTE + n * MINUTE // births
            found.append(born(f"c{number}", parent, at, **fields))
    return found


def first(told: list[Told], severity: str) -> Told:
    return next(one for one in told if one.severity == severity)


def test_claude_code_69332_two_calls_become_242_agents_188_of_them_in_one_minute() -> None:
    storm = cascade(5, [(0, 2), (2, 17), (4, 16), (5, 188)])
    warned = first(watched(storm), "warn")
    assert (warned.code, warned.births) == ("TREE004", 1 + 35 + 50)  # 60 within a minute, ten times as many as before
    assert not any(one.severity == "halt" for one in watched(storm))
    limited = watched(storm, {"budgets": {"maxSpawnsPerMinute": 30}})
    assert first(limited, "warn").births == 1 + 35 + 11  # with the second half of the wave before
    refused = [one for one in limited if one.severity == "halt" and one.code == "TREE004"]
    assert refused[0].births < 1 + 35 + 32
    assert "root" in {one.run_id for one in refused}  # the eleventh refused birth halts the session
    halted_at = next(one.births for one in refused if one.run_id == "root")
    assert halted_at <= refused[0].births + 10


def test_claude_code_72566_five_planned_agents_become_361() -> None:
    storm = cascade(5, [(minute, 60) for minute in range(6)])
    told = watched([ROOT | {"budgets": {"maxSessionRuns": 6}}, *storm[1:]])
    assert first(told, "warn") == Told("TREE001", "warn", "c3", 5)
    assert first(told, "halt") == Told("TREE001", "halt", "c5", 7)
    assert {one.run_id for one in told if one.severity == "halt"} >= {"root", *(f"c{n}" for n in range(20))}


def test_claude_code_77361_depth_capped_at_five_does_not_bound_877_agents() -> None:
    """Three children each: 363 runs within five levels. The depth holds, and the number of runs is what stops it."""
    storm = cascade(3, [(0, 877)])
    deep = watched(storm, {"budgets": {"maxDepth": 5}, "detectors": {"TREE003": {"halt_refusals": 0}}})
    born_at = {event["run_id"]: n for n, event in enumerate(storm)}
    refused = first(deep, "halt")
    assert (refused.code, refused.births) == ("TREE003", 1 + born_at[refused.run_id])
    both = watched(storm, {"budgets": {"maxDepth": 5, "maxSessionRuns": 50}})
    assert first(both, "halt") == Told("TREE001", "halt", "c49", 51)
    assert next(one.births for one in both if one.run_id == "root" and one.severity == "halt") <= 61


def test_claude_code_69395_905_agents_are_asked_the_same_again() -> None:
    storm = cascade(2, [(minute, 180) for minute in range(5)], prompt="Run the deep-research skill on this topic.")
    told = watched(storm, {"budgets": {"maxSameChildren": 3}})
    assert first(told, "warn") == Told("TREE005", "warn", "c2", 4)
    assert first(told, "halt") == Told("TREE005", "halt", "c3", 5)
    assert [one.code for one in watched(storm) if one.severity == "warn"][:1] == ["TREE004"]  # without any limit


def test_claude_code_77414_three_hundred_agents_are_created_after_stop() -> None:
    before, after = cascade(3, [(0, 30)]), cascade(3, [(0, 30), (1, 300)])[31:]
    stop = {"type": "operator.stop", "run_id": "root", "at": START_MS + MINUTE - 1}
    told = watched([*before, stop, *after], {"children": "stop"})
    halted = {one.run_id for one in told if one.severity == "halt"}
    assert halted == {event["run_id"] for event in (*before, *after)}
    late = [one for one in told if one.run_id in {event["run_id"] for event in after}]
    assert {one.code for one in late} == {"TREE008"}
    assert all(one.births == 2 + int(one.run_id[1:]) for one in late)  # each by its first event


def messages(team: tuple[str, ...], texts: tuple[str, ...], count: int, prompt: str, gap_ms: int) -> Iterable[Raw]:
    """Yield runs that wake each other, each of them new."""
    for n in range(count):
        run, at = {"run_id": f"c{n}", "agent": team[n % len(team)]}, START_MS + n * gap_ms
        yield born(f"c{n}", f"c{n - 1}" if n else "", at, prompt=prompt, agent=run["agent"])
        yield run | {"node": run["agent"], "output": texts[n % len(texts)], "at": at + 1}
        yield run | {"type": "run.finished", "at": at + 2}


def test_oh_my_pi_6315_eleven_thousand_sends_in_nineteen_hours_end_in_the_third_round() -> None:
    sends = list(
        messages(("a", "b"), ("Sent it on to you.", "Sent it back to you."), 100, "You have a message.", 6_000)
    )
    told = watched(sends)
    assert first(told, "warn").births <= 5
    assert first(told, "halt") == Told("TREE006", "halt", "c6", 7)  # the first wake-up after three rounds
    assert {one.run_id for one in told if one.severity == "halt"} == {f"c{n}" for n in range(6, 100)}


def test_opencode_37312_a_parent_waits_for_three_stuck_children_of_five() -> None:
    log: list[Raw] = [ROOT, {"run_id": "root", "node": "research", "output": "I start five.", "at": START_MS}]
    log += [born(f"c{n}", "root", START_MS + n) for n in range(5)]
    log += [{"type": "turn.started", "run_id": f"c{n}", "node": "agent", "at": START_MS + n} for n in range(5)]
    log += [{"type": "run.finished", "run_id": f"c{n}", "at": START_MS + MINUTE} for n in range(2)]
    log += [{"type": "deadline", "run_id": f"c{n}", "at": START_MS + 11 * MINUTE} for n in range(2, 5)]
    monitor = Monitor()
    told = [one for event in log for one in monitor.feed(event) if one.run_id == "root"]
    assert [(one.code, one.severity, one.evidence.about, one.evidence.runs) for one in told if one.evidence] == [
        ("TREE007", "warn", f"c{n}", ["c0", "c1"]) for n in (2, 3, 4)
    ]


def test_multica_8753_developer_and_reviewer_wake_each_other_22_times() -> None:
    team = ("Developer", "Reviewer")
    texts = ("Routed to the reviewer.", "Routed to the developer.")
    told = watched(messages(team, texts, 22, "You were assigned. Continue.", 3 * MINUTE))
    assert first(told, "warn").births <= 5
    assert first(told, "halt") == Told("TREE006", "halt", "c6", 7)


def test_multica_8753_handoffs_that_move_the_work_forward_are_left_alone() -> None:
    team, texts = ("Developer", "Reviewer"), tuple(f"Finding {chr(97 + n)} is repaired." for n in range(22))
    assert watched(messages(team, texts, 22, "You were assigned. Continue.", 3 * MINUTE)) == []
