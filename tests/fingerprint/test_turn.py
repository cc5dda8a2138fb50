"""Fingerprinting of raw events: which evidence becomes which numbers, and which content is not sent."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from streamproc.errors import InvalidEvent
from streamproc.fingerprint import fingerprint, read_event
from streamproc.fingerprint.calls import looks_retryable
from streamproc.fingerprint.hash import canonical, content, h64
from streamproc.model import wire
from streamproc.model.raw_events import parse_raw

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True, print_blob=True)


def turn(**fields: Any) -> wire.Turn:
    event = fingerprint(parse_raw({"run_id": "r", "node": "n", **fields}))
    assert isinstance(event, wire.Turn)
    return event


def call(**fields: Any) -> wire.Call:
    [made] = turn(tool_calls=[{"name": "t", "args": {"n": 1}, **fields}]).calls
    return made


# What stays at home.

_marker = st.text("0123456789abcdefghijklmnopqrstuvwxyz", min_size=12, max_size=20).map("marker-{}".format)


@given(_marker, st.booleans())
@EXAMPLES
def test_no_text_of_a_turn_crosses_the_wire(marker: str, nested: bool) -> None:
    deep: Any = {"inside": [marker, {marker: marker}]} if nested else marker
    raw = {
        "run_id": "r",
        "node": "n",
        "output": f"it says {marker}",
        "structured_output": deep,
        "artifact": {f"{marker}.py": marker} if nested else f"+{marker}",
        "docs": f"# {marker}",
        "query": marker,
        "request": {"item": marker},
        "decision": {"next": "coder", "reason": marker},
        "tool_calls": [
            {"name": "t", "args": deep, "result": deep, "id": marker},
            {"name": "t", "args": 1, "error": marker},
            {"name": "t", "args": 2, "error": True, "result": deep},
        ],
        "errors": [{"message": "first"}, {"message": marker}],
        "tests": {"failed": ["a", "b", "c", f"d-{marker}"]},
        "usage": {"input_tokens": 1, marker: 2},
        marker: marker,
    }
    written = wire.encode(fingerprint(parse_raw(raw)))
    assert marker.encode() not in written
    assert marker.encode() in wire.encode(fingerprint(parse_raw(raw), include_content=True))


@given(_marker)
@EXAMPLES
def test_of_errors_only_a_redacted_excerpt_crosses_the_wire(marker: str) -> None:
    secret = turn(errors=[f"login failed: password={marker}", f"then {marker}"])
    assert marker.encode() not in wire.encode(secret)
    long = turn(errors=["x" * 120 + marker])
    assert marker.encode() not in wire.encode(long)


def test_names_test_ids_and_labels_cross_the_wire() -> None:
    written = wire.encode(
        turn(tool_calls=[{"name": "run_tests"}], tests={"failed": ["test_a"]}, labels={"team": "red"},
             errors=[{"message": "boom", "class": "Bang"}], progress={"score": 1}, model="m", provider="p")
    )  # fmt: skip
    for name in (b"run_tests", b"test_a", b"team", b"red", b"boom", b"Bang", b"score"):
        assert name in written


def test_content_is_sent_on_request() -> None:
    raw = parse_raw({"run_id": "r", "node": "n", "output": "hello", "tool_calls": [{"name": "t", "args": {"a": 1}}]})
    event = fingerprint(raw, include_content=True)
    assert isinstance(event, wire.Turn)
    assert event.content == {"output": "hello", "tool_calls": [{"name": "t", "args": {"a": 1}}]}
    assert turn(output="hello").content is None


@pytest.mark.parametrize("value", [{1, 2}, object(), 2**80, "\ud800"], ids=["set", "object", "huge", "half"])
def test_content_that_is_not_json_can_still_be_sent(value: Any) -> None:
    raw = {"run_id": "r", "node": "n", "output": "\ud800", "structured_output": value, "errors": ["\ud800"],
           "tests": {"failed": ["\ud800"]}, "tool_calls": [{"name": "t", "args": [value]}]}  # fmt: skip
    for include_content in (False, True):
        assert wire.encode(fingerprint(parse_raw(raw), include_content=include_content))


# What counts as evidence.


EMPTY = [{"output": ""}, {"output": " \n"}, {"artifact": ""}, {"artifact": {"a.py": " "}},
         {"artifact": {}},
         {"docs": "\n"}, {"query": " "}, {"structured_output": {}}, {"structured_output": []},
         {"structured_output": ""}, {"progress": {}}, {"tool_calls": []}, {"errors": None}, {"tests": None},
         {"tests": {"failed": None}}]  # fmt: skip


@pytest.mark.parametrize("empty", EMPTY, ids=str)
def test_empty_values_are_no_evidence(empty: dict[str, Any]) -> None:
    assert turn(**empty) == turn()


@pytest.mark.parametrize("value", [0, False, [0], {"a": None}])
def test_a_small_answer_is_evidence(value: Any) -> None:
    assert turn(structured_output=value).structured is not None
    assert call(result=value).outcome == wire.ANSWERED


def test_an_artifact_of_many_files_has_one_fingerprint() -> None:
    one = turn(artifact={"a.py": "x = 1", "b.py": "y = 2"}).artifact
    assert one == turn(artifact={"b.py": "y = 2", "a.py": "x = 1"}).artifact
    for other in ({"a.py": "x = 1"}, {"a.py": "y = 2", "b.py": "x = 1"}, {"a.py": "x = 1", "c.py": "y = 2"}):
        assert turn(artifact=other).artifact != one


def test_the_order_of_failing_tests_is_ignored() -> None:
    one = turn(tests={"failed": ["b", "a", " c  d "], "passed": 3, "total": 6}).tests
    assert one == turn(tests={"failed": ["c d", "a", "b", "a"], "passed": 3, "total": 6}).tests
    assert one == wire.Tests(h64("a\nb\nc d"), 3, 3, 6, ("a", "b", "c d"))


def test_counts_without_test_ids_give_a_number_but_no_set() -> None:
    assert turn(tests={"passed": 3, "total": 5}).tests == wire.Tests(0, 2, 3, 5)
    assert turn(tests={"passed": 3}).tests is None
    assert turn(tests={"failed": []}).tests == wire.Tests(0, 0)


def test_three_test_ids_are_shown_and_truncated() -> None:
    tests = turn(tests={"failed": ["x" * 500, *map(str, range(9))]}).tests
    assert (tests.failing, len(tests.sample)) == (10, 3)
    assert max(map(len, turn(tests={"failed": ["x" * 500]}).tests.sample)) == 120  # type: ignore[union-attr]


def test_an_empty_error_list_differs_from_no_report() -> None:
    assert turn().errors is None
    none = turn(errors=[]).errors
    assert (none.count, none.retryable) == (0, False)


def test_a_missing_price_is_not_zero() -> None:
    usage = turn(usage={"input_tokens": 5}).usage
    assert usage.cost_usd_micro is None
    assert turn(usage={"cost_usd": 0}).usage == wire.Usage(cost_usd_micro=0)


def test_the_scope_of_an_event_is_kept() -> None:
    scope = {"workflow": "w", "tenant": "t", "user": "u", "tier": "free", "agent": "a", "task_id": "k",
             "session_id": "s", "parent_run_id": "p", "labels": {"x": "y"}, "seq": 3, "event_id": "e"}  # fmt: skip
    event = turn(**scope)
    assert {name: getattr(event, name) for name in scope} == scope


def test_a_long_stop_command_is_truncated_not_refused() -> None:
    stop = fingerprint(parse_raw({"type": "operator.stop", "run_id": "r", "by": "b" * 9_999, "reason": "r" * 9_999}))
    assert isinstance(stop, wire.OperatorStop)
    assert (len(stop.by), len(stop.reason)) == (500, 500)


def test_an_operator_command_keeps_its_fields() -> None:
    resume = fingerprint(
        parse_raw({"type": "operator.resume", "run_id": "r", "grant": {"turns": 3, "cost": "0.5"}, "issuer": "ops"})
    )
    assert isinstance(resume, wire.OperatorResume)
    assert (resume.grant, resume.issuer) == ({"maxSteps": 3, "maxCostUsd": 500_000}, "ops")
    known = fingerprint(parse_raw({"type": "halt.acknowledged", "run_id": "r", "by": "ann", "reason": "I look at it"}))
    assert isinstance(known, wire.HaltAcknowledged)
    assert (known.by, known.reason) == ("ann", "I look at it")


# Calls.


def test_the_key_of_a_call_is_its_name_and_arguments() -> None:
    assert call().key == call(result="x", id="7").key == call(args='{"n": 1}').key == call(args='{ "n":1 }').key
    assert len({call().key, call(args={"n": 2}).key, call(args={"n": "1"}).key, call(name="u").key}) == 4


@pytest.mark.parametrize(("fields", "outcome"), [
    ({}, wire.NO_ANSWER), ({"result": None}, wire.NO_ANSWER), ({"result": ""}, wire.ANSWERED),
    ({"result": "ok", "error": None}, wire.ANSWERED), ({"result": "ok", "error": ""}, wire.ANSWERED),
    ({"result": "ok", "error": False}, wire.ANSWERED), ({"result": "ok", "error": 0}, wire.ANSWERED),
    ({"result": "ok", "error": []}, wire.ANSWERED), ({"result": "ok", "error": {}}, wire.ANSWERED),
    ({"error": "boom"}, wire.FAILED), ({"error": True, "result": "boom"}, wire.FAILED), ({"error": True}, wire.FAILED),
    ({"error": {"code": 7}}, wire.FAILED), ({"error": 1, "result": "x"}, wire.FAILED_RUN),
    ({"error": "exit code 1", "result": "3 failed, 9 passed"}, wire.FAILED_RUN),
    ({"error": "Exit code 1\n3 failed, 9 passed"}, wire.FAILED_RUN),
    ({"error": "Command exited with status 2: 3 failed"}, wire.FAILED_RUN), ({"error": "exit code 1"}, wire.FAILED_RUN),
    ({"error": "exit code 2"}, wire.FAILED),
    ({"error": "boom", "result": "boom"}, wire.FAILED),
    ({"error": "no such file", "result": "Error: no such file\n"}, wire.FAILED),
    ({"error": "exit code 127", "result": "foo: not found"}, wire.FAILED),
    ({"error": "HTTP 503", "result": "x"}, wire.FAILED_RETRYABLE),
    ({"error": "HTTP 429 Too Many Requests"}, wire.FAILED_RETRYABLE),
    ({"error": {"status": 503}}, wire.FAILED_RETRYABLE),
    ({"error": True, "result": "503 Service Unavailable"}, wire.FAILED_RETRYABLE),
    ({"error": "boom", "retryable": True}, wire.FAILED_RETRYABLE),
    ({"result": "HTTP 429 Too Many Requests"}, wire.FAILED_RETRYABLE),
    ({"result": "Error code: 503"}, wire.FAILED_RETRYABLE),
    ({"result": "timed out: bash has not returned"}, wire.FAILED_RETRYABLE),
    ({"result": "rate limited, try again in 8 s"}, wire.FAILED_RETRYABLE),
    ({"result": "status: 500 of 900 files done"}, wire.ANSWERED), ({"result": "500 1200"}, wire.ANSWERED),
    ({"result": "In the log: HTTP 429 Too Many Requests"}, wire.ANSWERED),
    ({"result": "HTTP 503 is what it says when " + "it is busy, " * 20}, wire.ANSWERED),
], ids=str)  # fmt: skip
def test_the_outcome_of_a_call(fields: dict[str, Any], outcome: int) -> None:
    assert call(**fields).outcome == outcome


def test_a_result_counts_beside_an_error() -> None:
    """A test command fails with the same exit code, but its output reports fewer failing tests."""
    three, two = call(error="exit code 1", result="3 failed"), call(error="exit code 1", result="2 failed")
    assert three.exact != two.exact
    assert three.norm != two.norm
    assert three == call(error="exit code 1", result="3 failed")


def test_a_result_and_an_error_with_the_same_text_differ_by_outcome() -> None:
    assert call(result="boom").exact == call(error="boom").exact
    assert call(result="boom") != call(error="boom")


@pytest.mark.parametrize(("value", "has_text"), [
    ({"verdict": "no_consensus", "score": 6, "approved": False, "next": None}, False), ({"next": "researcher"}, False),
    ({"file": "a.py", "patch": "+return total"}, True), ({"code": "x=" + "1" * 30}, True), ({"findings": ["a"]}, True),
    ([1, 2], True), ("no", False), (0.7, False), ("the tests still fail", True),
])  # fmt: skip
def test_a_verdict_has_no_text(value: Any, has_text: bool) -> None:
    structured = turn(structured_output=value).structured
    assert (structured.size > 0) is has_text


def test_a_result_is_hashed_in_canonical_form() -> None:
    assert call(result={"a": 1, "b": 2}).exact == call(result='{"b":2,"a":1}').exact == h64(canonical({"a": 1, "b": 2}))
    assert turn(structured_output={"b": "x y", "a": 1}).structured == content('{"a":1,"b":"x y"}')


RETRYABLE = ["HTTP 429 Too Many Requests", "Error code: 429", "status_code=503", "503 Service Unavailable",
             "502 Bad Gateway", "504 Gateway Timeout", "529 overloaded", "500 Internal Server Error",
             "overloaded_error", "Rate limit reached for gpt-4o", "rate_limit_exceeded: rate limited",
             "Resource temporarily unavailable", "connect ETIMEDOUT 10.0.0.1:443", "read ECONNRESET",
             "Connection timed out", "Request timed out.", "HTTP read timeout", "context deadline exceeded",
             "upstream request timeout", "command timed out after 120 s", "timed out: bash has not returned",
             "tool did not respond", "The tool didn't respond in 60 s", "shell timeout"]  # fmt: skip
NOT_RETRYABLE = ["API error: channel_not_found", "Command failed with exit code 1", "app.py:503: syntax error",
                 "line 429: unexpected token, error", "expected 500 rows, got 400", "assert 404 == 200",
                 "the 429th item is missing", "No such file or directory", "permission denied",
                 "Template ${foo.bar} not found", "test timed out after 120 s", "3 failed, 502 passed",
                 "subprocess.TimeoutExpired: Command 'make' timed out after 30 s"]  # fmt: skip


@pytest.mark.parametrize("text", RETRYABLE)
def test_infrastructure_errors_are_recognised(text: str) -> None:
    assert looks_retryable(text)
    assert looks_retryable(f"anthropic.APIStatusError: {text}")


@pytest.mark.parametrize("text", NOT_RETRYABLE)
def test_other_errors_are_not_infrastructure_errors(text: str) -> None:
    assert not looks_retryable(text)


@pytest.mark.parametrize("text", [
    "Codex error: Our servers are currently overloaded. Please try again later.", "fetch failed", "Connection error.",
    "WebSocket error", "socket hang up", "terminated", "stream disconnected before completion",
    "An error occurred while processing your request. You can retry your request.", "Network error: gone",
])  # fmt: skip
def test_a_reported_error_of_a_provider_or_a_network_may_be_retried(text: str) -> None:
    assert turn(errors=[text]).errors.retryable  # type: ignore[union-attr]
    assert not looks_retryable(text)  # of a tool, it may be about what the agent does


@pytest.mark.parametrize(
    "text",
    [*NOT_RETRYABLE, "the overload has no matching signature", "connection refused", "Invalid JSON, please try again."],
)
def test_other_reported_errors_count(text: str) -> None:
    assert not turn(errors=[text]).errors.retryable  # type: ignore[union-attr]


def test_errors_are_retryable_if_all_of_them_are() -> None:
    assert turn(errors=["HTTP 429", {"message": "gone", "retryable": True}]).errors.retryable  # type: ignore[union-attr]
    assert not turn(errors=["HTTP 429", "boom"]).errors.retryable  # type: ignore[union-attr]


# Records as they stand on the topic.


def test_a_record_may_be_raw_or_fingerprinted() -> None:
    raw = {"run_id": "r", "node": "n", "output": "hello", "tool_calls": [{"name": "t", "args": {"n": 1}}]}
    event = fingerprint(parse_raw(raw))
    assert read_event(orjson.dumps(raw)) == event
    assert read_event(wire.encode(event)) == event


@pytest.mark.parametrize("version", [2, 99])
def test_a_record_of_a_newer_version_is_refused_with_a_remedy(version: int) -> None:
    record = orjson.dumps({"w": version, "type": "turn", "run_id": "r", "node": "n"})
    with pytest.raises(InvalidEvent, match=r"newer than this program.*upgrade workers"):
        read_event(record)


def test_a_fingerprinted_record_with_a_mistake_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="node"):
        read_event(b'{"w":1,"type":"turn","run_id":"r"}')
    with pytest.raises(InvalidEvent, match="output"):
        read_event(b'{"w":1,"type":"turn","run_id":"r","node":"n","output":[-1,0]}')


def test_ten_megabytes_are_fingerprinted() -> None:
    text = "at 12:00:00 the build goes on\n" * 350_000
    event = turn(output=text, artifact=text, tool_calls=[{"name": "t", "args": text, "result": text}])
    assert event.output.size == len(text)
    assert len(wire.encode(event)) < 600


@pytest.mark.parametrize(
    "text",
    ["Next speaker: coder", "Next speaker coder", "next_speaker: coder", "**Next speaker:** `coder`",
     "Handing over to the coder.", "Handing control over to coder"],
)  # fmt: skip
def test_a_line_that_only_names_the_next_speaker_is_a_decision(text: str) -> None:
    assert fingerprint(parse_raw({"run_id": "r", "node": "manager", "output": text})).next == "coder"


@pytest.mark.parametrize("raw", [
    {"output": "Next speaker: coder. Please fix the parser, and then run the tests of the whole package."},
    {"output": "The next speaker: coder"}, {"output": "Next speaker: coder\nNext speaker: tester"},
    {"output": "Next speaker: manager"}, {"output": "Next step: coder"}, {"output": "Next speaker: " + "c" * 120},
    {"output": "Next speaker: coder", "tool_calls": [{"name": "look"}]},
], ids=str)  # fmt: skip
def test_other_texts_decide_nothing(raw: dict[str, Any]) -> None:
    assert fingerprint(parse_raw({"run_id": "r", "node": "manager", **raw})).next == ""


def test_a_decision_that_is_given_counts() -> None:
    raw = {"run_id": "r", "node": "manager", "output": "Next speaker: coder", "decision": {"next": "tester"}}
    assert fingerprint(parse_raw(raw)).next == "tester"


@pytest.mark.parametrize(
    "name",
    ["/tmp/" + "9" * 200_000, "/tmp/" + "tmp" * 100_000, "c:\\" * 50_000, "1" * 200_000, "/tmp/9/" * 50_000],
    ids=["digits", "names", "drives", "number", "folders"],
)
def test_a_hostile_test_id_takes_no_time(name: str) -> None:
    """Each would take minutes if the parts of a pattern were tried against each other."""
    turn = fingerprint(parse_raw({"run_id": "r", "node": "v", "tests": {"failed": [name]}}))
    assert isinstance(turn, wire.Turn)
    assert turn.tests is not None
    assert turn.tests.failing == 1
