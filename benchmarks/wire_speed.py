"""Decoding and encoding records of the turns topic, compared with other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson
from aiokafka.partitioner import murmur2
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.timing import best_median, interleaved, piece_us
from benchmarks.traces import sample_runs
from streamproc.fingerprint import read_event
from streamproc.kafka.partitioning import Home
from streamproc.model import wire

PARTITIONS: Final = 12
PASSES: Final = 3  # over the samples, per round


class PydanticTurn(BaseModel):
    """`wire.Turn` for pydantic, equally strict."""

    model_config = ConfigDict(extra="ignore")

    w: int = Field(ge=1, le=1)
    type: str
    run_id: str = Field(min_length=1, max_length=256)
    node: str = Field(min_length=1, max_length=256)
    event_id: str = ""
    at: int | None = None
    output: tuple[int, int, int, int, int] | None = None
    structured: tuple[int, int, int, int, int] | None = None
    artifact: tuple[int, int, int, int, int] | None = None
    calls: list[tuple[str, int, int, int, int, int, int]] = []
    usage: tuple[int, int, int, int, int | None, int, int] | None = None


def rows(sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of the wire format."""
    values = [wire.encode(event) for run in sample_runs() for event, _ in run]
    for value in values:
        _check(value)
    readers: dict[str, Callable[[bytes], Any]] = {
        "ours": read_event,
        "orjson, into dicts, without validation": orjson.loads,
        "pydantic, into models": PydanticTurn.model_validate_json,
    }
    figures = interleaved({name: _timed(read, values) for name, read in readers.items()}, max(3, sizes.rounds))
    us = {name: min(found) for name, found in figures.items()}
    size = sum(map(len, values)) / len(values)
    what = f"decoding a turn of {size:.0f} bytes into validated types (msgspec)"
    for name in list(readers)[1:]:
        yield Row(f"wire.decode.{name.split(',')[0]}", what, us["ours"], "µs", name, us[name])
    encoded = [event for run in sample_runs() for event, _ in run]
    us_to_encode = best_median([[_timed(wire.encode, encoded)()] for _ in range(5)])
    yield Row("wire.encode", "encoding that turn", us_to_encode, "µs")
    yield _home_row([event.run_id.encode() for event in encoded], sizes)


def _home_row(keys: list[bytes], sizes: Sizes) -> Row:
    """Return what a run that a worker does not hold costs once; one that it holds is at home."""
    home = Home("murmur2", PARTITIONS)
    for key in keys:
        if home.of(key) != (murmur2(key) & 0x7FFFFFFF) % PARTITIONS:
            raise BenchmarkDefect("the hashes of keys disagree")
    ways: dict[str, Callable[[bytes], Any]] = {"ours": lambda key: home.holds(key, 0), "aiokafka's murmur2": murmur2}
    figures = interleaved({name: _timed(way, keys) for name, way in ways.items()}, max(3, sizes.rounds))
    ours, theirs = (min(figures[name]) for name in ways)
    what = "whether a new run is in its home partition"
    return Row("wire.home", what, ours, "µs", "aiokafka's murmur2", theirs, aim=Aim("≤", 1))


def _timed(read: Callable[[Any], Any], values: list[Any]) -> Callable[[], float]:
    def work(values: list[Any]) -> None:
        for value in values:
            read(value)

    return lambda: piece_us(work, values * PASSES, PASSES * len(values))


def _check(value: bytes) -> None:
    """Check that all three readers agree."""
    event, plain = wire.decode(value), orjson.loads(value)
    modelled = PydanticTurn.model_validate_json(value)
    if not event.run_id == plain["run_id"] == modelled.run_id:
        raise BenchmarkDefect("the readers of the wire disagree")
    if isinstance(event, wire.Turn) and len(event.calls) != len(modelled.calls):
        raise BenchmarkDefect("the readers of the wire disagree about calls")
