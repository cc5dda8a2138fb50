"""Seed 003, repair loops, played under the preset `repair`; the line of the seed stands beside each assertion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, strategies as st

from streamproc import Monitor
from streamproc.fingerprint import fingerprint
from streamproc.model.raw_events import parse_raw
from streamproc.model.wire import encode
from streamproc.policy import load_policy
from tests.feeding import Feed, Raw, decisions, short

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.core.decision import Decision

REPAIR: Final = load_policy("repair")
EDIT: Final[Raw] = {"node": "repair", "output": "I changed the template."}


def failed(*messages: str, **more: Any) -> Raw:
    return {"node": "executor", "errors": [{"message": message, **more} for message in messages]}


def called(error: str, node: str = "executor", tool: str = "run_workflow", **more: Any) -> Raw:
    return {"node": node, "tool_calls": [{"name": tool, "args": more.pop("args", {}), "error": error, **more}]}


def halts(raws: list[Raw]) -> list[Decision]:
    return [one for one in decisions(raws, REPAIR) if one.severity == "halt"]


def repaired(*attempts: Raw) -> list[Raw]:
    """Return attempts with a repair after each but the last."""
    return [turn for n, one in enumerate(attempts) for turn in (one, EDIT | {"output": f"Repair {'x' * n}."})][:-1]


def test_1_a_repair_that_makes_progress() -> None:
    # "Error 1: "Template ${foo.bar} not found"; Error 2: "Command failed with exit code 1"; Different signature →
    # Continue trying ✓"
    assert halts(repaired(failed("Template ${foo.bar} not found"), failed("Command failed with exit code 1"))) == []


def test_2_a_repair_that_is_stuck() -> None:
    # "Error 1: "API error: channel_not_found"; Repair attempts fix; Error 2: "API error: channel_not_found"; Same
    # signature → Stop trying ✓"
    [halt] = halts(repaired(*[failed("API error: channel_not_found")] * 9))
    assert (halt.code, short(halt).at, halt.halt_reason) == ("ERROR001", 2, "repeated_error")
    assert halt.action == "halt"  # "return result  # Stop trying, we're stuck"
    assert halt.message.startswith("Same error after repair attempt, stopping: executor reported the same error in 2 ")


def test_nodes_that_fail_alike_before_the_first_repair_are_one_attempt() -> None:
    # "Does NOT prevent the first repair attempt"; "Multiple nodes fail"
    slack = [failed("API error: channel_not_found") | {"node": node} for node in ("slack_a", "slack_b", "slack_c")]
    assert halts(slack) == []
    assert halts([*slack, EDIT]) == []
    assert [short(one).at for one in halts([*slack, EDIT, *slack])][:1] == [4]
    assert halts([*slack, *slack])


def test_the_same_error_of_another_task_is_no_failed_repair() -> None:
    # "Tracks the error signature from the previous attempt": of what is repaired, not of the ticket beside it
    first, second = [{"task_id": task} | failed("API error: channel_not_found") for task in ("T1", "T2")]
    assert halts(repaired(first, second)) == []
    assert [short(one).at for one in halts(repaired(second, first, first))] == [4]


def test_3_several_nodes_fail_and_the_first_three_messages_count() -> None:
    # "Multiple nodes fail with different errors. Signature captures first 3. If signature unchanged after repair →
    # Stop ✓"
    assert [short(one).at for one in halts(repaired(failed(*"abcd"), failed(*"abce")))] == [2]
    assert halts(repaired(failed(*"abc"), failed(*"abd"))) == []


def test_only_the_first_50_characters_count() -> None:
    # "False positives … Mitigation: Only compare first 50 chars of messages"
    head = "Validation failed in the section of the orders, row"
    assert len(halts(repaired(failed(f"{head} one"), failed(f"{head} two")))) == 1
    assert len(halts(repaired(called(f"{head} one"), called(f"{head} two")))) == 1


def test_the_first_repair_is_never_prevented() -> None:
    # "Does NOT prevent the first repair attempt"
    for attempt in (failed("boom"), failed("HTTP 503"), called("boom"), called("HTTP 503")):
        assert halts([attempt, EDIT]) == []


@pytest.mark.parametrize(
    "message",
    ["HTTP 500 Internal Server Error", "HTTP 503 Service Unavailable", "HTTP 429 Too Many Requests", "read timed out"],
)
@pytest.mark.parametrize("report", [failed, called])
def test_the_rule_is_universal(report: Any, message: str) -> None:
    # "Comparing signatures is universal - works for any error type"; "Does NOT classify errors as repairable"
    assert [short(one).at for one in halts(repaired(*[report(message)] * 4))] == [2]


@pytest.mark.parametrize("report", [failed, called])
def test_a_retry_at_once_is_not_a_repair(report: Any) -> None:
    # "Same error after repair attempt": nothing came in between
    assert [one for one in halts([report("HTTP 429 Too Many Requests")] * 5) if one.code == "ERROR001"] == []


def test_an_error_that_is_declared_not_retryable_is_believed() -> None:
    # "If repair can't fix something, the error message won't change"
    raws = [failed("HTTP 503 Service Unavailable", retryable=False)] * 2
    assert [short(one) for one in decisions(raws)] == [("ERROR001", "halt", 1)], "under `standard`, too"
    calls = [called("HTTP 503", retryable=False, args={"n": n}) for n in range(9)]
    assert "INFRA001" not in {one.code for one in decisions(calls)}
    declared = [failed("no channel", retryable=True)] * 5
    assert decisions(declared) == []


def test_failures_that_are_reported_as_calls_are_attempts() -> None:
    # "The repair system can attempt up to 27 repairs in pathological cases"; "Loop stops after 1-2 attempts"
    [halt, *_] = halts(repaired(*[called("API error: channel_not_found")] * 9))
    assert (halt.code, short(halt).at) == ("ERROR001", 2)
    assert halt.message.endswith("run_workflow failed (the text of a call's error is not published)")


def test_a_monitor_names_the_error_of_a_failed_call_with_its_secrets_redacted() -> None:
    monitor, raws = Monitor(policy="repair"), repaired(*[called("channel_not_found: password=hunter2hunter2")] * 2)
    [halt] = [one for raw in raws for one in monitor.feed({"run_id": "r", **raw}) if one.code == "ERROR001"]
    assert halt.evidence is not None
    assert (halt.evidence.first_error or "").startswith("channel_not_found")
    assert "hunter2" not in halt.message


def test_the_text_of_a_failed_call_does_not_leave_the_publisher() -> None:
    raw = parse_raw({"run_id": "r", **called("channel_not_found in the order of Ada Lovelace")})
    assert b"Lovelace" not in encode(fingerprint(raw))


def edit(n: int, tool: str = "edit") -> Raw:
    return {"node": "agent", "tool_calls": [{"name": tool, "args": {"line": n}, "result": f"changed line {n}"}]}


def test_a_lone_agent_that_repairs_by_calls_is_stopped_too() -> None:
    stuck = [turn for n in range(9) for turn in (called("channel_not_found", "agent"), edit(n))]
    assert [(one.code, short(one).at) for one in halts(stuck)][:1] == [("ERROR001", 2)]
    reported = [turn for n in range(9) for turn in ({"node": "agent", "errors": ["channel_not_found"]}, edit(n))]
    assert [(one.code, short(one).at) for one in halts(reported)][:1] == [("ERROR001", 2)]


def test_a_repaired_workflow_has_other_arguments_and_is_the_same_attempt() -> None:
    first, second = called("channel_not_found", args={"version": 1}), called("channel_not_found", args={"version": 2})
    assert len(halts(repaired(first, second))) == 1


def test_an_attempt_that_succeeds_ends_the_loop() -> None:
    # "if result.success: return result"
    well: Raw = {"node": "executor", "tool_calls": [{"name": "run_workflow", "args": {}, "result": "done"}]}
    assert halts([called("boom"), EDIT, well, EDIT, called("boom")]) == []
    assert halts([failed("boom"), EDIT, {"node": "executor", "errors": []}, failed("boom")]) == []


def test_a_tool_that_works_in_between_is_not_stuck() -> None:
    raws = [turn for n in range(5) for turn in (called("no match", "agent", "edit", args={"n": n}), edit(n))]
    assert [one for one in halts(raws) if one.code == "ERROR001"] == []


def test_the_same_call_that_fails_alike_is_stopped_although_its_tool_works() -> None:
    test: Raw = called("1 failed: test_send", "agent", "shell", args={"cmd": "pytest"})
    assert [short(one).at for one in halts([test, edit(1, "shell"), test]) if one.code == "ERROR001"] == [2]


def test_the_output_of_a_program_counts_as_a_whole() -> None:
    # "Genuine repairs still work: Different errors allow continuation"
    head = "===== test session starts =====\nplatform linux -- Python 3.12, pytest-8\n"
    runs = [called(f"{head}FAILED test_{name}\n1 failed", "agent", args={"cmd": "pytest"}) for name in ("a", "b", "b")]
    assert [short(one).at for one in halts([runs[0], edit(1), runs[1], edit(2), runs[2]])] == [4]


def test_another_tool_that_fails_alike_is_another_attempt() -> None:
    raws = [called("not found", "agent", tool, args={"n": n}) for n, tool in enumerate(("read", "run", "list"))]
    assert [one for one in halts(raws) if one.code == "ERROR001"] == []


def test_measured_progress_is_progress() -> None:
    tests = [{"node": "executor", "errors": ["tests failed"], "tests": {"failed": list("abcd")[n:]}} for n in range(4)]
    assert [one for one in halts(repaired(*tests)) if one.code == "ERROR001"] == []


def test_under_standard_rate_limits_and_failed_calls_are_left_to_other_rules() -> None:
    raws = repaired(*[failed("HTTP 429 Too Many Requests")] * 4)
    assert [one for one in decisions(raws) if one.code == "ERROR001"] == []
    raws = repaired(*[called("boom")] * 2)
    assert [one for one in decisions(raws) if one.code == "ERROR001"] == []


def test_attempts_survive_a_restart() -> None:
    feed, found = Feed(REPAIR), []
    for raw in repaired(*[called("boom")] * 2):
        found += feed.raw(raw)
        feed.restart()
    assert [(one.code, one.severity) for one in found] == [("ERROR001", "halt")]


def test_one_of_several_nodes_that_failed_is_repaired() -> None:
    # "Multiple nodes fail with different errors": the "signature captures first 3"; "Different signature → continue"
    first = [{"node": "fetch", "errors": ["F1"]}, {"node": "parse", "errors": ["P1"]}]
    then = [EDIT, {"node": "fetch", "output": "42 rows"}, {"node": "parse", "errors": ["P1"]}]
    assert decisions([*first, *then], REPAIR) == []
    again = decisions([*first, *then, EDIT, {"node": "fetch", "output": "42 rows"}, then[-1]], REPAIR)
    assert [one.severity for one in again][-1] == "halt"


def test_of_several_nodes_that_failed_another_is_repaired_than_the_one_that_reports_first() -> None:
    # "Multiple nodes fail with different errors": the signature of an attempt is that of all of them
    fetch, parse, fetched = {"node": "fetch", "errors": ["F1"]}, {"node": "parse", "errors": ["P1"]}, {
        "node": "fetch", "output": "42 rows",
    }  # fmt: skip
    repaired_one = [fetch, parse, EDIT, parse, fetched]
    assert decisions(repaired_one, REPAIR) == []
    stuck: dict[int, list[Raw]] = {
        6: [*repaired_one, EDIT, parse],  # "Same signature"
        4: [fetch, parse, EDIT, parse, fetch],
        -4: [fetch, parse, EDIT, fetch, parse],
        5: [fetch, parse, EDIT, parse, EDIT, parse],  # the other node did not come to its turn
        2: [fetch, parse, fetch, parse],
    }
    for at, raws in stuck.items():
        assert [short(one).at for one in halts(raws)][:1] == [abs(at)], raws


@pytest.mark.parametrize("between", [[], [{"node": "fetch", "output": "200 rows"}]])
def test_a_failure_is_compared_with_that_of_the_attempt_before_whichever_node_it_was_of(between: list[Raw]) -> None:
    # "Error 1: "Template ${foo.bar} not found"; Error 2: "Command failed with exit code 1"; Different signature"
    template, command = {"node": "fetch", "errors": ["Template ${foo.bar} not found"]}, {
        "node": "parse", "errors": ["Command failed with exit code 1"],
    }  # fmt: skip
    swinging = [template, EDIT, *between, command, EDIT, template]
    assert decisions(swinging, REPAIR) == []
    assert [one.code for one in halts([*swinging, EDIT, template])] == ["ERROR001"]


def of_attempts(*attempts: list[tuple[str, str]]) -> tuple[list[Raw], list[int]]:
    """Return the turns of attempts, with a repair after each, and the last turn of each attempt."""
    raws: list[Raw] = []
    ends = []
    for number, outcomes in enumerate(attempts):
        for node, error in outcomes:
            done = {"errors": [error]} if error else {"output": f"{'x' * number} rows", "errors": []}
            raws.append({"node": node, **done})
        ends.append(len(raws) - 1)
        raws.append(EDIT | {"output": f"Repair {'y' * number}."})
    return raws, ends


NODES: Final = ("fetch", "parse", "store")
ERRORS: Final = ("", "Template not found", "Command failed", "No such table", "Wrong shape")


@given(attempts=st.lists(st.tuples(st.permutations(NODES), st.lists(st.sampled_from(ERRORS), min_size=3, max_size=3)),
                         min_size=2, max_size=5))  # fmt: skip
def test_no_attempt_is_halted_that_shares_no_error_with_the_one_before(attempts: list[Any]) -> None:
    # "Different signature → Continue trying": whichever nodes fail, in any order
    chosen: list[list[tuple[str, str]]] = []
    for nodes, errors in attempts:
        before = {error for _, error in chosen[-1]} if chosen else set()
        chosen.append([(node, "" if error in before else error) for node, error in zip(nodes, errors, strict=True)])
    assert halts(of_attempts(*chosen)[0]) == []


@given(first=st.permutations(NODES), then=st.permutations(NODES),
       errors=st.lists(st.sampled_from(ERRORS), min_size=3, max_size=3).filter(any))  # fmt: skip
def test_an_attempt_that_fails_as_the_one_before_is_halted_by_its_end(first: Any, then: Any, errors: Any) -> None:
    # "Same signature → Stop trying": whichever nodes fail, in any order
    failing = dict(zip(NODES, errors, strict=True))
    raws, ends = of_attempts(*([(node, failing[node]) for node in order] for order in (first, then)))
    assert [short(one).at for one in halts(raws)][:1] <= [ends[1]]
    assert halts(raws) != []


def test_an_error_of_infrastructure_after_another_artifact_is_another_attempt() -> None:
    # "Comparing signatures is universal"
    failing = [
        {"node": "executor", "errors": ["HTTP 503 Service Unavailable"], "artifact": {"w.json": f"v{n}"}}
        for n in range(2)
    ]
    assert [one.code for one in decisions(failing, REPAIR)] == ["ERROR001"]
    retried = [{"node": "executor", "errors": ["HTTP 503 Service Unavailable"]}] * 3
    assert decisions(retried, REPAIR) == []


def test_other_errors_after_each_repair_go_on_whatever_the_repair_says() -> None:
    # "Different signature → Continue trying"
    for repair in ({"structured_output": {"action": "retry"}}, {"output": "Applied the fix."}):
        raws = [
            turn for n in range(8) for turn in (failed(f"{'abcdefgh'[n] * 9} is wrong"), {"node": "repairer", **repair})
        ]
        assert [one for one in decisions(raws, REPAIR) if one.severity == "halt"] == []


def test_a_node_that_reports_no_error_any_more_makes_another_attempt_of_the_others() -> None:
    # "Multiple nodes fail with different errors"
    first = [{"node": "fetch", "errors": ["HTTP 404"]}, {"node": "parse", "errors": ["no input file"]}]
    then = [EDIT, {"node": "fetch", "output": "200 rows", "errors": []}, {"node": "parse", "errors": ["no input file"]}]
    assert decisions([*first, *then], REPAIR) == []


@pytest.mark.parametrize("error", [
    {"message": "500 != 200", "class": "AssertionError"}, {"message": "AssertionError: 503 != 200"},
    {"message": "socket timed out unused", "class": "lint"}, {"message": "expected 429 too many requests, got 200"},
])  # fmt: skip
def test_what_an_assertion_says_is_no_trouble_of_the_infrastructure(error: Raw) -> None:
    # "unchanged failures": also those that speak of statuses
    raws = [
        {"node": "verifier", "errors": [error]},
        {"node": "coder", "artifact": "+a"},
        {"node": "verifier", "errors": [error]},
    ]
    [warning] = decisions(raws, load_policy("loop-safety"))
    assert warning.code == "ERROR001"


@pytest.mark.parametrize("passed", [{"errors": []}, {"output": "Valid."}])
@pytest.mark.parametrize("key", ["{n}", "channel"])
def test_the_nested_loop_of_the_seed_ends_at_its_second_runtime_error(passed: Raw, key: str) -> None:
    # "up to 27 repairs (3 runtime attempts, 3 validation attempts, 3 repair attempts)": "stop trying"
    raws: list[Raw] = []
    for n in range(3):
        raws += [failed("API error: channel_not_found"), EDIT | {"output": f"Name the channel, {n}."}]
        raws += [{"node": "validator", "errors": [f"Missing key {key.format(n='xyz'[n])}"]}, EDIT]
        raws += [{"node": "validator", **passed}]
    [halt] = [one for one in decisions(raws, REPAIR) if one.severity == "halt"][:1]
    assert (halt.code, halt.node) == ("ERROR001", "executor") or key == "channel"
    assert halt.trigger is not None
    assert halt.trigger.turn == 5


@pytest.mark.parametrize("reported", ["errors", "calls"])
@pytest.mark.parametrize("said", [{}, {"output": "It failed."}])
@pytest.mark.parametrize("repair", [
    {"output": "I repaired it."}, {"output": "I repaired it. " * 40}, {"structured_output": {"action": "retry"}}, None,
])  # fmt: skip
def test_no_run_ends_while_each_repair_changes_the_error(reported: str, said: Raw, repair: Raw | None) -> None:
    # "Different signature → Continue trying"; "Genuine repairs still work: Different errors allow continuation"
    raws: list[Raw] = []
    for n in range(20):
        message = f"{'abcdefghijklmnopqrst'[n] * 9} is wrong"
        calls = {"tool_calls": [{"name": "run_workflow", "args": {}, "error": message}]}
        raws += [{"node": "executor", **({"errors": [message]} if reported == "errors" else calls), **said}]
        raws += [{"node": "repairer", **repair}] if repair else []
    assert [one.code for one in decisions(raws, REPAIR) if one.severity == "halt"] == []


def test_new_errors_are_news_without_any_words() -> None:
    # "Different signature → Continue trying", also under the default policy
    raws = [
        turn for n in range(6) for turn in (failed(f"{'abcdef'[n] * 9} is wrong"), {"node": "r", "output": "Done."})
    ]
    assert decisions(raws, load_policy("standard")) == []
    same = [turn for _ in range(6) for turn in ({"node": "e", "output": "No."}, {"node": "r", "output": "Done."})]
    assert [one.code for one in decisions(same, load_policy("standard")) if one.severity == "halt"]


def test_an_error_that_comes_back_after_another_one_is_compared_with_the_attempt_before() -> None:
    # "Compares with current error signature"; "User sees 'Same error after repair attempt, stopping'"
    def calls(*errors: str) -> list[Raw]:
        made = [{"name": "run_workflow", "args": {}, "error": error} for error in errors]
        return [turn for call in made for turn in ({"node": "executor", "tool_calls": [call]}, EDIT)]

    assert [one for one in decisions(calls(*["no such file", "bad key"] * 3), REPAIR) if one.severity == "halt"] == []
    found = decisions(calls(*["no such file", "bad key"] * 2, "no such file", "no such file"), REPAIR)
    [halt] = [one for one in found if one.severity == "halt"]
    assert (halt.code, halt.message.partition(":")[0]) == ("ERROR001", "Same error after repair attempt, stopping")


SIDES: Final[list[Callable[[str], Raw]]] = [
    lambda _: {"progress": {"steps_passed": 0}}, lambda _: {"artifact": {"out.json": "{}"}},
    lambda step: {"tests": {"failed": [f"test_{step}"], "passed": 8, "total": 9}},
]  # fmt: skip


@pytest.mark.parametrize("side", SIDES)
def test_another_signature_goes_on_whatever_else_stands_still(side: Callable[[str], Raw]) -> None:
    # "Different signature → Continue trying"; "Genuine repairs still work"
    steps = ["upload", "parse", "merge", "render", "sign", "publish", "notify", "archive", "clean", "close"]
    assert halts(repaired(*(failed(f"Error in step {step}") | side(step) for step in steps))) == []


@pytest.mark.parametrize("named", [(0, 2, 4), (2, 4), (4,), (0,)])
def test_an_attempt_that_names_no_task_is_one_of_the_only_task(named: tuple[int, ...]) -> None:
    # "Compares with current error signature. If identical, stops repair attempts"
    raws = repaired(*[failed("API error: channel_not_found")] * 4)
    tasks = [turn | {"task_id": "T1"} if n in named else turn for n, turn in enumerate(raws)]
    assert halts(tasks)[0].turn == 2


def test_the_error_of_another_task_is_no_repeat_of_one_that_names_none() -> None:
    first, other = failed("boom") | {"task_id": "T1"}, failed("boom") | {"task_id": "T2"}
    assert halts(repaired(first, other, failed("boom"))) == []  # of which of the two it is, nothing says


def test_of_several_nodes_that_failed_one_fails_otherwise() -> None:
    # "Multiple nodes fail with different errors", "Different signature → Continue trying"
    def attempt(fetched: str, sent: str) -> list[Raw]:
        return [{"node": "fetch", "errors": [fetched]}, {"node": "send", "errors": [sent]}, EDIT]

    first = attempt("no input", "no channel")
    assert halts([*first, *attempt("no table", "no channel")]) == []
    assert halts([*first, *attempt("no input", "no token")]) == []
    assert halts([*first, *attempt("no table", "no channel") * 2])[0].turn == 7  # the same as in the attempt before


def test_one_failing_test_does_not_hide_that_the_errors_change() -> None:
    # "Genuine repairs still work: Different errors allow continuation"
    tested = {"node": "tester", "tests": {"failed": ["test_end_to_end"], "passed": 3, "total": 4}}
    assert halts([turn for n in range(9) for turn in (failed(f"error {'x' * n}"), EDIT, tested)]) == []


def test_a_call_of_the_repair_that_fails_is_not_what_the_attempt_ends_in() -> None:
    # "If identical, stops repair attempts": the node that runs the workflow says how each attempt ends
    raws = []
    for n in range(6):
        lint = called(f"lint: {'x' * n} is unused", node="repair", tool="lint", args={"n": n})
        raws += [failed("API error: channel_not_found"), EDIT | {"output": f"Repair {'x' * n}."}, lint]
    assert short(halts(raws)[0]).at <= 6


def test_a_call_that_is_made_again_in_its_turn_and_answered_has_not_failed() -> None:
    # "Genuine repairs still work: Different errors allow continuation"
    retried = [{"name": "llm", "args": {}, "error": "bad json"}, {"name": "llm", "args": {}, "result": "a patch"}]
    messages = ("Template not found", "Command failed", "No url given", "Token absent", "Wrong schema")
    assert halts([turn for one in messages for turn in (failed(one), EDIT | {"tool_calls": retried})]) == []


@pytest.mark.parametrize(("names", "stopped"), [(("step-1", "step-2"), False), (("attempt-1", "attempt-2"), True)])
def test_numbered_steps_are_no_attempts(names: tuple[str, str], stopped: bool) -> None:
    # "Does NOT prevent the first repair attempt"
    assert bool(halts([failed("API error: channel_not_found") | {"node": name} for name in names])) == stopped
