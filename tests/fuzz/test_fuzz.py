"""Readers of external data read or refuse any input: a short form of `make fuzz`, and regressions that it found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from streamproc.client.halt_records import read_control_news, read_status_news
from streamproc.core.accounts import Account, dump_account, load_account, read_statement, step_account
from streamproc.core.spend_windows import SpendWindow
from streamproc.errors import InvalidEvent
from streamproc.model import wire
from streamproc.model.raw_events import parse_raw
from streamproc.model.yaml_text import read_yaml
from streamproc.replay.diff import read_published
from streamproc.worker.codec import decode_run
from tests.fuzz.readers import READERS
from tests.fuzz.run import fuzz
from tests.fuzz.signed_readers import SIGNED_READERS

COUNT = 500


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_every_input_is_read_or_refused(name: str) -> None:
    outcome = fuzz(name, seed=1, count=max(20, int(COUNT * READERS[name].share)))
    assert not outcome.faults, "\n\n".join(f"{data[:300]!r}\n{trace}" for data, trace in outcome.faults)
    assert outcome.read or name in SIGNED_READERS, "some inputs are valid"


@pytest.mark.parametrize("read", [load_account, read_statement, decode_run, wire.decode])
def test_invalid_text_and_deep_nesting_raise_a_decode_error(read) -> None:
    for value in (b"[" * 5_000, b"\x91" * 5_000, b'["\xff"]', b"\x91\xa1\xff", b"[1," + b'"\xed\xa0\x80"' * 3, b""):
        with pytest.raises(msgspec.DecodeError):
            read(value)


def test_a_status_nested_too_deeply_is_refused() -> None:
    deep = b'{"run_id":"r","status":"halted","severity":"halt","halt":' + b"[" * 5_000
    for read in (lambda: read_status_news(deep, 0), lambda: read_control_news(b'{"a":' * 5_000, 0)):
        with pytest.raises(ValueError, match="recursion"):
            read()
    assert read_published(b'{"id":"\xff"}') is None


def test_a_refusal_names_the_event_if_the_field_has_no_name() -> None:
    nested: list = []
    for _ in range(200):
        nested = [nested]
    with pytest.raises(InvalidEvent) as refusal:
        parse_raw({"run_id": "r", "node": "n", "": nested})
    assert [problem.field for problem in refusal.value.problems] == ["event"]


@pytest.mark.parametrize("account", ["", "run:r", "session", "sessions:s"])
def test_a_statement_about_an_unknown_kind_of_account_is_refused(account: str) -> None:
    raw = msgspec.json.encode([1, account, 0, [], []])
    if account == "session":
        assert read_statement(raw).entries == []
    else:
        with pytest.raises(msgspec.ValidationError, match=r"account: .* is no session, user, tenant"):
            read_statement(raw)


@pytest.mark.parametrize(
    "changed", [{"rungs": {"total/tokens": [1]}}, {"windows": {"hour": SpendWindow(hops=[[1, 2, 3]])}}]
)
def test_a_stored_account_with_a_list_of_another_length_is_refused(changed: dict[str, Any]) -> None:
    """A worker then begins the account again; it would refuse each of its statements."""
    with pytest.raises(msgspec.ValidationError, match="length"):
        load_account(dump_account(Account(**changed)))


def test_an_entry_without_its_payer_is_refused_with_its_offset() -> None:
    statement = read_statement(msgspec.json.encode([1, "session:s", 0, [], [[0, 38, 0, 9, 0, 1, False, False]]]))
    with pytest.raises(ValueError, match="payers: the entry of offset 38 names payer 0 of 0"):
        step_account(Account(), statement)


@pytest.mark.parametrize(
    "text", ["!!timestamp 2021", "!!float ''", "!!int ''", "!!bool x", "2026-01-01 00:00:00 +99:99", "!!int '0x'"]
)
def test_a_yaml_value_that_contradicts_its_tag_is_refused(text: str) -> None:
    with pytest.raises((yaml.YAMLError, ValueError)) as refused:
        read_yaml(f"a: [1, {text}]")
    if isinstance(refused.value, yaml.MarkedYAMLError):
        assert "line 1, column 8" in str(refused.value)


@pytest.mark.parametrize("changed", [{"source": -(2**63) - 1}, {"tokens": -1}, {"unpriced": 2**62}, {"offset": 2**64}])
def test_a_statement_beyond_the_range_of_an_account_is_refused(changed: dict[str, int]) -> None:
    amounts = {"source": 0, "offset": 5, "tokens": 1, "unpriced": 0} | changed
    entry = [0, amounts["offset"], 0, amounts["tokens"], 0, amounts["unpriced"], False, False]
    payers = [["r", 0, False, [["total", "tokens", 7]], [], [70, 80, 95]]]
    with pytest.raises(msgspec.ValidationError):
        read_statement(msgspec.json.encode([1, "session:s", 0, payers, [entry]]).replace(
            b'"session:s",0', b'"session:s",%d' % amounts["source"]
        ))  # fmt: skip
