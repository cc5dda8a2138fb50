"""No secret crosses the wire: in no field of an event, in no form, and nothing harmless is lost."""

from __future__ import annotations

import time
from typing import Any, Final
from urllib.parse import unquote

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from streamproc import Monitor
from streamproc.client.encoding import encode_event
from streamproc.client.guard import GuardRegistry
from streamproc.errors import InvalidEvent
from streamproc.fingerprint import fingerprint, read_event
from streamproc.fleet.issuing import scope_of
from streamproc.fleet.state import Fleet, new_command
from streamproc.model import redaction, wire
from streamproc.model.raw_events import parse_raw
from streamproc.model.redaction import NAME_MAX, redact, redact_id, redact_json, redact_name, redact_text
from tests.model.secret_corpus import look_alikes, named_values, placed_secrets, shaped_tokens, texts

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

PART: Final = 8  # characters: a rest of a secret that is as long is a leak
WHOLE: Final = 20_000
PLANTED: Final = "ghp_" + "a1B2c3D4e5F6" * 3
OTHER: Final = "ghp_" + "z9Y8x7W6v5U4" * 3

EXAMPLES = settings(max_examples=150, deadline=None, derandomize=True, print_blob=True)


def rests(shown: str, secret: str) -> list[str]:
    """Return the parts of a secret that are still shown."""
    size = min(PART, len(secret))
    return [part for n in range(len(secret) - size + 1) if (part := secret[n : n + size]) in shown]


def test_the_corpus_is_large() -> None:
    assert len(shaped_tokens()) + len(named_values()) + len(placed_secrets()) >= 300
    assert len(look_alikes()) >= 130


@pytest.mark.parametrize("how", [
    lambda text: redact(text, WHOLE), lambda text: redact_text(text, WHOLE), redact_name,
], ids=["excerpt", "text", "name"])  # fmt: skip
def test_no_secret_survives_in_any_form(how: Any) -> None:
    shown = [(form, text, secret, how(text)) for form, text, secret in texts()]
    assert len(shown) > 2_000
    leaks = [(form, text, now) for form, text, secret, now in shown if rests(unquote(now), secret)]
    assert leaks == []


@pytest.mark.parametrize("token", [token for token in shaped_tokens() if len(token) > 100], ids=lambda token: token[:8])
def test_half_a_secret_at_the_cut_of_an_excerpt_is_not_shown(token: str) -> None:
    for start in range(880, 960, 7):
        text = "\t" * start + f"see {token} there"  # white space folds, so the cut is within what is shown
        assert rests(redact(text), token) == []


@pytest.mark.parametrize("form", ["app/src/lib/ui/web/{}/a/b/c.txt", "v1.2.3.of.{}.for.x.y"])
def test_a_random_part_of_a_long_word_is_not_shown(form: str) -> None:
    part = "q8ZkP3vTn5XwL2rYb7HdKs9M"
    for how in (redact_text, redact_name):
        shown = how(form.format(part))
        assert rests(shown, part) == []
        assert shown.startswith(form.partition("{")[0])
        assert shown.endswith(form.partition("}")[2])


@pytest.mark.parametrize("text", look_alikes())
def test_what_only_looks_like_a_secret_survives(text: str) -> None:
    assert redact_text(text) == text
    assert redact_name(text) == text
    assert redact(text, WHOLE) == " ".join(text.split())


# Names.


def test_names_with_different_secrets_stay_different() -> None:
    tokens = shaped_tokens()
    assert len({redact_name(f"agent-{token}") for token in tokens}) == len(tokens)
    assert redact_name(f"call {PLANTED}") != redact_name(f"call {OTHER}")
    assert redact_name(f"call {PLANTED}") == redact_name.__wrapped__(f"call {PLANTED}")


def test_a_redacted_name_shows_what_is_no_secret() -> None:
    shown = redact_name(f"fetch {PLANTED} from https://bob:hunter22@db.internal/x")
    assert shown.startswith("fetch <redacted-")
    assert "> from https://bob:<redacted-" in shown
    assert shown.endswith("@db.internal/x")


def test_of_a_password_only_16_bits_can_be_tested() -> None:
    """A hash of a weak secret gives it away to anyone with a list of passwords."""
    shown = redact_name("login password=hunter2")
    assert len(shown) - len("login password=") == len("<redacted-1234>")


def test_a_random_id_stays_as_it_is() -> None:
    for run_id in ("0ujtsYcgvSTl8PAuAdqWYSMnLOv", "V1StGXR8_Z5jdHi6B-myT", "jobs/2026/aB3dE5fGh7iJkL9mN1oP"):
        assert redact_id(run_id) == run_id
    assert PLANTED not in redact_id(f"run-{PLANTED}")


@given(st.text(max_size=200), st.sampled_from(shaped_tokens()), st.text(max_size=60))
@EXAMPLES
def test_redacting_twice_changes_nothing(before: str, token: str, after: str) -> None:
    for how in (redact_text, redact_name, redact_id):
        once = how(f"{before} {token} {after}")
        assert how(once) == once


@given(st.lists(st.sampled_from(["pwd=abc1 ", "pw:x@h.io ", "password 7 ", PLANTED, "a", "é"]), max_size=40))
@EXAMPLES
def test_a_redacted_name_still_fits_its_field(parts: list[str]) -> None:
    name = "".join(parts)[:NAME_MAX]
    assert len(redact_name(name)) <= NAME_MAX
    assert len(redact_id(name)) <= NAME_MAX


# Every field.


def everything(secret: str) -> list[dict[str, Any]]:
    """Return events with a secret in every text that they can have."""
    named = f"x {secret}"
    scope = dict.fromkeys(("event_id", "workflow", "tenant", "user", "tier", "agent", "task_id", "session_id",
                           "parent_run_id", "node"), named)  # fmt: skip
    shared: dict[str, Any] = {"run_id": named, **scope, "labels": {named: named, "k": named}}
    proof = {named: {"verdict": named, "items": [{"name": named, "passed": False}, named]}, "dod": [named], "t": named}
    board = {**shared, "evidence": proof, "approvals": {"by": named}, "failure_class": named, "module": named}
    return [
        {**shared, "from": named, "output": named, "structured_output": {named: named}, "artifact": {named: named},
         "docs": named, "query": named, "request": {named: named},
         "tests": {"failed": [named, f"a::{secret}"]}, "progress": {named: 1},
         "errors": [{"message": named, "class": named}, named], "decision": {"next": named, "reason": named},
         "tool_calls": [{"name": named, "args": {named: named}, "result": named, "error": named, "id": named}],
         "model": named, "provider": named, "stop_reason": named,
         "findings": [named, {"id": secret, "severity": named}]},
        {**shared, "type": "context.compacted", "trigger": named},
        {**shared, "type": "run.continued", "by": named, "reason": named},
        {**shared, "type": "run.started", "prompt": named,
         "graph": {"nodes": [named, {"id": "end", "terminal": True, "note": named}],
                   "edges": [["a", named], [named, "end"]], "config": {"password": secret, named: named}}},
        {**shared, "type": "run.finished", "status": named},
        {**shared, "type": "user.message"},
        {**shared, "type": "turn.started"},
        {**shared, "type": "operator.stop", "by": named, "reason": named},
        {**shared, "type": "operator.resume", "by": named, "reason": named, "halt": named},
        {**shared, "type": "halt.acknowledged", "by": named, "reason": named},
        {**shared, "type": "feedback", "verdict": "right", "decision": named, "by": named, "reason": named},
        {**board, "type": "task.created", "depends_on": [named], "phase": named, "kind": named, "priority": named,
         "state": named},
        {**board, "type": "task.delegated", "tasks": [named], "phase": named},
        {**board, "type": "task.transition", "from": named, "to": named, "reason": {named: named}},
        {**board, "type": "task.verdict", "verdict": "REJECTED", "validator": named, "reason": [named],
         "findings": [named, {"id": named, "severity": named, "status": named}]},
        {**board, "type": "cycle.completed", "cycle": named, "completed": [named],
         "transitions": [{"task": named, "to": named}], "phase": named},
    ]  # fmt: skip


@pytest.mark.parametrize("event", everything(PLANTED), ids=lambda event: event.get("type", "turn"))
def test_no_field_of_an_event_sends_a_secret(event: dict[str, Any]) -> None:
    sent = encode_event(fingerprint(parse_raw(event)), bytes_max=100_000)
    assert rests((sent.key + sent.value).decode(), PLANTED) == []
    assert isinstance(wire.decode(sent.value), wire.Event)
    same = parse_raw(everything(OTHER)[everything(PLANTED).index(event)])
    other = encode_event(fingerprint(same), bytes_max=100_000)
    assert other.key != sent.key


def test_every_text_field_of_the_raw_events_is_covered() -> None:
    """A new field must be added to `everything`, and to what is redacted."""
    for event in everything(PLANTED):
        raw = parse_raw(event)
        numbers = {"at", "seq", "type", "budgets", "usage", "round", "convergence", "consensus", "grant", "issuer",
                   "signature", "token", "session_token", "ui_touching", "count", "max_token_budget", "before_tokens",
                   "after_tokens"}  # fmt: skip
        assert set(type(raw).model_fields) - raw.model_fields_set - numbers == set(), raw.type


def test_a_fingerprint_sends_content_as_it_is_when_asked_to() -> None:
    [turn, *_] = everything(PLANTED)
    event = fingerprint(parse_raw(turn), include_content=True)
    assert isinstance(event, wire.Turn)
    assert event.content["output"] == f"x {PLANTED}"
    event.content = None
    assert rests(wire.encode(event).decode(), PLANTED) == []


def test_a_monitor_knows_a_run_by_its_own_id() -> None:
    monitor = Monitor()
    run_id = f"run {PLANTED}"
    found = [control for _ in range(3) for control in monitor.feed(run_id=run_id, node=f"n {PLANTED}", output="Again.")]
    assert [control.severity for control in found] == ["warn", "halt"]
    assert rests(" ".join(control.model_dump_json() for control in found), PLANTED) == []
    status = monitor.status(run_id)
    assert status.status == "halted"


class Fired:
    """Counts how often it was fired."""

    def __init__(self) -> None:
        self.times = 0

    def fire(self) -> None:
        self.times += 1


def test_a_guard_is_fired_by_the_id_that_the_publisher_sent() -> None:
    registry, target, run_id = GuardRegistry(), Fired(), f"run {PLANTED}"
    registry.add(run_id, target)
    registry.fire(redact_id(run_id))
    registry.fire(run_id)  # from a publisher of raw turns, whose records keep the id
    assert target.times == 2
    registry.remove(run_id, target)
    assert len(registry) == 0


def test_a_command_hides_the_secrets_in_its_texts() -> None:
    command = new_command(Fleet(), "STOP", scope_of("user", f"bob {PLANTED}"), f"ann {PLANTED}", f"leaked {PLANTED}")
    assert rests(f"{command} {command!r}", PLANTED) == []
    assert command.scope == f"user:{redact_id(f'bob {PLANTED}')}"
    assert rests(scope_of("user", f"bob {PLANTED}", "acme"), PLANTED) == []
    assert rests(scope_of("user", "bob", f"acme {PLANTED}"), PLANTED) == []


def test_a_raw_record_keeps_the_run_id_that_is_its_key() -> None:
    event = read_event(
        orjson.dumps({"run_id": f"x {PLANTED}", "node": f"n {PLANTED}", "parent_run_id": f"p {PLANTED}"})
    )
    assert (event.run_id, event.parent_run_id) == (f"x {PLANTED}", f"p {PLANTED}")
    assert rests(event.node, PLANTED) == []


def test_a_signed_command_keeps_the_reason_that_was_signed() -> None:
    stop = fingerprint(parse_raw({"type": "operator.stop", "run_id": "r", "reason": PLANTED, "signature": "ab"}))
    assert isinstance(stop, wire.OperatorStop)
    assert stop.reason == PLANTED


def test_a_signature_keeps_no_secret_in_an_event_that_nobody_signs() -> None:
    seen = {"type": "halt.acknowledged", "run_id": "r", "by": PLANTED, "reason": PLANTED, "signature": "ab"}
    assert rests(wire.encode(fingerprint(parse_raw(seen))).decode(), PLANTED) == []


def test_a_text_at_the_key_password_is_replaced() -> None:
    shown = redact_json({"password": "swordfish", "nodes": [{"id": "a", "apiKey": "swordfish"}], "n": 1})
    assert "swordfish" not in str(shown)
    assert (shown["n"], shown["nodes"][0]["id"]) == (1, "a")


# Time.

NASTY = ["1", "a", "=", "-", "-----BEGIN A-----", "://", "://a:b@", "@", "a@a.", "sk-", "eyJa.", "SG.aaaaaaaaaa.",
         "password", "password=", "password='", 'password=\\"', 'token: "', "\\", '"', "'", "api_key", "<password>",
         "curl -u a:", "mysql -", "cookie:", "authorization: a b=", "bearer ", "&key=", "_", "%2F", "a/", "Ab1",
         "private-lines: 1", "login x ", "htpasswd -b a a ", "\x1b]", "é", "t1.aaaaaaaaaaaaaaaaaaaa.", " ",
         "--password ", "%25", "%E2", "\\u200b", "\\x", "?a=+", "| token ", "('token', ", "token *: ",
         "secret_id", "123456789:AA", "redis-cli -", "pat" + "a" * 14 + "."]  # fmt: skip


@pytest.mark.parametrize("shape", NASTY)
def test_a_megabyte_of_a_nasty_shape_takes_no_time(shape: str) -> None:
    """What is read is bounded. Patterns with catastrophic backtracking would hang even on that."""
    text = (shape * (1_000_000 // len(shape) + 1))[:1_000_000]
    for how in (redact, redact_text, redact_name, redact_id):
        assert len(how(text)) <= 1_000_000


@pytest.mark.parametrize("shape", NASTY)
def test_the_time_is_linear_in_the_text(shape: str) -> None:
    """Ten times the text takes about ten times as long; quadratic time would take a hundred times."""

    def seconds(size: int) -> float:
        text = (shape * (size // len(shape) + 1))[:size]
        return min(_timed(text) for _ in range(3))

    assert seconds(50_000) < 40 * seconds(5_000) + 0.5


def _timed(text: str) -> float:
    start = time.perf_counter()
    redact_text(text, len(text))
    return time.perf_counter() - start


# Messages about mistakes.


def test_an_error_about_an_event_does_not_quote_a_secret() -> None:
    with pytest.raises(InvalidEvent) as refusal:
        parse_raw({"run_id": "r", "node": 3, "at": PLANTED, "type": "turn", "usage": f"password={PLANTED}"})
    assert rests(str(refusal.value), PLANTED) == []
    with pytest.raises(InvalidEvent) as refusal:
        parse_raw({"run_id": "r", "type": PLANTED})
    assert rests(str(refusal.value), PLANTED) == []


def test_a_warning_about_an_unknown_field_does_not_quote_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor()
    monitor.feed({"run_id": "r", "node": "n", PLANTED: 1})
    assert monitor.unknown_fields == 1
    assert rests(caplog.text + str(monitor.unknown_field_counts), PLANTED) == []
    with pytest.raises(InvalidEvent) as refusal:
        Monitor(strict=True).feed({"run_id": "r", "node": "n", PLANTED: 1})
    assert rests(str(refusal.value), PLANTED) == []


def test_no_hint_of_a_rule_is_in_an_id_of_hex_digits() -> None:
    """So the rules need not be tried for such ids, which every event may have."""
    hints = [hint for hints, *_ in redaction.RULES for hint in hints]
    assert len(hints) > 50
    assert not [hint for hint in hints if redaction._HEX.fullmatch(hint.strip("-")) and "--" not in hint]
