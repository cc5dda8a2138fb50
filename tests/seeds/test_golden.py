"""Golden traces of presets: the exact decisions under the preset of each, and the turn of each decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import orjson
import pytest

from streamproc.core.run_state import dump, load
from streamproc.fingerprint import read_event
from streamproc.policy import load_policy
from tests.feeding import Feed, Raw, Reported, decisions, reported, short

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "seeds.json"
TRACES: Final[list[Raw]] = json.loads(GOLDEN.read_text("utf-8"))

every_trace = pytest.mark.parametrize("trace", [pytest.param(trace, id=trace["title"]) for trace in TRACES])


def pinned(trace: Raw) -> list[Reported]:
    return [Reported(*one) for one in trace["decisions"]]


@every_trace
def test_a_trace_gets_exactly_its_decisions(trace: Raw) -> None:
    assert reported(trace["events"], load_policy(trace["preset"])) == pinned(trace), trace["why"]


@every_trace
def test_a_restart_after_every_event_loses_nothing(trace: Raw) -> None:
    feed, found = Feed(load_policy(trace["preset"])), []
    for raw in trace["events"]:
        found += feed.raw(raw)
        feed.state = load(dump(feed.state))
    assert [short(decision) for decision in found] == pinned(trace)


@every_trace
def test_raw_records_on_the_topic_get_the_same_decisions(trace: Raw) -> None:
    policy = load_policy(trace["preset"])
    feed = Feed(policy)
    records = [read_event(orjson.dumps({"run_id": "r", **raw})) for raw in trace["events"]]
    found = [decision for record in records for decision in feed.event(record, record.at)]
    assert [decision.id for decision in found] == [decision.id for decision in decisions(trace["events"], policy)]
