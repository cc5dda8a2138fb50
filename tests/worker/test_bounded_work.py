"""One event holds up a worker for milliseconds, whatever it contains: work is counted in calls, not in seconds."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given, strategies as st
from msgspec import inspect

from streamproc import check_graph
from streamproc.core.compiled import core_kind
from streamproc.core.providers import UNAVAILABLE, CallEntry, CallStatement, write_calls
from streamproc.detectors.base import args_excerpt
from streamproc.errors import InvalidEvent, InvalidPolicy, InvalidSettings
from streamproc.fingerprint import fingerprint, read_event
from streamproc.model import nesting, raw_events, raw_fields, redaction, wire
from streamproc.model.graph_limits import EDGES_MAX, NODES_MAX, SIZES
from streamproc.model.raw_events import parse_raw
from streamproc.model.yaml_text import LEVELS_MAX, VALUES_MAX, read_yaml
from streamproc.notify.notification_config import load_notification_config
from streamproc.policy import load_policy
from streamproc.worker import timed_records
from streamproc.worker.accounts_table import AccountPartition
from streamproc.worker.limits import SLICE_CHECK_RECORDS, SLICE_S
from streamproc.worker.provider_clock import ProviderClock
from streamproc.worker.spend import AccountProcessor
from streamproc.worker.timed_records import TimedRecords
from tests.feeding import Feed
from tests.work import work_of
from tests.worker.maximal import CASES, SIZE, maximal, suspect
from tests.worker.records import NOON_MS, records_of
from tests.worker.test_turn_processor import controls, processor, runs

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

READ_CALLS_MAX = 1_200_000  # to walk through 350 000 empty lists; each call takes 0.1 µs
STEP_CALLS_MAX = 160_000  # a turn of the most calls that an event may have; each takes 0.1 µs
STATE_BYTES_MAX = 4_096
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text("ab", max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=4),
)


def counted(act: Callable[[], Any]) -> tuple[int, Any]:
    """Return how many functions were called, and the result; None for an event that is refused."""

    def attempt() -> Any:
        try:
            return act()
        except InvalidEvent:
            return None

    return work_of(attempt)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_the_largest_event_of_each_type_takes_bounded_work(name: str) -> None:
    raw = maximal(name)
    assert SIZE - 2_000 < len(raw) <= SIZE

    calls, event = counted(lambda: read_event(raw))
    assert calls < READ_CALLS_MAX
    if event is not None:
        feed = Feed()
        calls, _ = counted(lambda: feed.event(event))
        assert calls < STEP_CALLS_MAX
        assert len(feed.stored) < STATE_BYTES_MAX


REDACTED_MAX = 110_000  # characters of one event that are searched for secrets, at up to 2 µs each


def thousands(kind: str, field: str, value: Any, **more: Any) -> bytes:
    return orjson.dumps({"type": kind, "run_id": "r", "node": "n", "task_id": "T1", field: value, **more})


SUSPECTS = {
    "calls": thousands("turn", "tool_calls", [{"name": suspect(n, 250)} for n in range(raw_events.CALLS_MAX)]),
    "metrics": thousands("turn", "progress", {suspect(n, 120): 1 for n in range(raw_fields.METRICS_MAX)}),
    "labels": thousands("turn", "labels", {suspect(n, 900): suspect(n, 3_000) for n in range(raw_fields.LABELS_MAX)}),
    "evidence": thousands(
        "task.transition",
        "evidence",
        {suspect(g, 99): {suspect(n, 320): n % 2 == 0 for n in range(400)} for g in range(16)},
    ),
    "a list of reports": thousands(
        "task.transition", "evidence", {"dod": {"items": [{"x": {suspect(n, 300): False}} for n in range(2_000)]}}
    ),
    "moves": thousands(
        "cycle.completed", "transitions", [{"id": suspect(n, 120), "to": suspect(n, 110)} for n in range(1_500)]
    ),
    "tasks": thousands("task.delegated", "tasks", [suspect(n, 120) for n in range(4_000)]),
    "graph": thousands("run.started", "graph", {"edges": [[suspect(n, 60), f"{n}"] for n in range(1_000)]}),
    "nodes of a graph": thousands("run.started", "graph", {"nodes": [{"id": suspect(n, 30)} for n in range(999)]}),
    "a graph of no graph": thousands("run.started", "graph", {"nodes": [{"x": suspect(n, 30)} for n in range(999)]}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", [*SUSPECTS, *(name for name in CASES if name.startswith("raw"))])
def test_of_one_event_a_bounded_part_is_searched_for_secrets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cap of names comes before their redaction, which takes longer than anything else with them."""
    searched, search = 0, redaction._clean

    def count(text: str, *arguments: Any, **more: Any) -> str:
        nonlocal searched
        searched += len(text)
        return search(text, *arguments, **more)

    monkeypatch.setattr(redaction, "_clean", count)
    redaction.redact_name.cache_clear()
    redaction.redact_id.cache_clear()
    with contextlib.suppress(InvalidEvent):
        read_event(SUSPECTS.get(name) or maximal(name))
    assert searched < REDACTED_MAX


def test_names_beyond_the_limit_stay_different_and_hide_what_they_hold() -> None:
    names = [f"password=hunter{n} {suspect(n, 200)}" for n in range(raw_events.CALLS_MAX)]
    event = read_event(thousands("turn", "tool_calls", [{"name": name} for name in names]))
    shown = [call.name for call in event.calls]
    assert len({*shown[-500:]}) == 500
    assert not any("hunter" in name for name in shown)
    labels = read_event(thousands("turn", "labels", {f"l{n}": f"password=abc{n:099}" for n in range(250)})).labels
    assert len(labels) == 250
    assert not any("abc0" in text for text in (*labels, *labels.values()))
    few = read_event(thousands("turn", "tool_calls", [{"name": f"tool_{n}"} for n in range(raw_events.CALLS_MAX)]))
    assert [call.name for call in few.calls] == [f"tool_{n}" for n in range(raw_events.CALLS_MAX)]


def test_a_graph_that_no_worker_follows_is_not_redacted_and_is_told_by_its_size() -> None:
    for graph, what in (
        ({"nodes": [f"n{n}" for n in range(NODES_MAX + 1)]}, f"{NODES_MAX + 1} nodes"),
        ({"edges": [["a", "b"]] * (EDGES_MAX + 1)}, f"{EDGES_MAX + 1} edges"),
        ({"nodes": ["a"], "leads_to": [[0] * (EDGES_MAX + 1)]}, f"{EDGES_MAX + 1} edges"),
        ({"nodes": ["x" * 40_000]}, "characters in names, more than 32768"),
        ({"nodes": [{"bad": "x" * 40_000}]}, "characters in names, more than 32768"),
    ):
        event = read_event(thousands("run.started", "graph", graph))
        assert set(event.graph) == {SIZES}
        [warning] = Feed().event(event)
        assert (warning.code, what in warning.message) == ("GRAPH002", True)


def test_a_graph_within_the_limits_means_the_same_redacted_by_the_worker_and_by_the_publisher() -> None:
    for graph in (
        {"edges": [["a", "b"], ["b", "a"], ["b", "END"]], "unread": ["x"]},
        {"nodes": ["token=abc123def", {"id": "b", "terminal": True}], "edges": [["token=abc123def", "b"]]},
        {"nodes": ["a", "b"], "leads_to": [[1], [0]], "anchors": [[1, 0]]},
        {"nodes": [3]},
        {"edges": [["a"]]},
    ):
        sent = fingerprint(parse_raw({"type": "run.started", "run_id": "r", "graph": graph})).graph
        read = read_event(thousands("run.started", "graph", graph)).graph
        assert read == {name: part for name, part in sent.items() if name != "unread"}


def test_sizes_of_a_graph_can_only_be_numbers() -> None:
    for told in ({"nodes": "<script>"}, {"more": 10**9}, {"nodes": 5}, ["nodes"], {"edges": True}):
        assert Feed().raw({"type": "run.started", "graph": {SIZES: told}}) == []


def test_of_arguments_that_a_finding_shows_the_start_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    args = {"q": suspect(1, 50), "rest": {suspect(n, 50): suspect(n, 900) for n in range(900)}}
    turn = {"node": "n", "tool_calls": [{"name": "t", "args": args, "result": "no"}]}
    sent = fingerprint(parse_raw({"run_id": "r", **turn}), include_content=True)
    searched, search = 0, redaction._clean

    def count(text: str, *arguments: Any, **more: Any) -> str:
        nonlocal searched
        searched += len(text)
        return search(text, *arguments, **more)

    monkeypatch.setattr(redaction, "_clean", count)
    shown = args_excerpt(sent, sent.calls[0])
    assert shown is not None
    assert "login" in shown
    assert searched < 10_000


@given(VALUES, st.integers(0, 60))
def test_the_start_of_a_value_is_a_part_of_it(value: Any, characters: int) -> None:
    start = nesting.start_of(value, characters)
    assert len(orjson.dumps(start)) <= len(orjson.dumps(value))
    assert nesting.start_of(value, 100_000) == value
    if isinstance(value, list):
        assert start == value[: len(start)] or len(orjson.dumps(start[-1])) < len(orjson.dumps(value[len(start) - 1]))


MANY = ["t"] * (wire.BATCH_MAX + 1)
PAIRS = {f"p{n}": 1 for n in range(wire.PAIRS_MAX + 1)}


@pytest.mark.parametrize(("kind", "field", "value"), [
    ("turn", "tests", [1, 1, 1, 1, MANY]), ("turn", "tenant", "t" * 129), ("turn", "run_id", "r" * 257),
    ("run.started", "budgets", PAIRS), ("run.finished", "status", "s" * 1_025), ("operator.resume", "grant", PAIRS),
    ("task.created", "depends_on", MANY), ("task.delegated", "tasks", MANY),
    ("task.transition", "evidence", dict.fromkeys(PAIRS, (True,))),
    ("task.transition", "evidence", {"dod": [True, MANY]}), ("task.transition", "evidence", {"dod": [True, [], MANY]}),
    ("cycle.completed", "moved", [["t", "done"]] * (wire.BATCH_MAX + 1)),
])  # fmt: skip
def test_a_list_or_name_of_any_event_beyond_its_limit_is_refused(kind: str, field: str, value: Any) -> None:
    with pytest.raises(InvalidEvent, match="length <=") as refusal:
        read_event(orjson.dumps({"w": 1, "type": kind, "run_id": "r", "node": "n", field: value}))
    assert refusal.value.problems[0].field.startswith(field)


def lengths(kind: inspect.Type, place: str) -> Iterator[tuple[str, int | None]]:
    """Yield every list, object and text in a type, and its maximum length; keys of objects are at `place.key`."""
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from lengths(one, place)
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from lengths(field.type, f"{place}.{field.name}".lstrip("."))
    elif isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
        yield place, kind.max_length
        yield from lengths(kind.item_type, place)
    elif isinstance(kind, inspect.TupleType):
        for one in kind.item_types:
            yield from lengths(one, place)
    elif isinstance(kind, inspect.DictType):
        yield place, kind.max_length
        yield from lengths(kind.key_type, f"{place}.key")
        yield from lengths(kind.value_type, f"{place}.value")
    elif isinstance(kind, inspect.StrType):
        yield place, kind.max_length


def test_every_list_and_name_of_a_fingerprinted_event_has_a_limit() -> None:
    """So has every new field. A graph has limits of its own; content is never read, and keys are only compared."""
    found = {place: most for kind in wire.TYPED for place, most in lengths(inspect.type_info(kind), "")}
    free = {"graph", "content", "labels.value", *(f"{place}.key" for place in found)}
    assert {place for place, most in found.items() if most is None} <= free
    assert all(most <= 1_024 for most in found.values() if most is not None)


@pytest.mark.parametrize(
    ("field", "value"),
    [("usage", [-1]), ("usage", [2**53 + 1]), ("tests", [1, -1]), ("output", [-1, 1]), ("calls", [["t", -1]])],
)
def test_a_number_that_would_count_backwards_or_without_end_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidEvent, match=r"int. [<>]= ") as refusal:
        read_event(orjson.dumps({"w": 1, "type": "turn", "run_id": "r", "node": "n", field: value}))
    assert refusal.value.problems[0].field.startswith(field)


@pytest.mark.parametrize(("field", "value"), [
    ("calls", [["t", n] for n in range(wire.ITEMS_MAX + 1)]),
    ("progress", {f"m{n}": n for n in range(wire.ITEMS_MAX + 1)}),
    ("labels", {f"l{n}": "" for n in range(wire.PAIRS_MAX + 1)}), ("from", "n" * 257), ("next", "n" * 257),
    ("calls[0]", [["t" * 257, 1]]),
])  # fmt: skip
def test_a_fingerprinted_event_beyond_a_limit_is_refused_with_its_field(field: str, value: Any) -> None:
    """It is not read as a raw event either, which would be a turn without evidence."""
    record = {"w": 1, "type": "turn", "run_id": "r", "node": "n", field.partition("[")[0]: value}
    with pytest.raises(InvalidEvent) as refusal:
        read_event(orjson.dumps(record))
    [problem] = refusal.value.problems
    assert problem.field.startswith(field)
    assert "length <=" in problem.what
    assert problem.remedy


def fields(number: int) -> dict[str, str]:
    return {f"f{n}": "" for n in range(number)}


@pytest.mark.parametrize(("field", "value"), [
    ("tool_calls", [{"name": "t"}] * (raw_events.CALLS_MAX + 1)),
    ("tests", {"failed": [*fields(raw_events.TESTS_MAX + 1)]}),
    ("progress", dict.fromkeys(fields(raw_fields.METRICS_MAX + 1), 1)), ("labels", fields(raw_fields.LABELS_MAX + 1)),
    ("artifact", fields(raw_fields.FILES_MAX + 1)), ("usage", fields(raw_fields.FIELDS_MAX + 1)), ("tenant", "t" * 129),
    ("node", "n" * 257),
])  # fmt: skip
def test_a_raw_turn_beyond_a_limit_is_refused_with_its_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidEvent) as refusal:
        parse_raw({"run_id": "r", "node": "n", field: value})
    assert refusal.value.problems[0].field.startswith(field)


@pytest.mark.parametrize(("event", "what"), [
    ({"node": "n", **fields(raw_fields.FIELDS_MAX)}, f"more than {raw_fields.FIELDS_MAX}"),
    ({"type": "task.delegated", "tasks": ["t"] * nesting.VALUES_MAX}, f"more than {nesting.VALUES_MAX} values"),
    ({"type": "task.verdict", "verdict": "V" * 33}, "at most 32"),
])  # fmt: skip
def test_a_raw_event_with_too_much_in_it_is_refused(event: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidEvent, match=what):
        parse_raw({"run_id": "r", **event})


@pytest.mark.parametrize("item", ["[]", "{}", '["",""]', '{"[":"]"}'])
def test_an_event_of_too_many_lists_and_objects_is_refused_before_it_is_parsed(item: str) -> None:
    line = f'{{"run_id":"r","node":"n","structured_output":[{",".join([item] * nesting.CONTAINERS_MAX)}]}}'
    calls, event = counted(lambda: read_event(line.encode()))
    assert event is None
    assert calls < 2_000
    with pytest.raises(InvalidEvent, match=f"more than {nesting.CONTAINERS_MAX} lists and objects"):
        read_event(line.encode())


def test_brackets_in_texts_are_no_lists() -> None:
    code = 'if (a["b"]) { return [c]; } // \\' * nesting.CONTAINERS_MAX
    for turn in ({"output": code}, {"tool_calls": [{"name": "t", "arguments": '{"a":[' + "[]," * 30_000 + "1]}"}]}):
        assert read_event(orjson.dumps({"run_id": "r", "node": "n", **turn})).node == "n"


@pytest.mark.parametrize("unit", [b'"[', b'\\"[', b'"[\\', b"[\\", b'["",""],', b'"\\\\["'])
def test_brackets_are_counted_in_one_pass_whatever_the_quotes(unit: bytes) -> None:
    """A pattern that failed at each quote would take a minute for this MiB."""
    line = unit * (SIZE // len(unit))
    outside, inside, escaped = 0, False, False
    for character in line:
        if escaped:
            escaped = False
        elif inside and character == ord("\\"):
            escaped = True
        elif character == ord('"'):
            inside = not inside
        elif not inside:
            outside += character in b"[{"
    assert nesting.containers_exceed(line, nesting.CONTAINERS_MAX) == (outside > nesting.CONTAINERS_MAX)


def test_of_many_errors_and_of_many_mistakes_the_first_are_read() -> None:
    turn = parse_raw({"run_id": "r", "node": "n", "errors": ["it broke"] * (2 * raw_events.ERRORS_MAX)})
    assert len(turn.errors) == raw_events.ERRORS_MAX
    with pytest.raises(InvalidEvent) as refusal:
        parse_raw({"run_id": "r", "node": "n", "tool_calls": [{"name": 3}] * raw_events.CALLS_MAX})
    assert len(refusal.value.problems) == raw_events.PROBLEMS_MAX


def test_of_a_long_report_a_part_is_sent() -> None:
    report = {f"{n:03} {'i' * 100}": False for n in range(80)}
    sent = fingerprint(parse_raw({"type": "task.transition", "run_id": "r", "task_id": "t", "evidence": {"g": report}}))
    failing = sent.evidence["g"].failing
    assert (len(failing), {len(name) for name in failing}) == (24, {80})
    created = {"type": "task.created", "run_id": "r", "task_id": "t", "depends_on": [*fields(200)]}
    assert len(fingerprint(parse_raw(created)).depends_on) == 32


def test_the_largest_accepted_turn_is_stepped_within_the_limit() -> None:
    calls = [[f"t{n}", n, n, n, 1 + n % 2, n] for n in range(wire.ITEMS_MAX)]
    progress = {f"m{n}": n for n in range(wire.ITEMS_MAX)}
    record = {"w": 1, "type": "turn", "run_id": "r", "node": "n", "calls": calls, "progress": progress}
    event = read_event(orjson.dumps(record))
    feed = Feed()
    count, _ = counted(lambda: feed.event(event))
    assert (5 if core_kind() == "compiled" else 1_000) < count < STEP_CALLS_MAX  # calls inside C are not counted
    assert len(feed.stored) < STATE_BYTES_MAX


@pytest.mark.long
def test_all_largest_events_in_one_run_leave_a_bounded_state() -> None:
    feed = Feed()
    for name in CASES:
        try:
            event = read_event(maximal(name, size=100_000))
        except InvalidEvent:
            continue
        feed.event(event)
        assert len(feed.stored) < STATE_BYTES_MAX, name


# Graphs.


def ring(nodes: int) -> list[list[str]]:
    return [list(pair) for pair in pairwise([*(f"n{n}" for n in range(nodes)), "n0"])]


def tangle(nodes: int, edges: int) -> list[list[str]]:
    dice = random.Random(5)
    return [[f"n{dice.randrange(nodes)}", f"n{dice.randrange(nodes)}"] for _ in range(edges)]


@pytest.mark.parametrize(("graph", "what"), [
    ({"edges": tangle(90, EDGES_MAX + 1)}, f"{EDGES_MAX + 1} edges, more than {EDGES_MAX}"),
    ({"nodes": [f"n{n}" for n in range(NODES_MAX + 1)]}, f"{NODES_MAX + 1} nodes, more than {NODES_MAX}"),
    ({"edges": ring(NODES_MAX + 1)}, f"{NODES_MAX + 1} nodes, more than {NODES_MAX}"),
    ({"nodes": ["a", "b"], "leads_to": [[1] * EDGES_MAX, [0]]}, f"{EDGES_MAX + 1} edges, more than {EDGES_MAX}"),
    ({"nodes": ["a"], "leads_to": [[]] * (NODES_MAX + 1)}, f"more than {NODES_MAX}"),
    ({"nodes": ["a"], "anchors": [[0, 0]] * (EDGES_MAX + 1)}, f"{EDGES_MAX + 1} anchors, more than {EDGES_MAX}"),
    ({"terminals": ["a"] * (NODES_MAX + 1)}, f"{NODES_MAX + 1} terminals, more than {NODES_MAX}"),
])  # fmt: skip
def test_a_graph_above_a_limit_is_ignored_and_the_warning_names_the_limit(graph: dict[str, Any], what: str) -> None:
    feed = Feed()
    [warning] = feed.raw({"type": "run.started", "graph": graph})
    assert (warning.code, warning.severity) == ("GRAPH002", "warn")
    assert what in warning.message
    assert "declare only the cycles" in warning.message

    for n in range(3):
        feed.raw({"node": "a", "output": f"{n}"})
        feed.raw({"node": "b", "output": f"also {n}"})
    assert [cycle.iterations for cycle in feed.state.cycles.table.rows] == [2]  # found from handovers


@pytest.mark.parametrize(
    "edges", [tangle(NODES_MAX - 1, EDGES_MAX - 1), ring(NODES_MAX - 1), tangle(99, EDGES_MAX - 1)]
)
def test_the_largest_graph_is_followed_within_the_limit(edges: list[list[str]]) -> None:
    started = wire.RunStarted(w=1, run_id="r", graph={"edges": [*edges, ["n0", "END"]]})
    feed = Feed()
    calls, decisions = counted(lambda: feed.event(started))
    assert decisions == []
    assert len(feed.state.cycles.table) == 1
    assert calls < 11 * EDGES_MAX


def test_a_check_in_your_own_process_has_no_limit() -> None:
    [cycle] = check_graph({"edges": [*ring(3 * NODES_MAX), ["n0", "END"]]})
    assert len(cycle.nodes) == 3 * NODES_MAX


def test_a_worker_survives_a_slice_of_the_largest_graphs() -> None:
    step = processor()
    step._event_bytes_max = SIZE
    graphs = [(b"r%d" % n, maximal("wire run.started chain", f"r{n}")) for n in range(10)]
    warnings = controls(step.accept(runs(), records_of(graphs)))
    assert [warning.code for warning in warnings] == ["GRAPH002"] * 10


# Files.


def bomb(levels: int, key: str = "labels") -> str:
    """Return a YAML text of a few lines; each of its levels is ten aliases of the one before."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join([*lines, f"{key}: *a{levels - 1}"])


def test_a_policy_that_expands_without_end_is_refused_at_once(policy_file: Callable[[str], Path]) -> None:
    path = policy_file(bomb(40))
    with pytest.raises(InvalidPolicy) as refusal:
        load_policy(path)
    [problem] = refusal.value.problems
    assert problem.place.startswith(f"{path}:")
    assert f"more than {VALUES_MAX} values" in problem.what
    assert "alias" in problem.remedy


def test_a_policy_that_is_nested_too_deeply_is_refused(policy_file: Callable[[str], Path]) -> None:
    path = policy_file(f"budgets: {'[' * 100_000}")
    with pytest.raises(InvalidPolicy, match="nested too deeply") as refusal:
        load_policy(path)
    assert refusal.value.problems[0].place == f"{path}:1"


@pytest.mark.parametrize("text", [bomb(40), f"a: {'[' * 100_000}", "a: &a [*a]", "a: &a\n  <<: *a"])
def test_a_notify_file_that_expands_without_end_is_refused_at_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notify.yaml"
    path.write_text(text)
    with pytest.raises(InvalidSettings, match=r"notify\.yaml:\d+: (has more|is nested|contains itself)"):
        load_notification_config(str(path), [])


def test_merge_keys_and_aliases_are_read_as_before() -> None:
    text = "base: &base {a: 1, b: [1, 2]}\nother: {<<: *base, a: 2}\nlist: [*base, *base]"
    assert read_yaml(text) == yaml.safe_load(text)
    deep = "[" * (LEVELS_MAX - 1) + "]" * (LEVELS_MAX - 1)
    assert read_yaml(deep) == yaml.safe_load(deep)


@pytest.fixture
def policy_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write a policy file, and return its path."""

    def write(text: str) -> Path:
        path = tmp_path / "policy.yaml"
        path.write_text(text)
        return path

    return write


class Unread(dict[bytes, Any]):
    """Stored accounts that may not be read."""

    def get(self, key: bytes, default: Any = None) -> Any:
        raise AssertionError(f"{key!r} was read before its time")


def test_the_clock_of_providers_reads_only_the_breakers_whose_time_has_come() -> None:
    """Publishers name them, and a `retry_after` keeps each open for minutes. The clock looks ten times a second."""
    accounts, policy = AccountPartition(0, lambda: 0), load_policy("standard")
    book = AccountProcessor("spend", policy=policy, version="1", dead_letter_bytes=1_024)
    for number in range(50):
        calls = [CallEntry(n, NOON_MS, UNAVAILABLE, 1, n % 3, 900_000) for n in range(30)]
        name = f"provider:p{number}"
        book.accept(
            accounts, records_of([(name.encode(), write_calls(CallStatement(1, name, 0, calls)))], first=number)
        )
    accounts.take()
    given: list[Any] = []
    now = [NOON_MS + 1_000]
    clock = ProviderClock(
        SimpleNamespace(), policy.providers, SimpleNamespace(partitions={0: accounts}),  # type: ignore[arg-type]
        {0: SimpleNamespace(give=given.extend)}, lambda: now[0],  # type: ignore[arg-type]
    )  # fmt: skip
    assert len(clock.states()) == 50
    stored, active, accounts._stored, accounts._active = accounts._stored, accounts._active, Unread(), Unread()
    clock.look()
    assert given == []
    accounts._stored, accounts._active = stored, active
    now[0] += 20 * 60_000
    clock.look()
    assert len(given) == 50
    clock.look()
    assert len(given) == 50, "told once, and again only after a while"


def test_the_clock_is_looked_at_between_a_few_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a full tree takes a millisecond: a thousand of them in a row would hold the loop for a second."""
    now = [0.0]
    monkeypatch.setattr(timed_records, "time", SimpleNamespace(monotonic=lambda: now[0]))
    timed = TimedRecords(records_of([(b"tree:/s", b"{}")] * 1_000))
    for _ in timed:
        now[0] += 0.001
    assert len(timed) * 0.001 <= SLICE_S + SLICE_CHECK_RECORDS * 0.001
