"""Known complaints about other breakers, each as a test through `Monitor`, as a user would meet it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, get_args

import pytest

from streamproc import Monitor
from streamproc.errors import Refused
from streamproc.model.controls import ControlEvent, TerminalStatus
from tests.client.money import money, open_admission
from tests.feeding import Feed, Raw, Reported, short

ERROR: Final = "error: no rule to make target"


def controls(turns: Iterable[Raw]) -> list[ControlEvent]:
    """Return the control events of one run under the default policy."""
    monitor = Monitor()
    return [control for turn in turns for control in monitor.feed({"run_id": "r"} | turn)]


def reported(turns: Iterable[Raw]) -> list[Reported]:
    return [Reported(control.code, control.severity, control.trigger.turn) for control in controls(turns)]


def halts(turns: Iterable[Raw]) -> list[Reported]:
    return [one for one in reported(turns) if one.severity == "halt"]


def call(tool: str, args: Any, result: Any = None, *, node: str = "agent", **more: Any) -> Raw:
    return {"node": node, "tool_calls": [{"name": tool, "args": args, "result": result, **more}]}


def said(node: str, text: str, **more: Any) -> Raw:
    return {"node": node, "output": text, **more}


def report(*failed: str) -> Raw:
    return {"node": "verifier", "tests": {"failed": list(failed), "passed": 9 - len(failed), "total": 9}}


MAKE: Final = call("bash", {"command": "make"}, ERROR)


# Healthy work must not be halted.


def test_honest_polling_is_not_halted() -> None:
    states = [f"{done} of 90 files" for done in (0, 3, 9, 9, 9, 9, 9, 30, 30, 30, 61, 61, 61, 61, 61, 61, 90)]
    assert reported(call("status", {"job": 7}, state) for state in states) == []


def test_polls_of_a_silent_session_are_not_halted() -> None:
    """The calls have no answers; what they ask about is named."""
    poll = call("read_output", {"session_id": 7})
    assert not halts([poll] * 9)


def test_batch_work_is_not_halted() -> None:
    assert halts(call("write", {"file": n, "text": f"part {n}"}, "ok") for n in range(100)) == []


def test_batch_work_of_several_calls_a_turn_is_not_halted() -> None:
    def batch(start: int) -> Raw:
        calls = [{"name": "resize", "args": {"image": n}, "result": "done"} for n in range(start, start + 8)]
        return {"node": "agent", "tool_calls": calls}

    assert halts(batch(8 * n) for n in range(20)) == []


def test_parallel_siblings_are_not_repeats() -> None:
    call_ = {"name": "sample", "args": {"seed": None}, "result": "heads"}
    assert reported([{"node": "agent", "tool_calls": [call_] * 12}]) == []


def test_sub_agents_with_the_same_first_steps_are_not_repeats() -> None:
    team = [f"worker-{n}" for n in range(6)]
    first = [call("read", {"path": "task.md"}, "the task", node=node) for node in team]
    then = [call("read", {"path": f"part{n}.md"}, f"part {n}", node=node) for n, node in enumerate(team)]
    assert halts([*first, *then]) == []


def test_committed_work_is_progress() -> None:
    """Each commit leaves a clean tree and an empty diff."""
    steps = []
    for n in range(12):
        steps += [
            call("edit", {"path": f"src/{n}.py"}, "ok"),
            call("bash", {"command": f"git commit -am 'part {n}'"}, "1 file changed"),
            call("bash", {"command": "git status"}, "nothing to commit, working tree clean"),
            said("agent", "Committed.", artifact=""),
        ]
    assert halts(steps) == []


def test_the_turn_that_fixes_the_last_failing_test_is_not_halted() -> None:
    """Without the fix it would be the third iteration with the same patch, the same call and the same words."""
    attempt = call("test", {}, "1 failed") | {"artifact": "+fix", "output": "Trying."}
    failing = attempt | {"tests": {"failed": ["t1"], "passed": 8, "total": 9}}
    fixed = attempt | {"tests": {"failed": [], "passed": 9, "total": 9}}
    assert halts([failing, failing, fixed]) == []


def test_one_step_back_is_not_stagnation() -> None:
    rounds = [["a", "b", "c"], ["a"], ["a", "b", "c", "d"], ["b"], []]
    assert halts(turn for n, failed in enumerate(rounds) for turn in (said("coder", f"{n}"), report(*failed))) == []


def test_a_run_without_evidence_is_not_halted() -> None:
    assert reported({"node": "ab"[n % 2], "usage": {"input_tokens": 100}} for n in range(200)) == []


# Loops must not be missed.


@pytest.mark.parametrize("length", [3, 4, 7, 16])
def test_longer_cycles_are_detected(length: int) -> None:
    ring = [said("agent", f"Step {'x' * n}.") for n in range(length)]
    assert halts(ring * 3) == [Reported("LOOP002", "halt", 2 * length - 1)]


@pytest.mark.parametrize("unrelated", [
    pytest.param(said("agent", "Let me check once more."), id="a text"),
    pytest.param(call("ls", {}, "Makefile src"), id="a call that was made before"),
    pytest.param(call("ping", {}, error="HTTP 503 Service Unavailable"), id="an infrastructure error"),
    pytest.param({"type": "task.created", "task_id": "T1"}, id="another kind of event"),
])  # fmt: skip
def test_an_unrelated_event_in_between_does_not_hide_a_loop(unrelated: Raw) -> None:
    turns = [call("ls", {}, "Makefile src"), MAKE, unrelated, MAKE, unrelated, MAKE]
    assert [one.code for one in halts(turns)] in (["LOOP003"], ["LOOP002"])  # a repeat, or a sequence of two


def test_new_information_in_between_only_delays_the_halt() -> None:
    turns = [MAKE, MAKE, call("read", {"path": "README"}, "how to build"), MAKE, MAKE, MAKE, MAKE]
    assert halts(turns) == [Reported("LOOP003", "halt", 5)]


@pytest.mark.parametrize(
    "noise",
    [
        "at 2026-01-01T10:00:{n:02d}Z", "at 10:00:{n:02d}", "in 0.{n}3s", "took {n}17 ms",
        "request 550e8400-e29b-41d4-a716-4466554400{n:02d}", "build 9fceb02d0ae598e95dc970b74767f193{n:02d}",
        "pid {n}4711", "in /tmp/tmpab{n}cdefg/out", "object at 0x7f3a{n:02d}c0de",
    ],
)  # fmt: skip
def test_times_ids_and_durations_in_results_hide_no_repeat(noise: str) -> None:
    turns = [call("bash", {"command": "make"}, f"{ERROR} {noise.format(n=n)}") for n in range(10, 16)]
    assert halts(turns) == [Reported("LOOP003", "halt", 4)]


def test_a_restart_loses_no_streak() -> None:
    """After a restart, a worker reads the last state of the run, as compaction keeps it."""
    feed, found = Feed(), []
    for turn in [MAKE, said("agent", "Again."), MAKE, said("agent", "Once more."), MAKE]:
        feed = Feed(stored=feed.stored)
        found += [short(decision) for decision in feed.raw(turn)]
    assert found[-1] == Reported("LOOP003", "halt", 4)


@pytest.mark.parametrize("rounds", [[0, 1], [0, 0, 1, 1], [0, 1, 2], [0, 0, 0, 1, 1, 1]])
def test_switching_between_tools_does_not_hide_a_loop(rounds: list[int]) -> None:
    tools = [call(name, {"path": "a"}, ERROR) for name in ("make", "build", "compile")]
    assert halts(tools[n] for n in rounds * 4)


def test_handovers_around_several_agents_are_detected() -> None:
    team = ["planner", "coder", "reviewer"]
    ring = [said(node, f"{node}: over to you", **{"from": team[place - 1]}) for place, node in enumerate(team)]
    assert halts(ring * 3) == [Reported("LOOP002", "halt", 5)]


def test_a_reworded_ticket_passed_around_three_agents_is_detected() -> None:
    """All three only talk, and two of them repeat the same words."""
    turns = []
    for n in range(12):
        turns += [
            said("triage", f"Could you have a look, {'please ' * n}?"),
            said("backend", "This belongs to frontend."),
            said("frontend", "This belongs to triage."),
        ]
    assert [one.code for one in halts(turns)] == ["LOOP005"]


# What is reported, and how often.


def test_warnings_are_not_repeated_every_turn() -> None:
    assert reported([MAKE] * 60) == [Reported("LOOP003", "warn", 1), Reported("LOOP003", "halt", 2)]


def test_a_second_loop_is_not_blamed_on_the_first() -> None:
    way_out = call("read", {"path": "README"}, "how to build")
    other = call("bash", {"command": "pytest"}, "no tests ran")
    first, second = (one for one in controls([*[MAKE] * 4, way_out, *[other] * 4]) if one.severity == "halt")
    assert (first.onset, first.trigger.turn) == (0, 2)
    assert (second.onset, second.trigger.turn) == (5, 7)
    assert second.id != first.id
    assert second.evidence.args_hash != first.evidence.args_hash


def test_a_stuck_run_is_not_shown_as_completed() -> None:
    monitor = Monitor()
    found = [control for _ in range(3) for control in monitor.feed({"run_id": "r"} | MAKE)]
    assert found[-1].terminal_status == "aborted_stuck"
    assert monitor.feed(run_id="r", type="run.finished", status="succeeded") == []
    status = monitor.status("r")
    assert (status.status, status.severity, status.halt.terminal_status) == ("halted", "halt", "aborted_stuck")


def test_no_terminal_status_of_a_halt_means_success() -> None:
    assert not {"completed", "succeeded", "success", "done", "finished", "ok"} & set(get_args(TerminalStatus))


def test_limits_apply_to_child_runs() -> None:
    monitor = Monitor()
    monitor.feed(run_id="parent", type="run.started", budgets={"maxSessionTokens": 1000})
    monitor.feed(run_id="child", type="run.started", parent_run_id="parent")
    found = [
        control
        for n in range(4)
        for control in monitor.feed(run_id="child", node="agent", output=f"step {n}", usage={"total_tokens": 300})
        if control.severity == "halt"
    ]
    assert {(control.run_id, control.code) for control in found} == {("parent", "BUDGET009"), ("child", "BUDGET009")}
    assert {control.terminal_status for control in found} == {"budget_exceeded"}


@pytest.mark.redis
async def test_concurrent_reservations_do_not_overshoot_together(redis_url: str, topic_prefix: str) -> None:
    """Fifty concurrent callers reserve ten cents each from one dollar."""
    async with open_admission(redis_url, topic_prefix) as admission:
        payer = admission.payer("r1", limits={"run": {"cost_usd": "1.00"}})

        async def spend() -> bool:
            try:
                async with payer.reserve(cost_usd="0.10"):
                    await asyncio.sleep(0)
            except Refused:
                return False
            return True

        assert sum(await asyncio.gather(*(spend() for _ in range(50)))) == 10
        assert await money(admission, payer) == (1_000_000, 0)
