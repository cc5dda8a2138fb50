"""The words that signals are written with: what they keep, in which order, and how they are stored."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeGuard

import pytest
import xxhash
from hypothesis import given, strategies as st

import streamproc.core
from streamproc.core.records import (
    HASH,
    NAME_CHARS,
    Name,
    Part,
    Reader,
    StateError,
    Table,
    Tags,
    Trail,
    Values,
    Writer,
)
from streamproc.core.run_state import (
    HEAD,
    LAYOUT,
    STATE_VERSION,
    RunState,
    check,
    dump,
    load,
    peek,
    peek_scope,
    stub_of,
)
from streamproc.core.signals.metrics import Metric
from streamproc.core.signals.nodes import NodeState
from tests.feeding import Feed, Raw
from tests.laws.traces import BRIEF, LONGER, traces
from tests.states import shown
from tests.syntax import syntax_of

CAP: Final = 5
TAG = st.integers(0, 2**32 - 1)
FEW = st.integers(0, 9)
KEY = st.integers(0, HASH)
TURN = st.integers(0, 2**31 - 1)


def stored(part: Part) -> bytes:
    writer = Writer()
    writer.begin(b"")
    part.dump(writer)
    return writer.end()


def filled(part: Part, raw: bytes) -> Part:
    """Load a part from all of these bytes."""
    reader = Reader()
    reader.begin(raw, 0)
    part.load(reader)
    reader.end()
    return part


def trail(pairs: list[tuple[int, int]]) -> Trail:
    made = Trail(CAP)
    for number, turn in pairs:
        made.push(number, turn)
    return made


def tags(numbers: list[int]) -> Tags:
    made = Tags(CAP)
    for number in numbers:
        made.add(number)
    return made


def values(numbers: list[int]) -> Values:
    made = Values(CAP)
    for number in numbers:
        made.push(number)
    return made


def table(rows: list[tuple[int, float, int]]) -> Table:
    made = Table(Metric, CAP)
    for key, best, first in rows:
        row = made.touch(key) or made.add(key)
        row.best, row.first = best, first
    return made


def name(text: str) -> Name:
    made = Name()
    made.set(text)
    return made


def node(numbers: list[int]) -> NodeState:
    """Return a row of which a few parts are in use."""
    made = NodeState()
    for place, number in enumerate(numbers):
        part = (made.artifact, made.errors, made.query, made.reply)[place % 4]
        part.value, part.count, part.first, part.stamp = number, 1 + place, place, -place
    return made


ROWS = st.tuples(FEW, st.floats(allow_nan=False), st.integers(-(2**31), 2**31 - 1))
KINDS = (
    st.lists(st.tuples(TAG, TURN), max_size=8).map(trail), st.lists(TAG, max_size=8).map(tags),
    st.lists(KEY, max_size=8).map(values), st.lists(ROWS, max_size=8).map(table), st.text(max_size=20).map(name),
    st.lists(KEY, max_size=4).map(node),
)  # fmt: skip
PARTS = st.one_of(*KINDS)
PAIRS = st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(kind, kind))


def blank(part: Part) -> Part:
    """Return an empty part of the same kind."""
    made: dict[type, Callable[[], Part]] = {
        Trail: lambda: Trail(CAP), Tags: lambda: Tags(CAP), Values: lambda: Values(CAP),
        Table: lambda: Table(Metric, CAP), Name: Name, NodeState: NodeState,
    }  # fmt: skip
    return made[type(part)]()


# Stored and loaded.


@given(PARTS)
@LONGER
def test_what_is_stored_is_loaded(part: Part) -> None:
    raw = stored(part)
    again = filled(blank(part), raw)
    assert shown(again) == shown(part)
    assert stored(again) == raw
    assert part.size_bytes() == again.size_bytes() == len(raw)


@given(PAIRS)
@LONGER
def test_a_used_part_keeps_nothing_of_what_it_held(pair: tuple[Part, Part]) -> None:
    part, used = pair
    assert stored(filled(used, stored(part))) == stored(part)
    used.clear()
    assert stored(used) == stored(blank(part))


@given(PARTS, st.integers(1, 400))
@LONGER
def test_bytes_that_end_early_are_refused(part: Part, less: int) -> None:
    raw = stored(part)
    with pytest.raises(StateError):
        filled(blank(part), raw[: max(0, len(raw) - less)])


@given(PARTS)
@BRIEF
def test_bytes_that_are_left_over_are_refused(part: Part) -> None:
    with pytest.raises(StateError, match="left over"):
        filled(blank(part), stored(part) + b"\0")


@pytest.mark.parametrize("part", [Trail(CAP), Tags(CAP), Values(CAP), Table(Metric, CAP), Name()])
@pytest.mark.parametrize("count", [CAP + 1, 200, 255])
def test_a_count_above_its_cap_is_refused(part: Part, count: int) -> None:
    count = max(count, 4 * NAME_CHARS + 1) if isinstance(part, Name) else count
    with pytest.raises(StateError, match="out of bounds"):
        filled(part, bytes((count,)) + b"\0" * 20_000)


def test_a_part_that_does_not_exist_is_refused() -> None:
    raw = stored(node([1]))
    with pytest.raises(StateError, match="does not exist"):
        filled(NodeState(), raw[:46] + b"\x00\x80" + raw[48:])


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(StateError, match="UTF-8"):
        filled(Name(), b"\x02\xff\xff")


@given(st.binary(max_size=300))
@LONGER
def test_any_bytes_are_refused_or_stored_again(raw: bytes) -> None:
    for part in (Trail(CAP), Values(CAP), Name(), NodeState()):
        try:
            filled(part, raw)
        except StateError:
            continue
        again = stored(part)
        assert stored(filled(blank(part), again)) == again


# Caps and order.


@given(st.lists(st.tuples(TAG, TURN), max_size=20))
@BRIEF
def test_a_trail_keeps_the_last_numbers_and_their_turns(pairs: list[tuple[int, int]]) -> None:
    made, kept = trail(pairs), pairs[-CAP:]
    assert shown(made) == kept
    for count, (number, turn) in enumerate(reversed(kept), 1):
        assert (made.ago(count), made.turn_ago(count)) == (number, turn)
    made.keep_last(2)
    assert shown(made) == kept[-2:]
    assert [made.has(number) for number, _ in kept[-2:]] == [True] * made.size


@given(st.lists(FEW, max_size=20), FEW)
@BRIEF
def test_a_trail_finds_every_time_a_number_was_added(numbers: list[int], number: int) -> None:
    made = trail([(one, turn) for turn, one in enumerate(numbers)])
    found, age = [], made.next_age(number, 0)
    while age:
        found.append(age)
        age = made.next_age(number, age)
    last = numbers[-CAP:]
    assert found == [age for age in range(1, len(last) + 1) if last[-age] == number]


@given(st.lists(FEW, max_size=30))
@BRIEF
def test_tags_forget_the_one_that_was_not_met_for_longest(numbers: list[int]) -> None:
    made, expected = Tags(CAP), list[int]()
    for number in numbers:
        assert made.add(number) is (number not in expected)
        expected = [*(one for one in expected if one != number), number][-CAP:]
        assert list(made) == expected
        assert made.full() is (len(expected) == CAP)
        assert all(made.has(one) for one in expected)
    made.keep_last(2)
    assert list(made) == expected[-2:]


@given(st.lists(KEY, max_size=20))
@BRIEF
def test_values_keep_the_last_numbers(numbers: list[int]) -> None:
    made = values(numbers)
    assert made.listed() == numbers[-CAP:]
    assert [made.at(place) for place in range(made.size)] == made.listed()
    assert made.full() is (len(numbers) >= CAP)
    if made.size:
        made.drop_last()
        assert made.listed() == numbers[-CAP:][:-1]
    made.keep_last(2)
    assert made.listed() == numbers[-CAP:][:-1][-2:]


@given(st.lists(st.tuples(st.sampled_from(["add", "touch", "find", "forget", "rekey", "keep_last"]), FEW), max_size=40))
@LONGER
def test_a_table_forgets_the_row_that_was_not_touched_for_longest(steps: list[tuple[str, int]]) -> None:
    made, expected = Table(Metric, CAP), dict[int, int]()
    for number, (step, key) in enumerate(steps):
        if step == "add" and key not in expected:
            if len(expected) == CAP:
                del expected[next(iter(expected))]
            row = made.add(key)
            assert (row.key, row.best, row.count) == (key, 0.0, 0), "a row that is used again is blank"
            row.count = expected[key] = number
        elif step == "touch":
            assert (made.touch(key) is None) is (key not in expected)
            if key in expected:
                expected[key] = expected.pop(key)
        elif step == "find":
            assert getattr(made.find(key), "count", None) == expected.get(key)
        elif step == "forget":
            made.forget(key)
            expected.pop(key, None)
        elif step == "rekey" and key in expected and key + 10 not in expected:
            made.rekey(key, key + 10)
            expected[key + 10] = expected.pop(key)
        elif step == "keep_last":
            made.keep_last(key)
            expected = dict(list(expected.items())[max(0, len(expected) - key) :])
        assert [(row.key, row.count) for row in made.rows] == list(expected.items())
        assert (len(made), made.full()) == (len(expected), len(expected) == CAP)
        assert getattr(made.youngest(), "key", None) == (list(expected) or [None])[-1]


@given(st.text(max_size=40))
@BRIEF
def test_a_name_keeps_its_first_characters(text: str) -> None:
    assert name(text).get() == text[:NAME_CHARS]


# Whole states.


@given(traces, traces)
@BRIEF
def test_a_state_that_is_loaded_over_another_one_leaves_nothing_of_it(one: list[Raw], other: list[Raw]) -> None:
    first, second = Feed(), Feed()
    first.all(one)
    second.all(other)
    raw = dump(second.state)
    used = load(raw, first.state)
    assert used is first.state
    check(used)
    assert dump(used) == raw
    assert shown(used) == shown(load(raw))
    assert used.size_bytes() == len(raw)


@given(traces)
@BRIEF
def test_the_first_fields_of_a_state_are_read_without_loading_it(trace: list[Raw]) -> None:
    feed = Feed()
    feed.all(trace)
    for state in (feed.state, stub_of(feed.state)):
        raw = dump(state)
        head = peek(b"frame" + raw, 5)
        assert head == (state.offset, state.turns, state.halted, state.finished)
        assert peek_scope(raw) == state.scope


@given(traces)
@BRIEF
def test_a_stub_is_stored_without_its_memory_and_loaded_alike(trace: list[Raw]) -> None:
    feed = Feed()
    feed.all(trace)
    stub = stub_of(feed.state)
    raw = dump(stub)
    assert len(raw) < 512
    assert dump(load(raw, feed.state)) == raw
    assert shown(load(raw)) == shown(stub)
    feed.raw({"node": "coder", "output": "one more"})
    assert not feed.state.stub
    assert dump(load(feed.stored)) == feed.stored


@pytest.mark.parametrize("raw", [b"", HEAD, HEAD[:-1], b"\x09" + dump(RunState())[1:], dump(RunState()) + b"\0"])
def test_what_is_no_state_is_refused(raw: bytes) -> None:
    with pytest.raises(StateError):
        load(raw)


def damaged(run: RunState) -> dict[str, Callable[[], object]]:
    """Return changes to a state with calls and periods that no event could cause."""
    return {
        "a negative number of turns": lambda: setattr(run, "turns", -1),
        "more call turns than turns": lambda: setattr(run, "call_turns", run.turns + 1),
        "a board that is not there": lambda: setattr(run, "has_board", True),
        "open turns that are not there": lambda: setattr(run, "turns_open", 2),
        "task tokens that are not there": lambda: setattr(run, "has_task_tokens", True),
        "a severity above a halt": lambda: setattr(run.escalation, "severity", 3),
        "a call that was never made": lambda: run.calls.table.rows[0].times.clear(),
        "a period of more tags than there are": lambda: run.streams.windows.rows[0].held.add(99),
        "a long text without a turn": lambda: run.long_texts.sims.push(1),
        "a call turn without its calls": lambda: setattr(run.cold, "recent_calls", [[1]]),
    }


@pytest.mark.parametrize("what", list(damaged(RunState())))
def test_a_state_that_no_event_could_cause_is_refused(what: str) -> None:
    feed = Feed()
    feed.all([{"node": "coder", "tool_calls": [{"name": "run", "args": {"n": n}, "result": f"{n}"}]} for n in range(3)])
    check(feed.state)
    damaged(feed.state)[what]()
    with pytest.raises(StateError):
        check(load(feed.stored))


# The layout.

PINNED: Final = {2: 1246357637, 3: 2561096963, 4: 3293786864, 5: 264164461, 6: 336247800}
"""The layout of each version, as a hash. Of a version that was released it never changes: raise `STATE_VERSION`, add a
line, and read the version before (`run_state.LATER`)."""


def layout() -> list[Any]:
    """Return all record classes: their numbers and parts in the order in which they are stored."""
    files = sorted(Path(streamproc.core.__file__ or "").parent.rglob("*.py"))
    classes = [one for file in files for one in syntax_of(file.read_text(encoding="utf-8")).body if is_record(one)]
    return [[one.name, ast.unparse(one.bases[0]), numbers_of(one), parts_of(one)] for one in classes]


def is_record(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base) in ROOTS for base in node.bases)


ROOTS: Final = ("Record", "Row", "Sparse")
NUMBERS: Final = ("u64", "i64", "f64", "u32", "i32", "flag")


def numbers_of(one: ast.ClassDef) -> list[list[str]]:
    annotated = [(part.target, part.annotation) for part in one.body if isinstance(part, ast.AnnAssign)]
    return [[ast.unparse(field), ast.unparse(word)] for field, word in annotated if ast.unparse(word) in NUMBERS]


def parts_of(one: ast.ClassDef) -> list[list[str]]:
    """Return the names and kinds of the parts, in the order in which `__init__` hands them over."""
    made: dict[str, str] = {}
    order: list[str] = []
    for part in ast.walk(one):
        if (
            isinstance(part, ast.Assign)
            and isinstance(part.targets[0], ast.Tuple)
            and isinstance(part.value, ast.Tuple)
        ):
            made |= dict(zip(map(ast.unparse, part.targets[0].elts), map(kind_of, part.value.elts), strict=True))
        elif isinstance(part, ast.Assign):
            made[ast.unparse(part.targets[0])] = kind_of(part.value)
        elif isinstance(part, ast.Call) and ast.unparse(part.func) == "super().__init__":
            order = list(map(ast.unparse, part.args))
    return [[name, made[name]] for name in order]


def kind_of(value: ast.expr) -> str:
    """Return what a container holds, without its cap."""
    if not isinstance(value, ast.Call):
        return ""
    rows = ast.unparse(value.args[0]) if ast.unparse(value.func) == "Table" else ""
    return f"{ast.unparse(value.func)} {rows}".strip()


def test_a_changed_layout_has_another_version() -> None:
    found = layout()
    assert len(found) > 20
    assert xxhash.xxh32_intdigest(json.dumps(found).encode()) == LAYOUT == PINNED[STATE_VERSION]


def kinds_of(part: type[Part]) -> list[type[Part]]:
    return [part, *(below for one in part.__subclasses__() for below in kinds_of(one))]


def test_no_part_of_a_run_has_a_dict() -> None:
    """In pure Python it would make a run twice as large, and its fields slow to read."""
    own = [kind for kind in kinds_of(Part) if not kind.__module__.startswith("tests")]

    assert len(own) > 25
    assert [kind.__name__ for kind in own if "__dict__" in dir(kind)] == []
