"""With a key, a reader of the turns topic cannot test a guess of a text; the decisions stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from streamproc import Monitor
from streamproc.client import TurnPublisher
from streamproc.fingerprint import HashKey, fingerprint
from streamproc.kafka import topics
from streamproc.model import wire
from streamproc.model.raw_events import parse_raw
from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.samples import trajectory_file
from streamproc.settings import load_settings
from tests.client.records import read_all
from tests.feeding import short

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

KEY: Final = HashKey("correct-horse-battery-staple")
OTHER: Final = HashKey("staple-battery-horse-correct")
WORDS: Final = " ".join(f"word{number} is here" for number in range(120))
TURN: Final[dict[str, Any]] = {
    "run_id": "r", "node": "n", "output": WORDS, "structured_output": {"a": "yes"}, "artifact": {"a.py": "x = 1"},
    "docs": f"# {WORDS}", "query": "who is the user?", "tests": {"failed": ["test_a"]}, "errors": ["it broke"],
    "tool_calls": [{"name": "t", "args": {"q": "yes"}, "result": WORDS}, {"name": "t", "args": 1, "error": "no"}],
}  # fmt: skip
LONG: Final = TURN | {
    "structured_output": {"a": WORDS}, "artifact": WORDS, "query": f"{WORDS}?",
    "tool_calls": [{"name": "t", "args": 1, "error": WORDS}, {"name": "t", "result": f"{WORDS}!"}],
}  # fmt: skip
PATCH: Final = TURN | {"artifact": f"--- a\n+++ b\n@@ -1 @@\n{WORDS}"}
TALK: Final[dict[str, Any]] = {"run_id": "r", "node": "n", "output": "I will now try again to fix it in views.py."}


def numbers(event: wire.Event) -> Iterator[tuple[str, int]]:
    """Yield every hash of an event with its place."""
    found = msgspec.to_builtins(event)

    def walk(place: str, value: Any) -> Iterator[tuple[str, int]]:
        if isinstance(value, int) and not isinstance(value, bool) and value > 1_000_000:
            yield place, value
        parts = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
        )
        for key, part in parts:
            yield from walk(f"{place}.{key}", part)

    yield from walk("", found)


@pytest.mark.parametrize("raw", [TURN, LONG, PATCH, TALK], ids=["turn", "long", "patch", "talk"])
def test_no_hash_is_the_one_without_the_key(raw: dict[str, Any]) -> None:
    plain, keyed, other = (dict(numbers(fingerprint(parse_raw(raw), key=key))) for key in (None, KEY, OTHER))
    assert len(plain) >= (4 if raw is TALK else 20)
    assert plain.keys() == keyed.keys() == other.keys()
    assert not set(plain.values()) & set(keyed.values())
    assert not set(keyed.values()) & set(other.values())
    assert dict(numbers(fingerprint(parse_raw(raw), key=HashKey("correct-horse-battery-staple")))) == keyed


def test_equal_texts_have_equal_hashes_and_none_stays_none() -> None:
    one, two = fingerprint(parse_raw(TURN), key=KEY), fingerprint(parse_raw({**TURN, "seq": 2}), key=KEY)
    assert isinstance(one, wire.Turn)
    assert isinstance(two, wire.Turn)
    assert (one.output, one.calls) == (two.output, two.calls)
    assert (one.output.exact, one.output.norm) == (one.calls[0].exact, one.calls[0].norm)
    short_one = {"run_id": "r", "node": "n", "output": "a", "tests": {"passed": 1, "total": 1}}
    empty = fingerprint(parse_raw(short_one), key=KEY)
    assert isinstance(empty, wire.Turn)
    assert (empty.output.sim, empty.output.about, empty.tests.failing_set) == (0, 0, 0)
    assert (wire.decode(wire.encode(one))) == one


def test_similar_texts_stay_similar_under_the_key() -> None:
    texts = [WORDS, WORDS.replace("word7 ", "word7000 "), " ".join(f"other{number} was there" for number in range(120))]
    sims = []
    for text in texts:
        event = fingerprint(parse_raw({"run_id": "r", "node": "n", "output": text}), key=KEY)
        assert isinstance(event, wire.Turn)
        sims.append(event.output.sim)
    assert (sims[0] ^ sims[1]).bit_count() <= 6
    assert (sims[0] ^ sims[2]).bit_count() >= 16


def test_a_key_changes_no_halt_of_the_real_runs() -> None:
    """Only a warning about similar texts may move: SimHash estimates similarity, and errs otherwise with a key."""
    with trajectory_file() as path:
        plain, keyed = (list(Scan([Source(path)], load_policy(), key)) for key in (None, KEY))
    assert len(plain) > 20
    halts = [[(one.run_id, *short(one)) for one in found if one.severity == "halt"] for found in (plain, keyed)]
    exact = [[(one.run_id, *short(one)) for one in found if one.code != "LOOP006"] for found in (plain, keyed)]
    assert halts[0] == halts[1]
    assert exact[0] == exact[1]


def test_a_monitor_with_the_key_has_the_hashes_of_the_publisher() -> None:
    raw = {"run_id": "r", "node": "n", "output": "I will try again."}
    event = fingerprint(parse_raw(raw), key=HashKey("0123456789abcdef"))
    assert isinstance(event, wire.Turn)
    assert event.output is not None
    shown = [
        json.dumps([one.model_dump(mode="json") for _ in range(3) for one in monitor.feed(raw)])
        for monitor in (Monitor(hash_key="0123456789abcdef"), Monitor())
    ]
    assert [f"{event.output.exact:016x}" in text for text in shown] == [True, False]


def test_a_key_does_not_show_itself() -> None:
    assert "horse" not in f"{KEY!r} {KEY} {vars(type(KEY))}"


@pytest.mark.kafka
async def test_what_a_publisher_with_the_key_sends_is_keyed(brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, hash_key="0123456789abcdef", partitions=1)
    await topics.apply(settings)
    async with TurnPublisher(settings=settings) as turns:
        await turns.turn(**TURN)
        assert await turns.flush(30)
    [record] = await read_all(settings)
    sent = dict(numbers(wire.decode(record.value or b"")))
    assert sent == dict(numbers(fingerprint(parse_raw(TURN), key=HashKey("0123456789abcdef"))))
    assert not set(sent.values()) & set(dict(numbers(fingerprint(parse_raw(TURN)))).values())
