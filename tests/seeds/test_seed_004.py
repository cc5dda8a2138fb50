"""Seed 004, the rules of a team that works through tickets, under the preset `tickets`.

Each test quotes the line of the seed that it plays. An agent's halt is the halt of its run; the lead reads control
events, and people read notifications.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import pytest

from streamproc import Monitor
from streamproc.model.notification import SEED_TYPES, NotificationType, Urgency, message_of, summary_of
from streamproc.notify.triggers import notice_of, trigger_of
from tests.core.board.board_events import created, cycle, given, moves
from tests.feeding import Raw

if TYPE_CHECKING:
    from streamproc.model.controls import ControlEvent


APPROVED = {"verdict": "APPROVED", "items": [{"name": "tests", "status": True}]}
PATH = ("READY", "LOCKED", "IMPLEMENTING", "QA_REVIEW", "VALIDATION", "DOCUMENTATION", "CI_REVIEW", "COMMIT", "DONE")
ROUND = ("QA_REVIEW", "REWORK", "IMPLEMENTING")


def played(*raws: Raw, **monitor: Any) -> list[ControlEvent]:
    team = Monitor("tickets", **monitor)
    return [control for raw in raws for control in team.feed({"run_id": "r", **raw})]


def verdict(task: str, word: str, **more: Any) -> Raw:
    return {"type": "task.verdict", "task_id": task, "verdict": word, "validator": "qa", **more}


def call(task: str = "T1", **args: Any) -> Raw:
    made = {"name": "read_file", "args": args or {"path": "a.py"}, "result": "x"}
    return {"node": "Backend", "task_id": task, "tool_calls": [made]}


def spent(tokens: int, task: str = "T1", **more: Any) -> Raw:
    return {"node": "Backend", "task_id": task, "usage": {"total_tokens": tokens}, **more}


def working(task: str = "T1", agent: str = "Backend") -> list[Raw]:
    return [created(task), given(agent, task), *moves(task, "READY", "LOCKED", "IMPLEMENTING")]


def notified(control: ControlEvent) -> str:
    """Return type, agent, task and urgency of the notification; empty if its urgency is below the default minimum."""
    trigger = trigger_of(control)
    if trigger is None or trigger.urgency < Urgency.MEDIUM:
        return ""
    sent = notice_of(control, trigger, trigger.urgency).notification
    return f"{sent.type} {sent.agent} {sent.task_id} {sent.urgency}"


def bodies_of(control: ControlEvent) -> list[str]:
    """Return the notification as text, as JSON, and in a summary of several."""
    trigger = trigger_of(control)
    assert trigger is not None
    notice = notice_of(control, trigger, trigger.urgency)
    messages = [message_of(notice), message_of(notice, as_json=True), summary_of([notice] * 2)]
    return [message.body for message in messages]


def board_state(*raws: Raw) -> str | None:
    """Return the state of T1 on the board, as the refusal of an impossible move shows it."""
    refused = played(*raws, {"type": "task.transition", "task_id": "T1", "to": "NOWHERE"})[-1]
    assert refused.evidence is not None
    return refused.evidence.last_valid


# "Loop Detection"


def test_repeated_tool_calls() -> None:
    # "DETECT: Same tool called with identical arguments ≥ 3 times within 10 steps"
    halt = played(*working(), call(), call(), call())[-1]
    assert (halt.code, halt.severity, halt.node) == ("LOOP003", "halt", "Backend")
    # "ACTION: Halt agent, log loop signature, set task status to STALLED"
    assert (halt.task_id, halt.terminal_status) == ("T1", "stalled")
    assert board_state(*working(), call(), call(), call()) == "STALLED"
    # "ESCALATE: Notify ReaperOAK with loop evidence (tool name, args, step numbers)"
    assert halt.evidence is not None
    assert (halt.evidence.tool, halt.evidence.turns) == ("read_file", [0, 1, 2])
    assert halt.evidence.args_hash
    assert notified(halt) == "LOOP_DETECTED Backend T1 HIGH"


def test_a_task_that_only_turns_name_is_stalled_as_well() -> None:
    # "ACTION: Halt agent, log loop signature, set task status to STALLED"
    halt = played(call(), call(), call())[-1]
    assert (halt.code, halt.task_id, halt.terminal_status) == ("LOOP003", "T1", "stalled")
    assert halt.evidence is not None
    assert halt.evidence.to_state == "STALLED"


def test_the_same_words_about_another_task_or_of_another_agent_are_no_repeat() -> None:
    # "Agent produces functionally identical output ≥ 2 consecutive times": one agent, about one task
    done = {"node": "Backend", "output": "Done."}
    moved = moves("T1", "IMPLEMENTING", "QA_REVIEW")
    assert played(*working("T1"), done, *moved, *working("T2"), done) == []
    assert played(*working("T1"), done, done)[-1].code == "LOOP001"
    shared = [{"node": "worker", "agent": agent, **call()} for agent in ("Backend", "Frontend", "Tests")]
    assert played(*shared, *(one | {"output": "Done.", "tool_calls": []} for one in shared)) == []
    assert played(*[shared[0] | {"output": "Done.", "tool_calls": []}] * 2)[-1].code == "LOOP001"


def test_a_status_beside_other_words_is_no_identical_output() -> None:
    # "functionally identical output"
    said = [
        {"node": "Backend", "task_id": "T1", "output": text, "structured_output": {"status": "ok"}}
        for text in (
            "Implemented the parser.",
            "Added tests for it.",
            "Implemented the parser.",
            "Implemented the parser.",
        )
    ]
    assert played(*said[:3]) == []
    assert played(*said)[-1].code == "LOOP001"


def test_a_task_that_fails_alike_with_a_success_in_between_is_not_blocked() -> None:
    # "Task retried 3 times with same failure class"
    failed, fine = ({"node": "Backend", "task_id": "T1", "errors": errors} for errors in (
        [{"message": "x is None", "class": "TypeError"}], [],
    ))  # fmt: skip
    assert "ERROR002" not in [one.code for one in played(*working(), failed, fine, failed, fine, failed)]
    assert "ERROR002" in [one.code for one in played(*working(), failed, failed, failed)]


def test_a_refused_result_completes_no_cycle() -> None:
    # "A full BUILD→VALIDATE cycle completes with 0 tasks transitioning to `completed`"
    refused = moves("T1", "LOCKED", "DONE")
    assert [one.code for one in played(created("T1"), *moves("T1", "READY", "LOCKED"), *refused, cycle(0))] == [
        "TASK004", "STALL006",
    ]  # fmt: skip


@pytest.mark.parametrize("agents", [1, 2, 5, 8])
def test_what_other_agents_call_does_not_count_for_ten_steps(agents: int) -> None:
    # "Same tool called with identical arguments ≥ 3 times within 10 steps": of the agent that is halted
    reads = [call(path=f"{n}.py") | {"node": f"n{n % agents}"} for n in range(3 * agents) if n % agents]
    stuck = call() | {"node": "stuck"}
    turns = [turn for n in range(3) for turn in (*reads[n * (agents - 1) : (n + 1) * (agents - 1)], stuck)]
    halts = [one for one in played(*turns) if one.severity == "halt"]
    assert [(one.code, one.node) for one in halts] == [("LOOP003", "stuck")]


def test_a_call_eleven_steps_ago_is_forgotten() -> None:
    # "within 10 steps"
    between = [call(path=f"{n}.py") for n in range(10)]
    assert "LOOP003" not in [one.code for one in played(call(), *between, call(), *between, call())]


def test_a_validator_may_approve_in_the_same_words() -> None:
    # "functionally identical output": about another report
    said = {"node": "qa", "output": "Approved."}
    assert played(said, verdict("T1", "APPROVED"), said, verdict("T2", "APPROVED")) == []
    assert played(verdict("T1", "APPROVED"), said, verdict("T2", "APPROVED"), said) == []
    assert played(said, said)[-1].code == "LOOP001"


@pytest.mark.parametrize("answer", [
    {"error": "HTTP 429 Too Many Requests"}, {"error": "connection timed out"}, {"result": "still running"}, {},
])  # fmt: skip
def test_the_same_call_three_times_halts_whatever_it_answers(answer: Raw) -> None:
    # "Same tool called with identical arguments ≥ 3 times within 10 steps"
    turn = {"node": "Backend", "task_id": "T1", "tool_calls": [{"name": "search", "args": {"q": "x"}, **answer}]}
    *_, halt = played(turn, turn, turn)
    assert (halt.code, halt.severity, halt.terminal_status) == ("LOOP003", "halt", "stalled")
    assert halt.evidence.turns == [0, 1, 2]
    assert all(control.severity != "halt" for control in played(turn, turn))


def test_the_task_that_a_run_is_started_for_is_stalled_as_well() -> None:
    # "ACTION: Halt agent, log loop signature, set task status to STALLED"
    again = [{name: value for name, value in call().items() if name != "task_id"} | {"agent": "Backend"}] * 3
    halt = played({"type": "run.started", "task_id": "T7"}, *again)[-1]
    assert (halt.code, halt.task_id, halt.terminal_status) == ("LOOP003", "T7", "stalled")


def test_a_turn_that_names_no_task_is_about_the_one_that_its_agent_has_in_progress() -> None:
    # "ACTION: Halt agent, log loop signature, set task status to STALLED"
    again = [{name: value for name, value in call().items() if name != "task_id"}] * 3
    halt = played(*working(), *again)[-1]
    assert (halt.code, halt.task_id, halt.terminal_status) == ("LOOP003", "T1", "stalled")
    assert board_state(*working(), *again) == "STALLED"
    for team in ([*working(), *working("T2")], working(agent="Frontend")):  # two tasks, or another agent's
        halt = played(*team, *again)[-1]
        assert (halt.code, halt.task_id, halt.terminal_status) == ("LOOP003", None, "aborted_stuck")


def test_a_loop_stalls_the_one_task_that_its_agent_was_given_before_it_moves() -> None:
    # "Halt agent, set task status to STALLED"
    loop = [{"node": "Backend", "output": "Waiting for the schema."}] * 2
    [halt] = played(created("T1"), given("Backend", "T1"), *loop)
    assert (halt.task_id, halt.terminal_status, halt.evidence.to_state) == ("T1", "stalled", "STALLED")
    both = [created("T1"), created("T2"), given("Backend", "T1", "T2")]
    assert [control.task_id for control in played(*both, *loop)] == [None]  # which of them, no event says
    moved = moves("T2", "READY", "LOCKED")
    assert [control.task_id for control in played(*both, *moved, *loop)] == ["T2"]
    done = moves("T2", "COMMIT", "DONE")
    assert [control.task_id for control in played(created("T1"), given("Backend", "T1", "T2"), *done, *loop)] == ["T1"]


def test_the_arguments_of_a_repeated_call_are_shown_redacted_and_only_on_request() -> None:
    # "loop evidence (tool name, args, step numbers)"
    secret = call(path="a.py", password="hunter2-and-more")
    shown = [played(secret, secret, secret, include_content=asked)[-1].evidence for asked in (False, True)]
    assert shown[0] is not None
    assert shown[1] is not None
    assert shown[0].args_excerpt is None
    assert "a.py" in (shown[1].args_excerpt or "")
    assert "hunter2" not in (shown[1].args_excerpt or "")
    assert shown[0].args_hash == shown[1].args_hash


def test_identical_output_cycles() -> None:
    # "DETECT: Agent produces functionally identical output ≥ 2 consecutive times"
    said = {"node": "Backend", "task_id": "T1", "output": "I will fix the import."}
    halt = played(*working(), said, said)[-1]
    assert (halt.code, halt.severity) == ("LOOP001", "halt")
    # "ACTION: Halt agent, set task status to STALLED"
    assert (halt.task_id, halt.terminal_status) == ("T1", "stalled")
    assert board_state(*working(), said, said) == "STALLED"
    # "ESCALATE: Notify ReaperOAK for re-scoping or alternative approach"
    assert notified(halt) == "LOOP_DETECTED Backend T1 HIGH"


def test_retry_exhaustion() -> None:
    # "DETECT: Task retried 3 times with same failure class"
    failed = {"node": "Backend", "task_id": "T1", "errors": [{"message": "m", "class": "ImportError"}]}
    again = [failed | {"errors": [{"message": f"attempt {n}", "class": "ImportError"}]} for n in range(3)]
    blocked = next(one for one in played(*working(), *again) if one.code == "ERROR002")
    # "ACTION: Set task status to BLOCKED, stop retries"
    assert (blocked.task_id, blocked.terminal_status) == ("T1", "blocked")
    assert board_state(*working(), *again, *moves("T1", "IMPLEMENTING", "QA_REVIEW")) == "BLOCKED"
    # "ESCALATE: Notify ReaperOAK → human escalation if unresolvable"
    assert notified(blocked) == "FAILURE Backend T1 MEDIUM"


@pytest.mark.parametrize("before", [
    [{"type": "run.started", "task_id": "T1"}], [*working()[:1], given("Backend", "T1"), *working()[1:]],
], ids=["the run was started for it", "its agent has it in hand"])  # fmt: skip
def test_retries_count_for_the_task_that_a_turn_does_not_name(before: list[Raw]) -> None:
    # "DETECT: Task retried 3 times with same failure class"
    failed = [{"node": "Backend", "errors": [{"message": f"m{n * 'x'}", "class": "Timeout"}]} for n in range(3)]
    blocked = [one for one in played(*before, *failed) if one.code == "ERROR002"]
    assert [(one.task_id, one.terminal_status) for one in blocked] == [("T1", "blocked")]
    cleared = [failed[0], failed[1], {"node": "Backend", "errors": []}, failed[2]]
    assert [one for one in played(*before, *cleared) if one.code == "ERROR002"] == []


def test_tasks_that_only_delegations_name_have_budgets_and_answers_of_their_own() -> None:
    # ">100% VIOLATION: Task killed, escalate"
    packets = [given(agent, task, max_token_budget=100) for agent, task in (("a", "T1"), ("b", "T2"))]
    turns = [{"node": "ab"[n % 2], "output": f"{n * 'x'} done", "usage": {"total_tokens": 60}} for n in range(4)]
    spent_all = [one for one in played(*packets, *turns) if one.terminal_status == "budget_exceeded"]
    assert [one.task_id for one in spent_all] == ["T1", "T2"]
    # "Agent produces functionally identical output": about another task it is not
    ended = {"type": "task.transition", "task_id": "T1", "to": "DONE"}
    done = [given("a", "T1"), {"node": "a", "output": "Done."}, ended, given("a", "T2")]
    assert [one for one in played(*done, {"node": "a", "output": "Done."}) if one.severity == "halt"] == []


def test_deliveries_of_tasks_without_a_state_do_not_add_up_once_their_agent_has_worked() -> None:
    # "DETECT: PM delivers > 5 tasks in a single batch"
    raws = [turn for n in range(9) for turn in (given("a", f"T{n}"), {"node": "a", "output": f"{'x' * n} is ready."})]
    assert [one for one in played(*raws) if one.code == "TASK003"] == []


@pytest.mark.parametrize("is_diff", [True, False])
def test_indented_otherwise_a_patch_is_another_one(is_diff: bool) -> None:
    # "Agent produces functionally identical output": where a line stands is what it does
    lines = ["def f(xs):", "    t = 0", "    for x in xs:", "        t += x", "        return t"]
    made = "\n".join(["diff --git a/a.py b/a.py", "@@ -1 +1 @@", *(f"+{line}" for line in lines)] if is_diff else lines)

    def halting(second: str) -> list[str]:
        patches = [{"node": "Backend", "artifact": text} for text in (made, second)]
        return [one.code for one in played(*working(), *patches) if one.severity == "halt"]

    assert halting(made.replace("        return t", "    return t")) == []
    assert halting(made.replace("\n", "  \n") + "\n\n") == ["STALL001"]  # at the ends of lines it does nothing


def test_retries_that_fail_with_the_same_words_are_granted_as_well() -> None:
    # "DETECT: Task retried 3 times with same failure class": two failures that are alike halt nothing
    failed = {"node": "Backend", "task_id": "T1", "errors": [{"message": "no module x", "class": "ImportError"}]}
    assert [one for one in played(*working(), failed, failed) if one.severity == "halt"] == []
    blocked = played(*working(), failed, failed, failed)[-1]
    assert (blocked.code, blocked.severity, blocked.terminal_status) == ("ERROR002", "warn", "blocked")
    # "stop retries": the agent went on
    assert played(*working(), *[failed] * 4)[-1].halt_reason == "repeated_error"


def test_oscillating_state() -> None:
    # "DETECT: Task status oscillates between two states ≥ 3 times"
    swings = moves("T1", "IMPLEMENTING", *ROUND * 3)
    [blocked] = played(*working(), *swings)
    # "ACTION: Halt, force BLOCKED status"
    assert (blocked.code, blocked.type, blocked.terminal_status) == ("TASK001", "task.ended", "blocked")
    assert "stop Backend" in blocked.message
    assert board_state(*working(), *swings) == "BLOCKED"
    assert notified(blocked) == "LOOP_DETECTED Backend T1 HIGH"
    # "ESCALATE: Root cause analysis required before retry"
    retry = moves("T1", "BLOCKED", "IMPLEMENTING")
    refused = played(*working(), *swings, *retry)[-1]
    assert (
        "T1 stays in BLOCKED: move it to IMPLEMENTING with a root cause or a person's approval" in bodies_of(refused)[0]
    )
    assert [one.type for one in played(*working(), *swings, *retry)][1:] == ["transition.blocked"]
    assert len(played(*working(), *swings, *(one | {"root_cause": "a shared fixture"} for one in retry))) == 1


def test_todo_progress_stall() -> None:
    # "DETECT: Any task in `in_progress` status for > 2 full BUILD→VALIDATE cycles without status change"
    assert played(*working(), cycle(), cycle()) == []
    [stalled] = played(*working(), cycle(), cycle(), cycle())
    # "ACTION: Set task status to STALLED, halt owning agent"
    assert (stalled.code, stalled.task_id, stalled.terminal_status, stalled.node) == (
        "STALL005", "T1", "stalled", "Backend",
    )  # fmt: skip
    assert "stop Backend" in stalled.message
    assert board_state(*working(), cycle(), cycle(), cycle()) == "STALLED"
    # "ESCALATE: ReaperOAK re-scopes or reassigns task; notify user if unresolvable"
    assert "rescope or reassign" in stalled.message
    assert notified(stalled) == "STALL Backend T1 HIGH"


@pytest.mark.parametrize("state", ["LOCKED", "IMPLEMENTING", "QA_REVIEW"])
def test_a_task_that_the_team_stalls_notifies(state: str) -> None:
    # "Notification Triggers - Any agent enters STALLED state"
    steps = moves("T1", *PATH[: PATH.index(state) + 1], "STALLED")
    [stalled] = played(created("T1"), given("Backend", "T1"), *steps, steps[-1])  # said again: it is there already
    assert (stalled.code, stalled.type, stalled.terminal_status) == ("STALL005", "task.ended", "stalled")
    assert stalled.evidence is not None
    assert stalled.evidence.last_valid == state
    assert notified(stalled) == "STALL Backend T1 HIGH"
    by_board = played(*working(), cycle(), cycle(), cycle(), *moves("T1", "IMPLEMENTING", "STALLED"))
    assert len(by_board) == 1  # the team follows the decision


def test_an_escalated_task_that_the_team_stalls_waits_for_its_person() -> None:
    # "ACTION: Set task status to ESCALATED, halt all further rework attempts for this task"
    stalled = [*working(), *[verdict("T1", "REJECTED")] * 3, *moves("T1", "ESCALATED", "STALLED")]
    assert [one.code for one in played(*stalled) if one.code.startswith("STALL")] == []
    assert played(*stalled, *moves("T1", "STALLED", "IMPLEMENTING"))[-1].code == "TASK008"


def test_zero_progress_cycle() -> None:
    # "DETECT: A full BUILD→VALIDATE cycle completes with 0 tasks transitioning to `completed`"
    [halt] = played(*working(), cycle(0))
    # "ACTION: Halt pipeline, flag as systemic issue"
    assert (halt.code, halt.severity) == ("STALL006", "halt")
    assert "whole pipeline" in halt.message
    # "ESCALATE: Require user intervention"
    assert (halt.action, notified(halt).split()[0]) == ("ask_human", "STALL")


def test_a_cycle_that_lists_what_earlier_ones_completed_completes_none() -> None:
    # "with 0 tasks transitioning to `completed`": a list of all that is completed so far hides none
    done = moves("T1", "COMMIT", "DONE", dod=APPROVED)
    assert played(*working("T2"), *done, cycle(["T1"])) == []
    [halt] = played(*working("T2"), *done, cycle(["T1"]), cycle(["T1"]))
    assert (halt.code, halt.severity, halt.action) == ("STALL006", "halt", "ask_human")
    listed = played(*working("T2"), cycle(["T2"]), cycle(["T2"]))  # in IMPLEMENTING: it is believed once
    assert [one.code for one in listed] == ["STALL006"]
    assert played(*[cycle(["T1"])] * 2) == []  # nothing tells its moves


def test_a_cycle_that_only_cancels_tasks_completes_none() -> None:
    # "A full BUILD→VALIDATE cycle completes with 0 tasks transitioning to `completed`"
    board = [created("T1"), created("T2"), *moves("T1", "READY", "CANCELLED")]
    [halt] = played(*board, {"type": "cycle.completed"})
    assert (halt.code, halt.severity) == ("STALL006", "halt")
    assert played(*board, *moves("T2", "READY", "CANCELLED"), {"type": "cycle.completed"}) == []  # nothing is left


def test_a_cancelled_design_ticket_opens_no_gate() -> None:
    # "a completed UIDesigner dependency ticket (`status: DONE`)"
    artifacts = ["mockup", "interaction-spec", "component-hierarchy", "state-variations", "accessibility-checklist"]
    board = [created("UX-1", kind="UIDesigner"), created("F1", ui_touching=True, depends_on=["UX-1"])]
    starts = [*moves("F1", "READY", "LOCKED"), *moves("F1", "LOCKED", "IMPLEMENTING", artifacts=artifacts)]
    [refused] = played(*board, *moves("UX-1", "READY", "CANCELLED"), *starts)
    assert (refused.code, refused.evidence.missing) == ("TASK007", ["design ticket"])
    assert played(*board, *moves("UX-1", "COMMIT", "DONE"), *starts) == []


@pytest.mark.parametrize("order", [("T0", "T1", "T2"), ("T2", "T1", "T0"), ("T1", "T2", "T0"), ("T0", "T2", "T1")])
def test_a_chain_that_is_known_after_its_tasks_are_blocked(order: tuple[str, ...]) -> None:
    # "3+ tasks in a dependency chain are all `blocked`"
    blocked = [{"type": "task.transition", "task_id": task, "to": "BLOCKED"} for task in order]
    links = [created(task, **({"depends_on": [f"T{int(task[1]) - 1}"]} if task != "T0" else {})) for task in order]

    def chains(*events: Raw) -> list[ControlEvent]:
        return [control for control in played(*blocked, *events) if control.code == "TASK002"]

    [chain] = chains(*links)
    assert (chain.evidence.root, chain.evidence.chain) == ("T0", ["T0", "T1", "T2"])
    assert chain.evidence.priority == "P0"
    assert len(chains(*links, *links)) == 1  # the same again is no news
    assert chains(created("T1", depends_on=["T0"]), created("T2")) == []


@pytest.mark.parametrize("code", ["ERROR002", "TASK001"])
def test_a_chain_whose_root_the_breaker_blocks(code: str) -> None:
    # "3+ tasks in a dependency chain are all `blocked`", also if the breaker has blocked the last one of them
    errors = [{"node": "Backend", "task_id": "T0", "errors": [{"message": f"{n}", "class": "E"}]} for n in "abc"]
    board = [created("T0"), created("T1", depends_on=["T0"]), created("T2", depends_on=["T1"])]
    board += [*moves("T1", "READY", "BLOCKED"), *moves("T2", "READY", "BLOCKED"), *moves("T0", *PATH[:3])]
    ends = errors if code == "ERROR002" else [move for _ in range(3) for move in moves("T0", "IMPLEMENTING", *ROUND)]
    assert [(control.code, control.task_id) for control in played(*board, *ends)] == [(code, "T0"), ("TASK002", "T0")]


def test_blocked_dependency_chain() -> None:
    # "DETECT: 3+ tasks in a dependency chain are all `blocked`"
    tasks = [created("A"), created("B", depends_on=["A"]), created("C", depends_on=["B"])]
    blocked = [raw for name in "ABC" for raw in moves(name, "LOCKED", "BLOCKED")]
    [found] = [one for one in played(*tasks, *blocked) if one.code == "TASK002"]
    # "ACTION: Identify root blocker task, auto-escalate its priority to P0"
    assert found.evidence is not None
    assert (found.task_id, found.evidence.root, found.evidence.priority) == ("A", "A", "P0")
    # "ESCALATE: … if blocked > 1 full cycle → user notification"
    last = played(*tasks, *blocked, cycle(), cycle())[-1]
    assert (last.code, last.type, notified(last).split()[-1]) == ("TASK002", "notification", "HIGH")


def test_max_task_per_cycle_violation() -> None:
    # "DETECT: Agent receives > 3 tasks (or > 5 for SPEC-phase agents) in a single delegation cycle"
    assert played(given("Backend", "A", "B", "C")) == []
    assert played(given("Backend", "A", "B"), given("Frontend", "C", "D")) == []
    [at_once] = played(given("Backend", "A", "B", "C", "D"))
    [together] = played(given("Backend", "A", "B"), given("Backend", "C", "D"))
    assert played(given("Spec", "A", "B", "C", "D", "E", phase="SPEC")) == []
    [spec] = played(given("Spec", "A", "B", "C", phase="SPEC"), given("Spec", "D", "E", "F", phase="SPEC"))
    for rejected in (at_once, together, spec):
        # "ACTION: Reject delegation batch, log violation"
        assert (rejected.code, rejected.type) == ("TASK003", "delegation.rejected")
        # "ESCALATE: TODO Agent must further decompose the oversized batch"
        assert "split the batch" in rejected.message
        assert notified(rejected).endswith("MEDIUM")
    assert played(given("Backend", "A", "B"), cycle(2), given("Backend", "C", "D")) == []


def test_batches_that_are_given_by_their_number_add_up_in_a_cycle() -> None:
    # "Agent receives > 3 tasks (or > 5 for SPEC-phase agents) in a single delegation cycle"
    def counted(n: int, agent: str = "Backend", **more: Any) -> Raw:
        return {"type": "task.delegated", "agent": agent, "count": n, **more}

    [rejected] = played(counted(2), counted(2))
    assert (rejected.code, rejected.type, rejected.evidence.count) == ("TASK003", "delegation.rejected", 4)
    for batches in ([counted(2), given("Backend", "T1", "T2")], [given("Backend", "T1", "T2"), counted(2)]):
        assert [control.evidence.count for control in played(*batches)] == [4]
    assert played(counted(2), counted(2, "Frontend"), cycle(), counted(3)) == []
    assert played(counted(3, phase="SPEC"), counted(2, phase="SPEC")) == []
    assert [control.evidence.count for control in played(counted(3), counted(2), counted(1))] == [5, 4]  # not given
    assert played(counted(3), {"node": "Backend", "output": "All of it."}, counted(3)) == []  # it has worked


def test_ticket_state_skip() -> None:
    # "DETECT: Agent attempts to advance a ticket past a state in the 9-state machine (READY → LOCKED → …)"
    assert played(created("T1"), *moves("T1", *PATH, dod=APPROVED)) == []
    [skip] = played(created("T1"), *moves("T1", "READY", "VALIDATION", agent="Backend"))
    # "ACTION: Block the state transition, log the skip attempt with ticket ID and attempted transition, revert ticket
    # to its last valid state"
    assert skip.evidence is not None
    assert (skip.code, skip.type, skip.task_id) == ("TASK004", "transition.blocked", "T1")
    assert (skip.evidence.from_state, skip.evidence.to_state, skip.evidence.last_valid) == (
        "READY", "VALIDATION", "READY",
    )  # fmt: skip
    # "ESCALATE: Notify ReaperOAK with evidence of attempted skip"
    assert notified(skip) == "BLOCKED Backend T1 MEDIUM"


@pytest.mark.parametrize("by", [("IN_PROGRESS", "VALIDATION"), ("BLOCKED", "IMPLEMENTING"), ("FAILED", "REWORK")])
def test_a_ticket_skips_no_state_by_way_of_another(by: tuple[str, str]) -> None:
    # "skipping QA_REVIEW to reach VALIDATION, or bypassing the post-execution chain"
    [skip] = played(created("T1"), *moves("T1", "READY", *by))
    assert (skip.code, skip.type, skip.evidence.last_valid) == ("TASK004", "transition.blocked", by[0])


def test_a_task_that_was_blocked_before_it_started_is_completed_like_any_other() -> None:
    # "0 tasks transitioning to `completed`": one has
    to_do = moves("T1", "pending", "blocked", "pending", "in_progress", "completed")
    assert played(created("T1", state="pending"), created("T2", state="pending"), *to_do, cycle(["T1"])) == []


@pytest.mark.parametrize(("dod", "missing"), [
    ({"verdict": "APPROVED", "items": [{"name": "docs", "status": False}]}, "docs"),  # "any item with `status: false`"
    (None, "dod report"),  # "or no DoD report exists"
    ({"verdict": "PENDING", "items": [{"name": "docs", "status": True}]}, "dod verdict PENDING"),  # "or `verdict != …`"
    ({"items": [{"name": "docs", "status": True}]}, "dod verdict"),
])  # fmt: skip
def test_dod_non_compliance(dod: Raw | None, missing: str) -> None:
    # "DETECT: Ticket advancement past QA_REVIEW attempted when …"
    attempt = moves("T1", "QA_REVIEW", "VALIDATION", **({"dod": dod} if dod else {}))
    again = [*moves("T1", "REWORK", "IMPLEMENTING", "QA_REVIEW"), *attempt]
    first, second = played(given("Backend", "T1"), *attempt, *again)
    # "ACTION: Block advancement past QA_REVIEW, return ticket to REWORK → IMPLEMENTING, log … which DoD items failed"
    assert first.evidence is not None
    assert (first.code, first.evidence.last_valid, first.evidence.missing) == ("TASK005", "REWORK", [missing])
    assert notified(first).endswith("MEDIUM")
    # "ESCALATE: … if repeated (≥ 2 …), flag the owning agent for re-delegation or user intervention"
    assert "reassign it from Backend" in second.message
    assert notified(second).endswith("HIGH")


UNIT, E2E = {"name": "unit", "status": True}, {"name": "e2e", "status": False}


@pytest.mark.parametrize("nested", [
    {"items": {"tests": [UNIT, E2E]}}, {"items": {"tests": {"unit": True, "e2e": False}}},
    {"items": {"tests": {"status": "passed", "checks": [UNIT, E2E]}}}, {"items": {"tests": {"failed": ["e2e"]}}},
    {"sections": [{"title": "Tests", "items": [UNIT, E2E]}]}, {"sections": {"tests": {"items": [UNIT, E2E]}}},
    {"items": [{"name": "tests", "status": True, "items": [UNIT, E2E]}]}, {"items": [[UNIT], [UNIT, E2E]]},
    {"parts": {"all": [{"groups": [{"name": "g", "list": [{"id": "tests", "items": [{"x": [E2E]}]}]}]}]}},
    {"status": {"unit": True, "e2e": False}}, {"backend": [UNIT], "frontend": [E2E]},
])  # fmt: skip
def test_a_failing_item_counts_however_deep_it_is(nested: Raw) -> None:
    # "any item with `status: false`", "log non-compliance details (which DoD items failed)"
    [refused] = played(*moves("T1", "QA_REVIEW", "VALIDATION", dod={"verdict": "APPROVED", **nested}))
    assert (refused.code, refused.evidence.missing) == ("TASK005", ["e2e"])
    fine = json.loads(json.dumps(nested).replace("false", "true").replace("failed", "steps"))
    assert played(*moves("T1", "QA_REVIEW", "VALIDATION", dod={"verdict": "APPROVED", **fine})) == []
    # "(`allPassed: true` …)", "log violation with module name and missing checklist items"
    start = moves("T1", "LOCKED", "IMPLEMENTING", module="billing", init={"allPassed": True, **nested})
    [refused] = played(created("T1"), *start)
    assert (refused.code, refused.evidence.missing) == ("TASK006", ["e2e"])
    start = moves("T1", "LOCKED", "IMPLEMENTING", module="billing", init={"allPassed": True, **fine})
    assert played(created("T1"), *start) == []


@pytest.mark.parametrize("word", ["OK", "PASSED", "yes", "pass", "approve", "accepted", "LGTM", "true", "PENDING"])
def test_a_verdict_other_than_approved_blocks(word: str) -> None:
    # "or `verdict != APPROVED`"
    for report in ({"verdict": word}, {"verdict": word, "items": [UNIT]}, {"approved": True, "verdict": word}):
        [refused] = played(*moves("T1", "QA_REVIEW", "VALIDATION", dod=report))
        assert refused.code == "TASK005"
        assert refused.evidence.missing == [f"dod verdict {word.upper()}"]
    for said in ("APPROVED", "approved", " Approved "):
        assert played(*moves("T1", "QA_REVIEW", "VALIDATION", dod={"verdict": said})) == []


@pytest.mark.parametrize("named", [True, False])
def test_the_second_attempt_counts_whether_or_not_the_move_names_where_it_starts(named: bool) -> None:
    # "if repeated (≥ 2 advancement attempts with failing DoD), flag the owning agent"
    failing = {"verdict": "APPROVED", "items": [{"name": "tests", "status": False}]}
    for report in ({"dod": failing}, {}):
        [attempt] = moves("T1", "QA_REVIEW", "VALIDATION", **report)
        start = [given("Backend", "T1"), *moves("T1", "IMPLEMENTING", "QA_REVIEW")]
        again = attempt if named else {key: value for key, value in attempt.items() if key != "from"}
        first, second, third = played(*start, *[again] * 3)
        assert {one.code for one in (first, second, third)} == {"TASK005"}
        assert second.evidence is not None
        assert (second.evidence.attempts, second.action) == (2, "ask_human")
        assert "reassign it from Backend" in second.message
        good = again | {"dod": APPROVED}
        assert len(played(*start, again, good)) == 1
        assert board_state(*start, again, good) == "VALIDATION"


@pytest.mark.parametrize("name", [
    "dod", "dod_items", "definition", "Definition of Done", "acceptance", "acceptance_criteria", "checklist",
])  # fmt: skip
def test_a_failing_item_counts_whatever_its_list_is_called(name: str) -> None:
    # "any item with `status: false`"
    items = [{"name": "tests", "status": True}, {"name": "docs", "status": False}]
    [refused] = played(*moves("T1", "QA_REVIEW", "VALIDATION", dod={"verdict": "APPROVED", name: items}))
    assert (refused.code, refused.evidence.missing) == ("TASK005", ["docs"])
    fine = {"verdict": "APPROVED", name: items[:1]}
    assert played(*moves("T1", "QA_REVIEW", "VALIDATION", dod=fine)) == []


def test_the_failing_items_of_an_earlier_report_are_named() -> None:
    # "log non-compliance details (which DoD items failed)"
    report = {"verdict": "APPROVED", "items": [{"name": "tests", "status": True}, {"name": "docs", "status": False}]}
    for reported in (moves("T1", "IMPLEMENTING", "QA_REVIEW", dod=report), [verdict("T1", "APPROVED", dod=report)]):
        board = [*moves("T1", "LOCKED", "IMPLEMENTING"), *reported, *moves("T1", "QA_REVIEW", "VALIDATION")]
        board[1:1] = moves("T1", "IMPLEMENTING", "QA_REVIEW") if reported[0]["type"] == "task.verdict" else []
        [refused] = played(*board)
        assert (refused.code, refused.evidence.missing) == ("TASK005", ["docs"])
    again = moves("T1", "REWORK", "IMPLEMENTING", "QA_REVIEW", "VALIDATION")
    assert played(*board, *again)[-1].evidence.missing == ["dod report"]  # each rework needs a new one


@pytest.mark.parametrize("report", [
    {"dod": {"verdict": "APPROVED", "task_id": "T9", "items": [{"name": "docs", "status": True}]}},
    {"dod": {"verdict": "APPROVED", "allPassed": True, "path": "docs/reviews/dod/T9-dod.yaml"}},
    {"evidence": {"docs/reviews/dod/T9-dod.yaml": {"verdict": "APPROVED", "allPassed": True}}},
])  # fmt: skip
def test_the_report_of_another_task_or_module_opens_no_gate(report: Raw) -> None:
    # "no DoD report exists at `docs/reviews/dod/{TASK_ID}-dod.yaml`"
    [refused] = played(given("Backend", "T1"), *moves("T1", "QA_REVIEW", "VALIDATION", **report))
    assert refused.evidence is not None
    assert (refused.code, refused.evidence.missing) == ("TASK005", ["dod report (not of T9)"])
    for task in ("T1", "a-ticket-with-a-name-that-is-longer-than-a-module"):
        own = json.loads(json.dumps(report).replace("T9", task.lower()))
        assert played(given("Backend", task), *moves(task, "QA_REVIEW", "VALIDATION", **own)) == []
    # "`allPassed: true` in `docs/reviews/init/{MODULE}-init.yaml` does not exist"
    for init in ({"module": "auth", "allPassed": True}, "docs/reviews/init/auth-init.yaml"):
        start = moves("T1", "LOCKED", "IMPLEMENTING", init=init, module="billing")
        assert [one.code for one in played(created("T1"), *start)] == ["TASK006"]
        own = played(created("T1"), *(one | {"module": "src/auth"} for one in start))
        assert [one.code for one in own] == ["TASK006"] * isinstance(init, str)  # a file may say that it has failed


def test_a_file_in_a_list_of_evidence_is_no_verdict() -> None:
    # "or `verdict != APPROVED`"
    listed = {"evidence": ["docs/reviews/dod/T1-dod.yaml"]}
    [refused] = played(given("Backend", "T1"), *moves("T1", "QA_REVIEW", "VALIDATION", **listed))
    assert refused.evidence is not None
    assert (refused.code, refused.evidence.missing) == ("TASK005", ["dod verdict"])


def test_a_module_is_initialised_once_for_all_its_tickets() -> None:
    # "a module that has no passing initialization checklist on disk": the first ticket's is there for the second
    first = moves("T1", "LOCKED", "IMPLEMENTING", module="billing", init={"allPassed": True})
    assert played(*first, created("T2", module="billing"), *moves("T2", "LOCKED", "IMPLEMENTING")) == []


def test_initialization_skip() -> None:
    # "DETECT: Agent enters IMPLEMENTING state for a ticket modifying a module that has no passing … checklist"
    task = created("T1", module="billing")
    start = moves("T1", "LOCKED", "IMPLEMENTING", init={"allPassed": False, "missing": ["fixtures"]}, agent="Backend")
    first, second = played(task, *start, *(one | {"from": "REWORK"} for one in start))
    # "ACTION: Block IMPLEMENTING, return ticket to REWORK, log violation with module name and missing checklist items"
    assert first.evidence is not None
    assert (first.code, first.evidence.last_valid, first.evidence.missing) == ("TASK006", "REWORK", ["fixtures"])
    assert first.evidence.module == "billing"  # only the task's creation named it
    assert "fixtures of billing missing or failing" in first.message
    # "ESCALATE: … if module scaffolding cannot be completed after 2 attempts → user notification"
    assert (second.action, notified(second)) == ("ask_human", "BLOCKED Backend T1 HIGH")


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("task", "code", "opens"), [
    ({"module": "billing"}, "TASK006", {"init": {"allPassed": True}}),  # "Block IMPLEMENTING, return ticket to REWORK"
    ({"ui_touching": "yes"}, "TASK007", {"approvals": [{"by": "ann", "reason": "one word"}]}),  # "Block the Frontend …"
])  # fmt: skip
def test_a_closed_gate_stays_closed_however_far_the_team_goes(task: Raw, code: str, opens: Raw, named: bool) -> None:
    steps = moves("T1", *PATH)
    for step in steps[3:]:
        step["dod"] = APPROVED  # the report of another gate
    if not named:
        steps = [{key: value for key, value in step.items() if key != "from"} for step in steps]
    refused = played(created("T1", **task), *steps)
    assert [(one.code, one.evidence.attempts) for one in refused if one.evidence] == [(code, n) for n in range(1, 8)]
    # "A full BUILD→VALIDATE cycle completes with 0 tasks transitioning to `completed`"
    assert played(created("T1", **task), *steps, {"type": "cycle.completed"})[-1].code == "STALL006"
    poor = [{key: value for key, value in step.items() if key != "dod"} for step in steps]
    assert {one.code for one in played(created("T1", **task), *poor)} == {code}
    shown = [*steps[:4], steps[4] | opens, *steps[5:]]
    late = [one.code for one in played(created("T1", **task), *shown) if one.severity != "info"]
    assert late == [code] * 3  # IMPLEMENTING, QA_REVIEW, VALIDATION; the evidence came with DOCUMENTATION
    assert board_state(created("T1", **task), *shown) == "DONE"


def test_a_task_in_rework_does_not_skip_to_validation() -> None:
    # "skipping QA_REVIEW to reach VALIDATION"
    back = moves("T1", "QA_REVIEW", "REWORK")
    [refused] = played(*back, {"type": "task.transition", "task_id": "T1", "to": "VALIDATION", "dod": APPROVED})
    assert refused.code == "TASK004"


def test_ui_ux_gate_bypass() -> None:
    # "DETECT: Frontend ticket with `UI Touching: yes` enters IMPLEMENTING without: (a) … (b) …"
    task = created("T1", ui_touching="yes")
    start = moves("T1", "LOCKED", "IMPLEMENTING")
    [refused] = played(task, *start)
    # "ACTION: Block the Frontend ticket from entering IMPLEMENTING, return to REWORK, log bypass attempt with … missing
    # artifact paths"
    assert refused.evidence is not None
    assert (refused.code, refused.evidence.last_valid) == ("TASK007", "REWORK")
    assert "mockup" in (refused.evidence.missing or [])
    assert notified(refused).endswith("MEDIUM")
    # "Override requires explicit user approval logged in `decisionLog.md`"
    approval = [one | {"approvals": [{"by": "ann", "reason": "one word changes"}]} for one in start]
    [recorded] = played(task, *approval)
    assert recorded.evidence is not None
    assert (recorded.type, recorded.severity, recorded.task_id) == ("decision.recorded", "info", "T1")
    assert (recorded.evidence.by, recorded.evidence.reason) == ("ann", "one word changes")


def test_the_design_gate_is_for_tickets_that_touch_the_interface_and_needs_their_ticket() -> None:
    # "Frontend ticket with `UI Touching: yes`"; "require UIDesigner ticket completion before unblocking"
    names = ["mockup", "interaction-spec", "component-hierarchy", "state-variations", "accessibility-checklist"]
    paths = {name: f"docs/uiux/login/{name}.md" for name in names}

    def starts(ui: str | None, **more: Any) -> list[ControlEvent]:
        task = created("F1", kind="frontend", **({"ui_touching": ui} if ui else {}))
        return played(task, *moves("F1", "READY", "LOCKED"), *moves("F1", "LOCKED", "IMPLEMENTING", **more))

    some = {name: paths[name] for name in names[:2]}
    assert starts("no", design=some) == starts(None, design=some) == []
    for reported in ({"artifacts": names}, {"artifacts": list(paths.values())}, {"design": paths}):
        [refused] = starts("yes", **reported)
        assert (refused.code, refused.evidence.missing) == ("TASK007", ["design ticket"])


def test_an_approval_opens_its_gate_whenever_it_is_given() -> None:
    # "Override requires explicit user approval logged in `decisionLog.md`"
    approval = {"type": "decision.recorded", "task_id": "T1", "decision": "approve", "by": "ann", "reason": "a word"}
    ticket, frontend = created("D1", kind="design"), created("T1", ui_touching="yes", depends_on=["D1"])
    start = moves("T1", "READY", "LOCKED", "IMPLEMENTING")
    told = [one | {"ui_touching": "yes"} for one in start]
    assert [one.type for one in played(ticket, frontend, approval, *start)] == ["decision.recorded"]
    approved, given = {"approvals": {"by": "ann"}}, "decision.recorded"
    for early, recorded in (
        ([ticket, approval, frontend, *start], [given]),  # nothing is known of the ticket: the record is made at once
        ([approval, *told], [given]),
        ([frontend | approved, *start], [given]),
        ([frontend, start[0] | approved, start[1]], [given]),
        ([created("T1"), start[0] | approved, *told[1:]], []),  # the gate does not apply yet: nothing is overridden
    ):
        assert [one.type for one in played(*early)] == recorded
    for withdrawn in ("reject", "withdrawn", "Revoke the approval"):
        for before in ([frontend], [frontend, approval], [frontend | approved]):
            refused = played(*before, approval | {"decision": withdrawn}, *start)[-1]
            assert (refused.type, refused.code) == ("transition.blocked", "TASK007")


def test_a_withdrawn_approval_leaves_what_the_evidence_has_opened() -> None:
    # "(b) design artifacts on disk at `docs/uiux/<feature>/`"
    names = ["mockup", "interaction-spec", "component-hierarchy", "state-variations", "accessibility-checklist"]
    ticket = created("T1", ui_touching="yes", artifacts=names, design={"status": "DONE"})
    withdrawn = {"type": "decision.recorded", "task_id": "T1", "decision": "withdraw", "by": "ann"}
    approved = withdrawn | {"decision": "approve"}
    start = moves("T1", "READY", "LOCKED", "IMPLEMENTING")
    assert played(ticket, withdrawn, *start) == []
    assert played(ticket, approved, withdrawn, *start) == []
    later = created("T1", ui_touching="yes")
    assert played(later, approved, ticket, withdrawn, *start)[-1].type == "decision.recorded"


def test_artifacts_may_be_named_by_their_paths() -> None:
    # "(b) design artifacts on disk at `docs/uiux/<feature>/` (mockup, interaction-spec, component-hierarchy, …)"
    names = ("mockup", "interaction-spec", "component-hierarchy", "state-variations", "accessibility-checklist")
    paths = {name: f"docs/uiux/login/{name}.md" for name in names}
    task = [created("D", agent="UIDesigner", state="DONE"), created("T1", ui_touching="yes", depends_on=["D"])]
    assert played(*task, *moves("T1", "LOCKED", "IMPLEMENTING", artifacts=paths)) == []
    assert played(*task, *moves("T1", "LOCKED", "IMPLEMENTING", design=paths)) == []
    for gap in ({"mockup": ""}, {"mockup": False}):
        [refused] = played(*task, *moves("T1", "LOCKED", "IMPLEMENTING", artifacts=paths | gap))
        assert refused.evidence is not None
        assert refused.evidence.missing == ["mockup"]


def test_a_third_rejection_of_one_class_escalates_the_task() -> None:
    # "rework count reaches maximum of 3 … Set task status to ESCALATED", also where "same failure class" would block it
    rejected = [verdict("T1", "REJECTED", failure_class="lint") for _ in range(3)]
    raws = [*working(), *moves("T1", "IMPLEMENTING", "QA_REVIEW"), *rejected]
    assert [(one.code, one.terminal_status) for one in played(*raws)] == [
        ("TASK008", "escalated"), ("ERROR002", "escalated"),
    ]  # fmt: skip
    assert board_state(*raws) == "ESCALATED"


def test_validator_rejection_loop() -> None:
    # "DETECT: Validator issues `REJECTED` verdict for the same task ≥ 3 times"
    rejected = [
        *working(), *moves("T1", "IMPLEMENTING", "QA_REVIEW"),
        *(verdict("T1", "REJECTED", reason=f"criterion {n}") for n in range(3)),
    ]  # fmt: skip
    [escalated] = played(*rejected)
    # "ACTION: Set task status to ESCALATED, halt all further rework attempts for this task, stop the delegated agent"
    assert (escalated.code, escalated.terminal_status) == ("TASK008", "escalated")
    assert board_state(*rejected, *moves("T1", "ESCALATED", "IMPLEMENTING")) == "ESCALATED"
    # "ESCALATE: … present full rejection history (all 3 rejection reports) to user with options"
    assert escalated.evidence is not None
    assert [one.reason for one in escalated.evidence.rejections or []] == [f"criterion {n}" for n in range(3)]
    assert escalated.evidence.options == ["force-approve", "cancel", "reassign"]
    assert (escalated.evidence.agent, notified(escalated)) == ("Backend", "ESCALATION Backend T1 CRITICAL")
    for body in bodies_of(escalated):
        assert all(f"criterion {n}" in body for n in range(3))
        assert "decide about T1: force-approve, cancel, reassign" in body
    # "force-approve (override logged in `decisionLog.md`)"
    force = {"type": "decision.recorded", "task_id": "T1", "decision": "force-approve", "by": "ann", "reason": "enough"}
    onwards = [*moves("T1", "ESCALATED", "VALIDATION"), *moves("T1", *PATH[4:])]
    recorded = played(*rejected, force, *onwards)[1:]
    assert [(one.code, one.type) for one in recorded] == [("TASK008", "decision.recorded")]
    assert "ann decided about T1 (force-approve)" in recorded[0].message
    # "cancel task"
    assert len(played(*rejected, *moves("T1", "ESCALATED", "CANCELLED"))) == 1
    # "or reassign to a different agent"
    again = [force | {"decision": "reassign"}, given("Other", "T1"), *moves("T1", "ESCALATED", "READY", "LOCKED")]
    assert [one.type for one in played(*rejected, *again)][1:] == ["decision.recorded"]


@pytest.mark.parametrize("name", ["T", "a-ticket-with-a-long-name-"])
@pytest.mark.parametrize("done_first", [True, False])
def test_a_large_board_forgets_what_nobody_works_on_first(name: str, done_first: bool) -> None:
    # "Set task status to BLOCKED", "Set task status to ESCALATED", "Any task in `in_progress` status"
    held = [*moves("T1", "READY", "LOCKED", "IMPLEMENTING", "QA_REVIEW"), *[verdict("T1", "REJECTED")] * 3]
    stuck = moves("B1", "READY", "LOCKED", "IMPLEMENTING", *ROUND, *ROUND, *ROUND, *ROUND)
    open_task = moves("P1", "READY", "LOCKED", "IMPLEMENTING", "QA_REVIEW")
    others = [created(f"{name}{number}") for number in range(60)]
    done = [one for number in range(4) for one in moves(f"D{number}", "COMMIT", "DONE", dod=APPROVED)]
    work = [*held, *stuck, *open_task]
    raws = [*(done if done_first else []), *work, *others, *([] if done_first else done)]
    before = played(*raws)
    tried = [moves(task, "IMPLEMENTING", "QA_REVIEW")[0] for task in ("T1", "B1")]
    assert [one.code for one in played(*raws, *tried)[len(before) :]] == ["TASK008", "TASK001"]
    [skip] = played(*raws, *moves("P1", "CI_REVIEW", "COMMIT"))[len(before) :]
    assert skip.evidence is not None
    assert skip.evidence.last_valid == "QA_REVIEW"  # a forgotten task would be believed


# "Token Budget Enforcement"

BUDGET = {"max_token_budget": 100_000}  # "Each delegation packet declares `max_token_budget`"


@pytest.mark.parametrize(("tokens", "rungs"), [
    (69_000, []),  # "0-69% | Normal operation"
    (70_000, ["warning"]),  # "70-79% | WARNING: Agent warned, must prioritize completion"
    (80_000, ["restrict"]),  # "80-89% | RESTRICT: Essential operations only — no exploration"
    (90_000, ["urgent"]),  # "90-94% | URGENT: Wrap up, deliver partial results if needed"
    (95_000, ["hard_stop"]),  # "95-100% | HARD STOP: Force completion, return partial output"
    (100_001, ["violation", "violation"]),  # ">100% | VIOLATION: Task killed, escalate to ReaperOAK"
])  # fmt: skip
def test_threshold_actions(tokens: int, rungs: list[str]) -> None:
    found = played(given("Backend", "T1", **BUDGET), spent(tokens))
    assert [one.evidence.rung for one in found if one.evidence is not None] == rungs


def test_a_hard_stop_and_a_violation_are_about_one_task() -> None:
    team = [created("T2"), given("Frontend", "T2", **BUDGET), *working(), given("Backend", "T1", **BUDGET)]
    # "95-100% | HARD STOP: Force completion, return partial output"
    [stopped] = played(*team, spent(95_000))
    assert (stopped.severity, stopped.task_id, stopped.terminal_status, stopped.action) == (
        "warn", "T1", "budget_exceeded", "force_synthesis",
    )  # fmt: skip
    assert "stop Backend" in stopped.message
    assert notified(stopped) == "BUDGET_EXCEEDED Backend T1 HIGH"
    # ">100% | VIOLATION: Task killed, escalate to ReaperOAK"
    escalated, killed = played(*team, spent(100_001))
    assert (escalated.type, killed.action, killed.severity) == ("task.escalated", "kill", "warn")
    assert board_state(*team, spent(100_001)) == "ESCALATED"
    assert played(*team, spent(100_001), spent(50_000, "T2"))[2:] == []  # the other task works on


def test_session_level_budgets() -> None:
    root = {"type": "run.started", "budgets": {"maxSessionTokens": 1_000}}
    # "Total session budget tracked across all agents"
    child = {"run_id": "child", "type": "run.started", "parent_run_id": "r"}
    half = {"node": "Lead", "usage": {"total_tokens": 400}}
    levels = played(root, child, half, half | {"run_id": "child"}, half | {"usage": {"total_tokens": 1}})
    assert {one.run_id for one in levels} == {"r", "child"}
    # "ReaperOAK monitors aggregate burn rate"
    assert levels[0].evidence is not None
    assert levels[0].evidence.per_minute
    # "If session budget exceeds 80%, no new delegations permitted"
    spent_so_far = {"node": "Lead", "usage": {"total_tokens": 810}}
    assert played(root, spent_so_far, given("Backend", "T1"))[-1].type == "delegation.rejected"
    # "At 95%, all agents must wrap up current tasks"
    wrap_up = played(root, {"node": "Lead", "usage": {"total_tokens": 950}})[-1]
    assert (wrap_up.action, "wrap up" in wrap_up.message) == ("done_partial", True)


# "Human Notification", "Notification Triggers". "Guardian STOP activated" is played in tests/notify.


def test_notification_triggers() -> None:
    # "Token budget exceeds 80% for any task"
    for tokens in ([81_000], [80_000, 1_000]):  # also of a task that was at 80 % before
        [over] = played(given("Backend", "T1", **BUDGET), *map(spent, tokens))
        assert notified(over) == "BUDGET_WARNING Backend T1 MEDIUM"
    # "Session budget exceeds 70%"
    session = {"type": "run.started", "budgets": {"maxSessionTokens": 1_000}}
    for tokens in ([710], [700, 10]):
        [over] = played(session, *({"node": "Lead", "usage": {"total_tokens": one}} for one in tokens))
        assert (notified(over).split()[0], notified(over).split()[-1]) == ("BUDGET_WARNING", "MEDIUM")
    # "3 consecutive task failures"
    failed = played(*(verdict(f"T{n}", "REJECTED") for n in range(3)))[-1]
    assert (failed.code, notified(failed).split()[0]) == ("ERROR004", "FAILURE")


def test_tasks_that_the_breaker_blocks_have_failed() -> None:
    # "3 consecutive task failures"
    def fails(task: str) -> list[Raw]:
        return [{"node": "b", "task_id": task, "errors": [{"message": f"{task}{n}", "class": task}]} for n in range(3)]

    found = played(*fails("T1"), *fails("T2"), *fails("T3"))
    assert [control.code for control in found] == ["ERROR002", "ERROR002", "ERROR002", "ERROR004"]
    assert found[-1].evidence.tasks == ["T1", "T2", "T3"]
    done = moves("T9", "COMMIT", "DONE")
    assert "ERROR004" not in [control.code for control in played(*fails("T1"), *fails("T2"), *done, *fails("T3"))]


def test_an_agent_approves_no_override_of_its_own_work() -> None:
    # "Override requires explicit user approval"
    task = created("T1", ui_touching="yes")
    for by, codes in (("Frontend", ["TASK007"]), ("ann", ["TASK007"])):
        start = {**moves("T1", "LOCKED", "IMPLEMENTING")[0], "approvals": [{"by": by, "reason": "one word changes"}]}
        found = played(task, given("Frontend", "T1"), start)
        assert [control.code for control in found] == codes
        assert found[0].type == ("decision.recorded" if by == "ann" else "transition.blocked")
    held = [verdict("T1", "REJECTED")] * 3
    for by in ("Frontend", "ann"):
        decided = {"type": "decision.recorded", "task_id": "T1", "decision": "FORCE_APPROVE", "approvals": {"by": by}}
        found = played(task, given("Frontend", "T1"), *held, decided)
        assert ("decision.recorded" in [control.type for control in found]) == (by == "ann")


def test_tasks_that_stall_or_are_killed_for_their_tokens_have_failed() -> None:
    # "3 consecutive task failures": every way in which the breaker ends a task is one
    killed = [raw for n in range(3) for raw in (given(f"A{n}", f"T{n}", **BUDGET), spent(100_001, f"T{n}"))]
    found = played(*killed)
    assert [control.code for control in found][-2:] == ["BUDGET008", "ERROR004"]
    assert found[-1].evidence.tasks == ["T0", "T1", "T2"]
    work = [raw for n in range(4) for raw in moves(f"T{n}", "LOCKED", "IMPLEMENTING")]
    found = played(*work, *[{"type": "cycle.completed", "completed": 1}] * 4)
    assert [control.code for control in found] == ["STALL005"] * 4 + ["ERROR004"]
    done = moves("T9", "COMMIT", "DONE")
    assert "ERROR004" not in [control.code for control in played(*killed[:4], *done, *killed[4:])]
    mixed = played(*killed[:2], verdict("T5", "REJECTED"), *killed[2:4])
    assert (mixed[-1].code, mixed[-1].evidence.tasks) == ("ERROR004", ["T0", "T5", "T1"])


def test_each_notification_has_one_of_the_four_types() -> None:
    # "type: LOOP_DETECTED | BUDGET_WARNING | STALL | FAILURE"; what asks for nothing has none
    assert set(get_args(NotificationType)) - set(SEED_TYPES) == {"PAUSE", "CLEAR", "WATCHED"}
    assert set(SEED_TYPES.values()) == {"LOOP_DETECTED", "BUDGET_WARNING", "STALL", "FAILURE"}
    refused = played(created("T1", module="billing"), *moves("T1", "LOCKED", "IMPLEMENTING"))[0]
    assert '"seed_type":"STALL"' in bodies_of(refused)[1]


def test_above_80_percent_each_delegation_is_rejected() -> None:
    # "If session budget exceeds 80%, no new delegations permitted"
    found = played(
        {"type": "run.started", "session_id": "S", "budgets": {"maxSessionTokens": 1000}},
        {"node": "lead", "output": "w", "usage": {"total_tokens": 801}},
        given("A", "T1"), given("B", "T2"), given("B", "T3"),
    )  # fmt: skip
    assert [one.type for one in found if one.code == "BUDGET009"] == ["budget.level"] + ["delegation.rejected"] * 3


def test_turns_without_a_task_count_for_the_only_one_of_their_agent() -> None:
    # "Agents MUST track cumulative token usage against budget"
    found = played(
        given("backend", "T1", max_token_budget=1000),
        *moves("T1", "READY", "LOCKED", "IMPLEMENTING", agent="backend"),
        {"node": "backend", "output": "x", "usage": {"total_tokens": 1200}},
    )
    [halt] = [one for one in found if one.code == "BUDGET008" and one.type != "task.escalated"]
    assert "T1 has used 1200 of its 1000 tokens" in halt.message


def test_a_budget_that_is_just_exceeded_is_not_said_to_be_at_100_percent() -> None:
    # ">100% | VIOLATION: Task killed, escalate to ReaperOAK"
    found = played(given("backend", "T1", max_token_budget=1000), spent(1001))
    assert [one.message for one in found if one.type != "task.escalated"] == [
        "Task T1 has used 1001 of its 1000 tokens (101 %), level VIOLATION: the task is killed and escalated."
    ]


def test_a_state_that_the_board_lacks_is_not_named() -> None:
    # "Task status oscillates between two states ≥ 3 times"
    to = [{"type": "task.transition", "task_id": "T1", "to": state} for state in ("FOO", "BAR", "FOO") * 3]
    message = next(one.message for one in played(*to) if one.code == "TASK001")
    assert message.startswith("T1 returned to FOO for the third time")


def test_equal_words_about_different_results_are_no_repeat() -> None:
    # "Agent produces functionally identical output ≥ 2 consecutive times"
    done = [
        {"node": "backend", "task_id": "T1", "output": "Done.", "structured_output": {"files": [f"{n}.py"]}}
        for n in "ab"
    ]
    assert played(*done) == []
    assert [one.code for one in played(done[0], done[0])] == ["LOOP001"]


def test_the_same_artifact_twice_is_a_stall() -> None:
    # "Agent produces functionally identical output ≥ 2 consecutive times"; "Halt agent, set task status to STALLED"
    patches = [{"node": "backend", "task_id": "T1", "output": words, "artifact": "+a"} for words in ("One.", "Two.")]
    [halt] = played(*patches)
    assert (halt.code, halt.severity, halt.terminal_status) == ("STALL001", "halt", "stalled")
    for other in ({"task_id": "T2"}, {"tool_calls": [{"name": "Read", "args": {"file": "b"}, "result": "text"}]}):
        assert played(patches[0], patches[1] | other) == []


# "Validator issues `REJECTED` verdict for the same task ≥ 3 times": each task, on a board of a usual size.


@pytest.mark.parametrize("name", ["PROJ-{}", "6f9619ff-8b86-d011-b42d-00c04fc964{:02}"])
def test_each_of_twelve_tasks_is_escalated_however_long_the_reports_are(name: str) -> None:
    tasks = [name.format(number) for number in range(12)]
    why = "The acceptance criteria about error handling are not met in round {}."
    rounds = [verdict(task, "REJECTED", reason=why.format(n)) for n in range(3) for task in tasks]

    found = played(*(created(task, state="QA_REVIEW") for task in tasks), *rounds)

    assert [one.task_id for one in found if one.code == "TASK008"] == tasks


def test_no_ticket_of_twelve_begins_without_its_checklist() -> None:
    tasks = [f"6f9619ff-8b86-d011-b42d-00c04fc964{number:02}" for number in range(12)]

    found = played(
        *(created(task, module=f"src/components/module_{number}") for number, task in enumerate(tasks)),
        *(move for task in tasks for move in moves(task, "READY", "LOCKED", "IMPLEMENTING")),
    )

    assert [one.code for one in found] == ["TASK006"] * 12


@pytest.mark.parametrize("cause", ["unknown", "TBD", "n/a", "unclear", "investigating"])
def test_a_word_that_says_that_nothing_is_known_is_no_root_cause(cause: str) -> None:
    swings = moves("T1", "IMPLEMENTING", *ROUND * 3)
    retry = moves("T1", "BLOCKED", "IMPLEMENTING", evidence={"root_cause": cause})

    assert len(played(*working(), *swings, *retry)) == 2


def test_a_cycle_that_names_a_refused_task_as_completed_has_completed_none() -> None:
    skip = moves("T1", "IMPLEMENTING", "DONE")
    ended = {"type": "cycle.completed", "transitions": [{"task_id": "T1", "to": "DONE"}]}

    assert [one.code for one in played(created("T1", state="IMPLEMENTING"), *skip, ended)] == ["TASK004", "STALL006"]


OTHERS: list[Raw] = [
    {"structured_output": {"files": ["b.py"], "summary": "moved the parser"}}, {"artifact": {"b.py": "x = 1"}},
    {"docs": "# Parser"}, {"output": "The parser is moved."},
]  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
def test_outputs_with_another_one_in_between_are_not_consecutive(other: Raw) -> None:
    # "Agent produces functionally identical output ≥ 2 consecutive times"
    said: Raw = {"node": "Backend", "output": "I have fixed the login form."}
    assert played(said, {"node": "Backend", **other}, said) == []
    assert [one.code for one in played(said, {"node": "Backend", **other}, said, said)] == ["LOOP001"]


@pytest.mark.parametrize("reports", [
    [{"findings": [{"id": name}]} for name in ("alpha", "beta", "gamma")],
    [{"tests": {"failed": [name], "passed": 8, "total": 9}} for name in ("alpha", "beta", "gamma")],
])  # fmt: skip
def test_the_same_words_about_other_findings_are_no_identical_output(reports: list[Raw]) -> None:
    # "Agent produces functionally identical output": what it reports differs
    said: Raw = {"node": "QA", "output": "Rejected, see findings."}
    assert "LOOP001" not in [one.code for one in played(*(said | report for report in reports))]
    assert "LOOP001" in [one.code for one in played(*[said | reports[0]] * 2)]


@pytest.mark.parametrize(("before", "target", "task", "code"), [
    ("pending", "IMPLEMENTING", {"module": "billing"}, "TASK006"),
    ("", "IMPLEMENTING", {"module": "billing"}, "TASK006"),
    ("TODO", "IMPLEMENTING", {"ui_touching": True}, "TASK007"),
    ("", "IMPLEMENTING", {"ui_touching": True}, "TASK007"),
    ("TESTING", "VALIDATION", {}, "TASK005"),
    ("", "VALIDATION", {}, "TASK005"),
])  # fmt: skip
def test_a_gate_is_asked_whichever_state_the_ticket_comes_from(before: str, target: str, task: Raw, code: str) -> None:
    # "Agent enters IMPLEMENTING state for a ticket modifying a module that has no passing initialization checklist"
    move = {"type": "task.transition", "task_id": "T1", "from": before, "to": target, **task}
    refused = played(given("Backend", "T1"), move)
    assert [one.code for one in refused] == [code]
    assert board_state(given("Backend", "T1"), move) == "REWORK"


@pytest.mark.parametrize(("before", "target"), [("pending", "QA_REVIEW"), ("", "CI_REVIEW"), ("TESTING", "DONE")])
def test_a_board_is_joined_behind_its_gates(before: str, target: str) -> None:
    move = {"type": "task.transition", "task_id": "T1", "from": before, "to": target, "module": "m"}
    assert played(move) == []
    assert played(move | {"evidence": {"ci": False}}) == []  # whether it goes forward is not known


@pytest.mark.parametrize("early", [
    [{"type": "task.transition", "task_id": "T1", "to": "DONE", "dod": APPROVED}],  # a skip that is refused
    [{"type": "task.transition", "task_id": "T1", "to": "LOCKED", "dod": APPROVED}],  # before any work
])  # fmt: skip
def test_a_report_of_no_work_opens_no_gate(early: list[Raw]) -> None:
    # "no DoD report exists": what came before the work began is none of it
    found = played(created("T1"), *early, *moves("T1", *PATH[:5]))
    assert "TASK005" in [one.code for one in found]


def test_the_report_of_a_refused_move_is_none_of_the_rework() -> None:
    refused = {"type": "task.transition", "task_id": "T1", "from": "REWORK", "to": "VALIDATION", "dod": APPROVED}
    again = moves("T1", "REWORK", "IMPLEMENTING", "QA_REVIEW", "VALIDATION")
    found = played(*working(), *moves("T1", "IMPLEMENTING", "QA_REVIEW", "REWORK"), refused, *again)
    assert [one.code for one in found] == ["TASK004", "TASK005"]
    reviewed = {"type": "task.transition", "task_id": "T1", "to": "QA_REVIEW", "dod": APPROVED}
    fine = [*moves("T1", "REWORK", "IMPLEMENTING"), reviewed, *moves("T1", "QA_REVIEW", "VALIDATION")]
    assert played(*working(), *moves("T1", "IMPLEMENTING", "QA_REVIEW", "REWORK"), *fine) == []


def test_a_status_that_swings_is_blocked_although_the_board_refuses_the_way_back() -> None:
    # "Task status oscillates between two states ≥ 3 times"
    swings = moves("T1", "IMPLEMENTING", *("QA_REVIEW", "IMPLEMENTING") * 3, "QA_REVIEW")
    blocked = played(*working(), *swings)[-1]
    assert (blocked.code, blocked.terminal_status) == ("TASK001", "blocked")
    assert "from IMPLEMENTING to QA_REVIEW for the third time" in blocked.message
    repeated = [*moves("T1", "IMPLEMENTING", "QA_REVIEW"), *moves("T1", "QA_REVIEW", "IMPLEMENTING") * 5]
    assert {one.code for one in played(*working(), *repeated)} == {"TASK004"}  # the same attempt again is no swing


def test_a_list_of_files_is_the_design() -> None:
    files = [f"docs/uiux/login/{name}.png" for name in (
        "mockup", "interaction-spec", "component-hierarchy", "state-variations", "accessibility-checklist",
    )]  # fmt: skip
    design = [created("D1", kind="UIDesigner"), *moves("D1", "COMMIT", "DONE")]
    move = {"type": "task.transition", "task_id": "T1", "to": "IMPLEMENTING", "evidence": files}
    start = [*design, created("T1", ui_touching=True, depends_on=["D1"]), *moves("T1", "READY", "LOCKED")]
    assert played(*start, move) == []


def test_a_recommendation_says_what_opens_the_gate() -> None:
    # "recommendation: <suggested action>"
    refused = played(*working(), *moves("T1", "IMPLEMENTING", "QA_REVIEW", "VALIDATION"))[-1]
    body = bodies_of(refused)[0]
    assert "T1 stays in REWORK: move it to VALIDATION, through the states in their order, with dod report" in body
    assert "approval" not in body  # it would not open this gate


def test_a_halt_names_the_task_that_it_stalls() -> None:
    # "set task status to STALLED": also where only its sentence is read
    assert played(*[call()] * 3)[-1].message.endswith(" T1 is stalled.")


@pytest.mark.parametrize("before", ["BLOCKED", "STALLED", "FAILED", "ESCALATED", "VALIDATION"])
@pytest.mark.parametrize("known", [True, False])
def test_no_failing_report_passes_the_review_from_a_state_that_was_not_seen_before(before: str, known: bool) -> None:
    # "advancement past QA_REVIEW attempted when DoD report has any item with `status: false` … or `verdict != …`"
    report = {"verdict": "REJECTED", "items": [{"name": "tests", "status": False}]}
    for target in ("VALIDATION", "DOCUMENTATION", "CI_REVIEW", "COMMIT", "DONE"):
        start = [created("T1", state=before)] if known else []
        step = {"type": "task.transition", "task_id": "T1", "to": target, "dod": report}
        found = played(*start, step | ({} if known else {"from": before}))
        assert found or target == before, target
    unreviewed = {"type": "task.transition", "task_id": "T1", "to": "VALIDATION"}  # "or no DoD report exists"
    found = played(*start, unreviewed | ({} if known else {"from": before}))
    assert found or before == "VALIDATION"


@pytest.mark.parametrize("tasks", [8, 9, 32])
def test_each_of_many_tasks_has_its_budget(tasks: int) -> None:
    # "Token budget exceeds 80% for any task"; ">100% VIOLATION: Task killed, escalate"
    names = [f"T{n}" for n in range(tasks)]
    for name in (names[0], names[-1]):
        given_out = [given(f"agent{n}", one, max_token_budget=1_000) for n, one in enumerate(names)]
        found = played(*map(created, names), *given_out, *[spent(300, name)] * 5)
        assert "task.escalated" in {one.type for one in found if one.code == "BUDGET008"}


def test_a_design_ticket_may_stand_anywhere_among_the_dependencies() -> None:
    # "UI-touching ticket enters IMPLEMENTING without a completed UIDesigner dependency ticket"
    design = [created("D1", kind="UIDesigner"), *moves("D1", "COMMIT", "DONE")]
    others = [f"O{n}" for n in range(9)]
    files = ("mockup", "interaction-spec", "component-hierarchy", "state-variations", "accessibility-checklist")
    ticket = created("T1", ui_touching=True, depends_on=[*others, "D1"])
    move = {"type": "task.transition", "task_id": "T1", "to": "IMPLEMENTING", "artifacts": list(files)}
    assert played(*design, ticket, *moves("T1", "READY", "LOCKED"), move) == []


@pytest.mark.parametrize(("tasks", "name"), [(32, "T-{}"), (16, "0f00c0de-{:04}-4000-8000-000000000000")])
def test_each_of_many_tasks_is_escalated_after_its_third_rejection(tasks: int, name: str) -> None:
    # "REJECTED ≥ 3 times": "set task status to ESCALATED"
    names = [name.format(n) for n in range(tasks)]
    start = [event for one in names for event in (created(one), *moves(one, "LOCKED", "IMPLEMENTING", "QA_REVIEW"))]
    found = played(*start, *(verdict(one, "REJECTED", reason=f"no {n}") for n in range(3) for one in names))
    assert {one.task_id for one in found if one.code == "TASK008"} == set(names)


@pytest.mark.parametrize("agents", [1, 4, 5])
def test_the_same_call_within_ten_steps_of_an_agent_is_found_beside_others(agents: int) -> None:
    # "Same tool called with identical arguments ≥ 3 times within 10 steps"
    def step(agent: int, n: int) -> Raw:
        path = "a.py" if agent == 0 and n % 4 == 0 else f"{agent}-{n}.py"
        return call(path=path) | {"node": f"agent{agent}", "task_id": f"T{agent}"}

    found = played(*(step(agent, n) for n in range(9) for agent in range(agents)))
    assert [one.code for one in found if one.severity == "halt"] == ["LOOP003"]


def test_the_same_call_is_found_among_many_parallel_ones() -> None:
    def step(n: int) -> Raw:
        paths = ["a.py", *(f"{n}-{m}.py" for m in range(100))]
        return {"node": "Backend", "tool_calls": [call(path=path)["tool_calls"][0] for path in paths]}

    found = played(*map(step, range(40)))  # of each turn some are recorded, first those that were made before
    assert "LOOP003" in {one.code for one in found if one.severity == "halt"}
