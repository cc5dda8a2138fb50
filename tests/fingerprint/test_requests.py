"""What a turn answers: any difference counts but the time of day, and a system prompt's digits."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.fingerprint import HashKey, fingerprint, plain_turn
from streamproc.fingerprint.hash import TIMES_MAX
from streamproc.fingerprint.requests import request_of
from streamproc.fingerprint.turn import as_request
from streamproc.model.raw_events import parse_raw

DIFFERENT = [
    "Grade document 1.", "Grade document 2.", "Grade 123e4567-e89b-12d3-a456-426614174000.",
    "Grade 123e4567-e89b-12d3-a456-426614174001.", "Sales of 2026-11-25", "Sales of 2026-11-26", "The meeting at 10:30",
    "The meeting at 11:30", "/tmp/a.txt", "/tmp/b.txt", ["Grade", "it."], {"item": 1}, {"item": 2}, 7,
    "a" * 3 * TIMES_MAX + "1" + "b" * 3 * TIMES_MAX, "a" * 3 * TIMES_MAX + "2" + "b" * 3 * TIMES_MAX,
]  # fmt: skip


def test_requests_differ_by_everything_that_may_name_an_item() -> None:
    assert len({as_request(one) for one in DIFFERENT} - {0}) == len(DIFFERENT)


@pytest.mark.parametrize("before", ["", "x" * 3 * TIMES_MAX])
def test_the_time_of_day_is_no_difference(before: str) -> None:
    first, second = "2026-11-26T10:02:03.75Z", "2026-11-26T10:02:09.25Z"
    assert as_request(f"{first} Go on.{before}") == as_request(f"{second} Go on.{before}")
    assert as_request(f"{before}Go on. It is {first}.") == as_request(f"{before}Go on. It is {second}.")


@pytest.mark.parametrize("nothing", [None, "", " \n", [], {}])
def test_nothing_is_no_request(nothing: Any) -> None:
    assert as_request(nothing) == 0
    assert request_of(nothing) is None


def test_the_order_of_keys_and_json_in_a_text_are_no_difference() -> None:
    assert as_request({"a": 1, "b": 2}) == as_request({"b": 2, "a": 1}) == as_request('{"b": 2, "a": 1}')


def test_a_request_is_a_number_on_the_wire_and_keyed_as_all_hashes_are() -> None:
    raw = {"run_id": "r1", "node": "a", "output": "yes", "request": "Is it?"}
    key = HashKey("secret")
    hashes = {plain_turn(raw).request, fingerprint(parse_raw(raw)).request, as_request("Is it?")}  # type: ignore[union-attr, attr-defined]
    assert len(hashes) == 1
    assert plain_turn(raw, key).request == key(hashes.pop())  # type: ignore[union-attr]


def test_of_a_system_prompt_the_digits_do_not_count() -> None:
    assert request_of("Go on.", "Step 1 of 9.") == request_of("Go on.", "Step 2 of 9.")
    assert request_of("Go on.", "You are a coder.") != request_of("Go on.", "You are a critic.")
    assert request_of(None, "You are a coder.") is not None


def test_parts_of_a_message_may_be_objects_and_bytes() -> None:
    class Image:
        pass

    assert request_of(["What is it?", Image()]) == request_of(["What is it?", Image()])
    assert request_of(["What is it?", b"\xff1"]) != request_of(["What is it?", b"\xff2"])
