"""The wire format of the turns topic: every written record stays readable."""

from __future__ import annotations

import msgspec
import pytest

from streamproc.model import wire
from streamproc.model.wire import Call, Content, Errors, Turn, Usage, decode, encode

FULL = Turn(
    w=1, run_id="r", node="coder", event_id="e", at=1_767_225_600_000, from_="planner", output=Content(1, 2, 3, 4),
    tests=wire.Tests(5, 1, 2, 3, ("t1",)), errors=Errors(6, 7, 1, "boom", "Bang", True),
    calls=(Call("run", 8, 9, 10, wire.ANSWERED, 11),), usage=Usage(1, 2, 3, 4, 5, 6), progress={"score": 0.5},
)  # fmt: skip
WRITTEN = (
    b'{"type":"turn","w":1,"run_id":"r","node":"coder","event_id":"e","at":1767225600000,"from":"planner",'
    b'"output":[1,2,3,4,0],"tests":[5,1,2,3,["t1"]],"progress":{"score":0.5},'
    b'"errors":[6,7,1,"boom","Bang",true],"calls":[["run",8,9,10,1,11,0]],"usage":[1,2,3,4,5,6,0]}'
)


def test_the_encoding_of_a_turn_is_pinned() -> None:
    assert encode(FULL) == WRITTEN
    assert decode(WRITTEN) == FULL


def test_fields_of_a_newer_publisher_are_ignored() -> None:
    newer = (
        WRITTEN.replace(b"[1,2,3,4,0]", b'[1,2,3,4,0,"more"]')
        .replace(b'[["run",8,9,10,1,11,0]]', b'[["run",8,9,10,1,11,0,3]]')
        .replace(b'"node":', b'"mood":"grim","node":')
    )
    assert newer != WRITTEN
    assert decode(newer) == FULL


def test_fields_that_an_older_publisher_lacks_have_defaults() -> None:
    older = decode(b'{"w":1,"type":"turn","run_id":"r","node":"n","output":[1,2],"calls":[["t",3]],"usage":[]}')
    assert older == Turn(w=1, run_id="r", node="n", output=Content(1, 2), calls=(Call("t", 3),), usage=Usage())


@pytest.mark.parametrize("kind", [event.type for event in wire.TYPED])
def test_each_type_decodes_to_its_own_class(kind: str) -> None:
    event = decode(b'{"w":1,"type":"%s","run_id":"r","node":"n"}' % kind.encode())
    assert event.type == kind
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    "record",
    [b"", b"{}", b'{"w":1,"run_id":"r","node":"n"}', b'{"w":1,"type":"turn","run_id":"r"}',
     b'{"w":1,"type":"turn","run_id":"","node":"n"}', b'{"w":1,"type":"turn","run_id":"r","node":""}',
     b'{"w":0,"type":"turn","run_id":"r","node":"n"}', b'{"w":2,"type":"turn","run_id":"r","node":"n"}',
     b'{"type":"turn","run_id":"r","node":"n"}', b'{"w":1,"type":"nonesuch","run_id":"r","node":"n"}',
     b'{"w":1,"type":"turn","run_id":"r","node":"n","output":[1]}',
     b'{"w":1,"type":"turn","run_id":"r","node":"n","output":[1,-2]}',
     b'{"w":1,"type":"turn","run_id":"r","node":"n","output":"text"}',
     b'{"w":1,"type":"turn","run_id":"r","node":"n","usage":[-1]}',
     b'{"w":1,"type":"turn","run_id":"r","node":"n","usage":[0,0,0,0,1.5]}',
     b'{"w":1,"type":"turn","run_id":"r","node":"n","workflow":"' + b"x" * 129 + b'"}'],
    ids=lambda record: record.decode()[:60],
)  # fmt: skip
def test_a_record_outside_the_format_is_refused(record: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(record)


def test_a_minimal_turn_has_a_minimal_encoding() -> None:
    assert encode(Turn(w=1, run_id="r", node="n")) == b'{"type":"turn","w":1,"run_id":"r","node":"n"}'
