"""Encoding raw events as Kafka records."""

from __future__ import annotations

import hashlib
import hmac
import uuid

import pytest

from streamproc import check_graph
from streamproc.client.encoding import Encoded, encode_event, new_id, token_of
from streamproc.errors import InvalidEvent, UnsafeCycle
from streamproc.fingerprint import fingerprint
from streamproc.model import wire
from streamproc.model.raw_events import parse_raw


def encoded(include_content: bool = False, bytes_max: int = 1_000_000, **fields: object) -> Encoded:
    raw = parse_raw({"run_id": "r1", "node": "coder"} | fields)
    return encode_event(fingerprint(raw, include_content=include_content), bytes_max=bytes_max)


def test_the_record_is_keyed_by_its_run() -> None:
    record = encoded(run_id="läuft")

    assert record.key.decode() == "läuft"
    assert wire.decode(record.value).run_id == "läuft"


def test_content_is_not_sent() -> None:
    record = encoded(output="the secret plan", tool_calls=[{"name": "bash", "args": "secret", "result": "secret"}])

    assert b"secret" not in record.value


def test_content_is_sent_with_include_content() -> None:
    assert b"the plan" in encoded(include_content=True, output="the plan").value


def test_an_event_without_an_id_gets_a_uuid() -> None:
    first, second = encoded(), encoded()

    assert uuid.UUID(first.event_id).version == 4
    assert wire.decode(first.value).event_id == first.event_id != second.event_id


def test_a_given_id_is_kept() -> None:
    assert encoded(event_id="mine").event_id == "mine"


def test_ids_are_uuids() -> None:
    ids = {new_id() for _ in range(200)}

    assert len(ids) == 200
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant, len(one)) for one in ids} == {(4, uuid.RFC_4122, 36)}


def test_every_event_gets_the_token_of_its_run() -> None:
    secret = b"0123456789abcdef"
    raws = [parse_raw({"run_id": run, "node": "n", "type": kind}) for run in "ab" for kind in ("turn", "run.started")]

    values = [encode_event(fingerprint(raw), bytes_max=9_999, run_token=secret).value for raw in raws]
    tokens = [wire.decode(value).token for value in values]

    a, b = (hmac.new(secret, run, hashlib.sha256).hexdigest()[:32] for run in (b"a", b"b"))
    assert tokens == [a, a, b, b]
    assert wire.decode(encoded(token="mine").value).token == "mine"
    assert b"token" not in encoded().value


def test_only_turns_are_dropped_early() -> None:
    assert not encoded().lasting
    assert encoded(type="run.started").lasting
    assert encoded(type="operator.stop").lasting


@pytest.mark.parametrize(("fields", "place", "remedy"), [
    ({"output": "x" * 5000, "include_content": True}, "content.output", "without include_content"),
    ({"labels": {"a": "x", "prompt": "y" * 5000}}, "labels.prompt", "fewer and shorter labels"),
    ({"tool_calls": [{"name": f"tool{n}"} for n in range(500)]}, "calls", "split the turn"),
    ({"progress": {f"metric{n}": 1 for n in range(500)}}, "progress", "fewer metrics"),
])  # fmt: skip
def test_the_error_about_an_oversized_event_names_the_field_and_the_remedy(fields, place: str, remedy: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        encoded(bytes_max=2000, **fields)

    [problem] = refused.value.problems
    assert problem.field == place
    assert "the limit is 2000" in problem.what
    assert remedy in problem.remedy
    assert "STREAMPROC_EVENT_BYTES_MAX" in problem.remedy


def test_an_event_of_exactly_the_limit_is_accepted() -> None:
    size = len(encoded(event_id="e").value)

    assert encoded(event_id="e", bytes_max=size).value
    with pytest.raises(InvalidEvent):
        encoded(event_id="e", bytes_max=size - 1)


TWO_CYCLES = {"edges": [["a", "b"], ["b", "a"], ["c", "c"]]}


def started(graph: object, bytes_max: int = 1_048_576, unsafe: bool = False) -> Encoded:
    raw = parse_raw({"type": "run.started", "run_id": "r1", "graph": graph})
    return encode_event(fingerprint(raw), bytes_max=bytes_max, unsafe=unsafe)


def graph_in(record: Encoded) -> dict[str, object]:
    event = wire.decode(record.value)
    assert isinstance(event, wire.RunStarted)
    assert event.graph is not None
    return event.graph


def test_a_graph_with_a_cycle_without_an_exit_is_refused() -> None:
    with pytest.raises(UnsafeCycle) as refusal:
        started(TWO_CYCLES)

    assert refusal.value.cycles == (("a", "b"), ("c",))
    assert graph_in(started(TWO_CYCLES, unsafe=True)) == TWO_CYCLES


def test_the_error_about_an_unreadable_graph_names_the_place() -> None:
    with pytest.raises(InvalidEvent) as refusal:
        started({"edges": [["a", "b"], ["b"]]})

    [problem] = refusal.value.problems
    assert problem.field == "graph.edges[1]"
    assert "graph check" in problem.remedy


def test_a_graph_of_fifty_thousand_edges_fits_into_one_event() -> None:
    pairs = [
        [f"step-of-the-plan-{n}", f"step-of-the-plan-{(n * 7 + s) % 5_000}"] for n in range(5_000) for s in range(10)
    ]
    graph = {"edges": [*pairs, ["step-of-the-plan-0", "END"]]}

    record = started(graph)

    assert len(record.value) < 500_000
    assert check_graph(graph_in(record)) == check_graph(graph)


def test_the_error_about_an_oversized_graph_names_the_remedy() -> None:
    with pytest.raises(InvalidEvent) as refusal:
        started({"edges": [["n" * 2_000, "end"]]}, bytes_max=1_024)

    [problem] = refusal.value.problems
    assert problem.field == "graph"
    assert "declare only its cycles" in problem.remedy
    assert "STREAMPROC_EVENT_BYTES_MAX" in problem.remedy


def test_a_run_shows_that_it_belongs_to_its_session_and_only_where_it_names_one() -> None:
    """Without a session, the parent is the session, and a root is that of its own children."""
    secret = b"0123456789abcdef" * 2

    def shown(event: wire.Event) -> str:
        return wire.decode(encode_event(event, bytes_max=4_096, run_token=secret).value).session_token

    root = shown(wire.RunStarted(w=1, run_id="root"))
    assert root == token_of("\0session\0root", secret) != token_of("root", secret)
    assert shown(wire.RunStarted(w=1, run_id="c", parent_run_id="root")) == root
    assert shown(wire.Turn(w=1, run_id="c", node="n", session_id="root")) == root
    assert shown(wire.RunStarted(w=1, run_id="c", session_id="s", parent_run_id="root")) != root
    assert shown(wire.Turn(w=1, run_id="c", node="n")) == ""
