"""Fleet commands: their records, what is refused, and their signatures."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from streamproc.errors import InvalidEvent, InvalidSettings
from streamproc.fingerprint import read_event
from streamproc.fleet.keyring import Keyring
from streamproc.fleet.signing import AGE_MS_MAX, CommandSigner, command_signer
from streamproc.model.fleet_command import FleetCommand, encode_command, lifting, read_command
from streamproc.model.signing_keys import read_signing_keys
from streamproc.model.wire import Feedback, OperatorResume, OperatorStop, encode
from streamproc.settings import load_settings

NOON_MS = 1_769_860_800_000
KEYS = read_signing_keys("ops:0123456789abcdef,file:fedcba9876543210")
OPS = CommandSigner(Keyring(KEYS), "streamproc", required=True)


def a_command(**fields: Any) -> FleetCommand:
    return FleetCommand(**{"w": 1, "id": "c1", "status": "STOP", "scope": "fleet", "at": NOON_MS, "by": "ada"} | fields)


def test_a_command_survives_encoding_and_decoding() -> None:
    command = OPS.sign(a_command(why="the deployment is broken"))
    assert read_command(encode_command(command), b"fleet") == command


@pytest.mark.parametrize(("value", "key", "field"), [
    (None, b"fleet", "command"), (b"STOP", b"fleet", "command"), (b"{}", b"fleet", "command"),
    (b"[" * 9_000, b"fleet", "command"), (encode_command(a_command()), b"user:ada", "key"),
    (encode_command(a_command(scope="everybody")), b"everybody", "command"),
    (encode_command(a_command(scope="user:")), b"user:", "command"),
    (encode_command(a_command(scope="user:ada", status="PAUSE")), b"user:ada", "status"),
    (encode_command(a_command(scope="run:r1", status="CLEAR")), b"run:r1", "status"),
    (encode_command(a_command(w=2)), b"fleet", "command"),
    (encode_command(a_command(since=NOON_MS + 1)), b"fleet", "since"),
    (encode_command(a_command(since=-1)), b"fleet", "command"),
    (json.dumps({**msgspec.to_builtins(a_command()), "status": "GO"}).encode(), b"fleet", "command"),
])  # fmt: skip
def test_an_invalid_record_is_refused_with_field_and_remedy(value: bytes, key: bytes, field: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        read_command(value, key)
    [problem] = refused.value.problems
    assert problem.field == field
    assert problem.remedy


def test_a_command_reads_as_one_line() -> None:
    assert str(a_command(by="ada\n", why="two\nlines")) == "the fleet is stopped by ada: two lines"
    assert str(a_command(by="")) == "the fleet is stopped by an unnamed operator"


def test_a_command_signed_by_an_allowed_issuer_is_accepted() -> None:
    OPS.check(OPS.sign(a_command()), NOON_MS)
    OPS.check(OPS.sign(a_command(), "file"), NOON_MS)


CHANGES = [
    {"status": "CLEAR"}, {"scope": "user:ada"}, {"by": "eve"}, {"why": "because"}, {"at": NOON_MS + 1}, {"id": "c2"},
    {"issuer": "file"}, {"signature": "0" * 64}, {"signature": "\N{SNOWMAN}"}, {"since": NOON_MS - 1},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_signature_covers_every_field(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent, match="signature"):
        OPS.check(msgspec.structs.replace(OPS.sign(a_command()), **change), NOON_MS)


@pytest.mark.parametrize("since", [0, NOON_MS, NOON_MS - 2])
def test_a_signature_covers_the_time_of_a_command_that_is_issued_again(since: int) -> None:
    again = OPS.sign(a_command(since=NOON_MS - 1))
    OPS.check(again, NOON_MS)
    with pytest.raises(InvalidEvent, match="signature"):
        OPS.check(msgspec.structs.replace(again, since=since), NOON_MS)


def test_a_command_that_is_issued_again_is_not_older_than_its_record() -> None:
    OPS.check(OPS.sign(a_command(since=NOON_MS - 10 * AGE_MS_MAX)), NOON_MS)
    with pytest.raises(InvalidEvent, match="from the broker's time"):
        OPS.check(OPS.sign(a_command(since=NOON_MS - 1)), NOON_MS + AGE_MS_MAX + 1)


def test_the_signature_of_a_command_without_since_stays_as_it_was() -> None:
    signature = OPS.sign(a_command(why="abuse")).signature
    assert signature == "498ff0dcbbe9d4b55f4727cddf5877fa777b6974000ae82f22eeb79e15d80c08"


def test_a_signature_for_another_deployment_is_refused() -> None:
    staging = CommandSigner(Keyring(KEYS), "staging", required=True)
    with pytest.raises(InvalidEvent, match="is not that of ops"):
        OPS.check(staging.sign(a_command()), NOON_MS)


def test_an_unsigned_command_and_an_unknown_issuer_are_refused_if_signatures_are_required() -> None:
    stranger = CommandSigner(Keyring(read_signing_keys("eve:xxxxxxxxxxxxxxxx")), "streamproc", required=True)
    with pytest.raises(InvalidEvent, match="it is not signed"):
        OPS.check(a_command(), NOON_MS)
    with pytest.raises(InvalidEvent, match="'eve' is not among those allowed"):
        OPS.check(stranger.sign(a_command()), NOON_MS)


@pytest.mark.parametrize("off_ms", [AGE_MS_MAX + 1, -AGE_MS_MAX - 1])
def test_a_command_too_far_from_the_brokers_time_is_refused(off_ms: int) -> None:
    signed = OPS.sign(a_command())
    OPS.check(signed, NOON_MS + AGE_MS_MAX)
    with pytest.raises(InvalidEvent, match="from the broker's time"):
        OPS.check(signed, NOON_MS + off_ms)


def test_the_signature_of_a_resume_covers_its_grant_and_the_halt_that_it_lifts() -> None:
    given = {"maxSteps": 10, "maxCostUsd": 5}
    event = OperatorResume(w=1, run_id="r1", event_id="e1", by="ada", grant=given, halt="d1")
    OPS.sign_event(event, NOON_MS)
    OPS.check_event(read_event(encode(event)), NOON_MS)  # type: ignore[type-var]

    for name, forged in (("grant", {"maxSteps": 10_000, "maxCostUsd": 5}), ("halt", "d2"), ("halt", "")):
        changed = msgspec.structs.replace(event, **{name: forged})
        with pytest.raises(InvalidEvent, match="is not that of ops"):
            OPS.check_event(changed, NOON_MS)


def test_the_signature_of_feedback_covers_its_verdict_and_the_halt_that_it_judges() -> None:
    event = Feedback(w=1, run_id="r1", event_id="e1", by="ada", verdict="right", decision="d1")
    OPS.sign_event(event, NOON_MS)
    OPS.check_event(read_event(encode(event)), NOON_MS)  # type: ignore[type-var]

    for forged in ({"verdict": "false-alarm"}, {"decision": "d2"}):
        with pytest.raises(InvalidEvent, match="is not that of ops"):
            OPS.check_event(msgspec.structs.replace(event, **forged), NOON_MS)


def test_an_unsigned_event_is_accepted_only_on_a_trusted_channel() -> None:
    event = OperatorStop(w=1, run_id="r1", event_id="e1", by="ada")
    CommandSigner(Keyring(), "streamproc", required=False).check_event(event, NOON_MS)
    with pytest.raises(InvalidEvent, match="it is not signed"):
        OPS.check_event(event, NOON_MS)


KEY = "ops:0123456789abcdef"


@pytest.mark.parametrize(("settings", "required"), [
    ({"brokers": "localhost:9092"}, False), ({"brokers": "127.0.0.1:1,[::1]:9092"}, False),
    ({"brokers": "kafka:9092"}, True), ({"brokers": "localhost:9092,kafka:9092"}, True),
    ({"brokers": "kafka:9092", "command_auth": "channel"}, False),
    ({"brokers": "kafka:9092", "security_protocol": "SASL_SSL", "sasl_username": "ada", "sasl_password": "x"}, False),
    ({"brokers": "kafka:9092", "security_protocol": "SSL"}, True),
    ({"brokers": "kafka:9092", "security_protocol": "SSL", "ssl_certfile": "me.pem"}, False),
    ({"brokers": "localhost:9092", "command_key": KEY}, True),
    ({"brokers": "localhost:9092", "command_auth": "signed"}, True),
    ({"brokers": "localhost:9092", "command_key": KEY, "command_auth": "channel"}, False),
])  # fmt: skip
def test_the_settings_decide_whether_signatures_are_required(settings: dict[str, str], required: bool) -> None:
    assert command_signer(load_settings(**settings)).required is required


def test_issuing_without_a_required_key_raises_an_error_that_names_the_setting() -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_COMMAND_KEY is not set"):
        command_signer(load_settings(brokers="kafka:9092")).must_sign()


@pytest.mark.parametrize("key", ["s3cretsecretsecret", "ops:s3cret", "ops:s3cretsecretsecret,ops:s3cretsecretsecret"])
def test_an_invalid_key_is_not_shown(key: str) -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_COMMAND_KEY") as invalid:
        load_settings(command_key=key)
    assert "s3cret" not in str(invalid.value)


def test_a_signer_does_not_show_its_secrets() -> None:
    assert "0123456789abcdef" not in repr(OPS) + str(vars(load_settings(command_key=KEY)))


@pytest.mark.parametrize(("reason", "command"), [
    ("user zoe is killed: it loops", "streamproc clear --user zoe"),
    ("user zoe of tenant acme is killed", "streamproc clear --user zoe --tenant acme"),
    ("session s1 is killed: it spawns", "streamproc clear --session s1"),
    ("the tests fail", ""),
])  # fmt: skip
def test_the_halt_of_a_kill_says_how_it_is_lifted(reason: str, command: str) -> None:
    assert lifting(reason) == command
