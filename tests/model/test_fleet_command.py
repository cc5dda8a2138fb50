"""An order's record: what is one, what is refused, and who signed it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from streamproc.errors import InvalidEvent, InvalidSettings
from streamproc.fingerprint import read_event
from streamproc.fleet.signing import AGE_MS_MAX, CommandSigner, command_signer
from streamproc.model.fleet_command import FleetCommand, encode_order, read_command
from streamproc.model.wire import OperatorResume, OperatorStop, encode
from streamproc.settings import load_settings

NOON_MS = 1_769_860_800_000
SECRETS = {"ops": b"0123456789abcdef", "file": b"fedcba9876543210"}
OPS = CommandSigner(SECRETS, "streamproc", required=True)


def an_order(**fields: Any) -> FleetCommand:
    return FleetCommand(**{"w": 1, "id": "o1", "status": "STOP", "scope": "fleet", "at": NOON_MS, "by": "ada"} | fields)


def test_an_order_survives_its_record() -> None:
    order = OPS.sign(an_order(why="the deployment is broken"))
    assert read_command(encode_order(order), b"fleet") == order


@pytest.mark.parametrize(
    ("value", "key", "field"),
    [
        (None, b"fleet", "order"),
        (b"STOP", b"fleet", "order"),
        (b"{}", b"fleet", "order"),
        (b"[" * 9_000, b"fleet", "order"),
        (encode_order(an_order()), b"user:ada", "key"),
        (encode_order(an_order(scope="everybody")), b"everybody", "order"),
        (encode_order(an_order(scope="user:")), b"user:", "order"),
        (encode_order(an_order(scope="user:ada", status="PAUSE")), b"user:ada", "status"),
        (encode_order(an_order(scope="run:r1", status="CLEAR")), b"run:r1", "status"),
        (encode_order(an_order(w=2)), b"fleet", "order"),
        (json.dumps({**msgspec.to_builtins(an_order()), "status": "GO"}).encode(), b"fleet", "order"),
    ],
)
def test_what_is_no_order_is_refused_with_its_field_and_a_remedy(value: bytes, key: bytes, field: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        read_command(value, key)
    [problem] = refused.value.problems
    assert problem.field == field
    assert problem.remedy


def test_an_order_is_told_in_one_line() -> None:
    assert str(an_order(by="ada\n", why="two\nlines")) == "the fleet is stopped by ada: two lines"
    assert str(an_order(by="")) == "the fleet is stopped by somebody"


def test_what_an_allowed_issuer_has_signed_counts() -> None:
    OPS.check(OPS.sign(an_order()), NOON_MS)
    OPS.check(OPS.sign(an_order(), "file"), NOON_MS)


CHANGES = [
    {"status": "CLEAR"}, {"scope": "user:ada"}, {"by": "eve"}, {"why": "because"}, {"at": NOON_MS + 1}, {"id": "o2"},
    {"issuer": "file"}, {"signature": "0" * 64}, {"signature": "\N{SNOWMAN}"},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_signature_holds_every_field(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent, match="signature"):
        OPS.check(msgspec.structs.replace(OPS.sign(an_order()), **change), NOON_MS)


def test_a_signature_for_another_deployment_does_not_count() -> None:
    staging = CommandSigner(SECRETS, "staging", required=True)
    with pytest.raises(InvalidEvent, match="is not that of ops"):
        OPS.check(staging.sign(an_order()), NOON_MS)


def test_what_is_not_signed_or_by_a_stranger_does_not_count_where_that_is_required() -> None:
    stranger = CommandSigner({"eve": b"x" * 32}, "streamproc", required=True)
    with pytest.raises(InvalidEvent, match="it is not signed"):
        OPS.check(an_order(), NOON_MS)
    with pytest.raises(InvalidEvent, match="'eve' is not among those allowed"):
        OPS.check(stranger.sign(an_order()), NOON_MS)


@pytest.mark.parametrize("off_ms", [AGE_MS_MAX + 1, -AGE_MS_MAX - 1])
def test_an_order_from_another_time_does_not_count(off_ms: int) -> None:
    signed = OPS.sign(an_order())
    OPS.check(signed, NOON_MS + AGE_MS_MAX)
    with pytest.raises(InvalidEvent, match="from the broker's time"):
        OPS.check(signed, NOON_MS + off_ms)


def test_the_signature_of_an_event_holds_its_grant() -> None:
    event = OperatorResume(w=1, run_id="r1", event_id="e1", by="ada", grant={"maxSteps": 10, "maxCostUsd": 5})
    OPS.sign_event(event, NOON_MS)
    OPS.check_event(read_event(encode(event)), NOON_MS)  # type: ignore[type-var]

    event.grant = {"maxSteps": 10_000, "maxCostUsd": 5}
    with pytest.raises(InvalidEvent, match="is not that of ops"):
        OPS.check_event(event, NOON_MS)


def test_an_event_counts_unsigned_only_where_the_channel_is_trusted() -> None:
    event = OperatorStop(w=1, run_id="r1", event_id="e1", by="ada")
    CommandSigner({}, "streamproc", required=False).check_event(event, NOON_MS)
    with pytest.raises(InvalidEvent, match="it is not signed"):
        OPS.check_event(event, NOON_MS)


KEY = "ops:0123456789abcdef"


@pytest.mark.parametrize(
    ("settings", "required"),
    [
        ({"brokers": "localhost:9092"}, False),
        ({"brokers": "127.0.0.1:1,[::1]:9092"}, False),
        ({"brokers": "kafka:9092"}, True),
        ({"brokers": "localhost:9092,kafka:9092"}, True),
        ({"brokers": "kafka:9092", "command_auth": "channel"}, False),
        (
            {"brokers": "kafka:9092", "security_protocol": "SASL_SSL", "sasl_username": "ada", "sasl_password": "x"},
            False,
        ),
        ({"brokers": "kafka:9092", "security_protocol": "SSL"}, True),
        ({"brokers": "kafka:9092", "security_protocol": "SSL", "ssl_certfile": "me.pem"}, False),
        ({"brokers": "localhost:9092", "command_key": KEY}, True),
        ({"brokers": "localhost:9092", "command_auth": "signed"}, True),
        ({"brokers": "localhost:9092", "command_key": KEY, "command_auth": "channel"}, False),
    ],
)
def test_what_counts_follows_from_the_settings(settings: dict[str, str], required: bool) -> None:
    assert command_signer(load_settings(**settings)).required is required


def test_whoever_cannot_give_an_order_that_counts_is_told_so() -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_COMMAND_KEY is not set"):
        command_signer(load_settings(brokers="kafka:9092")).must_sign()


@pytest.mark.parametrize("key", ["s3cretsecretsecret", "ops:s3cret", "ops:s3cretsecretsecret,ops:s3cretsecretsecret"])
def test_a_key_that_cannot_be_used_is_not_shown(key: str) -> None:
    with pytest.raises(InvalidSettings, match="STREAMPROC_COMMAND_KEY") as invalid:
        load_settings(command_key=key)
    assert "s3cret" not in str(invalid.value)


def test_an_authority_does_not_show_its_secrets() -> None:
    assert "0123456789abcdef" not in repr(OPS) + str(vars(load_settings(command_key=KEY)))
