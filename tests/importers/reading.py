"""What the tests of importers share: reading a log, judging what was read, and changing records at random."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from streamproc.importers import FORMATS, Format, Import, LogFile
from streamproc.importers.discovery import format_of
from streamproc.importers.imported import Imported
from streamproc.model.raw_events import parse_raw
from streamproc.monitor import Monitor

Row = dict[str, Any]

SAMPLES = Path(__file__).parent / "samples"
ODD_VALUES = (None, "", "text", 7, -1, 1.5, 2**60, True, [], {}, [None, 3, "x", {}], {"type": "odd"}, "x" * 400)


def records_of(path: Path, one: Format | None = None, reading: Import | None = None) -> Iterator[Imported]:
    """Yield the records of a log. Each must be a raw event without unknown fields."""
    log, reading = LogFile(path), reading or Import()
    one = one or format_of(log, FORMATS)
    assert one is not None
    for found in one.read(log, reading):
        assert found.number >= 1 or found.unit == "event"
        assert parse_raw(found.event).unknown_fields == ()
        reading.tally(one.name).count(found.event)
        yield found


def events_of(path: Path, one: Format | None = None, reading: Import | None = None) -> list[Row]:
    """Return the raw events of a log."""
    return [found.event for found in records_of(path, one, reading)]


def imported(path: Path, one: Format | None = None, reading: Import | None = None) -> list[Row]:
    """Return the raw events of a log, with their numbers under `#`."""
    return [{"#": f"{found.unit} {found.number}", **found.event} for found in records_of(path, one, reading)]


def turns_of(events: Iterable[Row]) -> list[Row]:
    """Return the turns among raw events."""
    return [event for event in events if event.get("type", "turn") == "turn"]


def calls_of(events: Iterable[Row]) -> list[Row]:
    """Return the calls of all turns."""
    return [call for event in events for call in event.get("tool_calls", ())]


def calls(path: Path) -> list[Row]:
    """Return the calls of a log, whose format is recognized."""
    return calls_of(imported(path))


def written(path: Path, value: Any) -> Path:
    """Write one JSON document; a name in `.jsonl` gets the items of a list line by line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in value) if path.suffix == ".jsonl" else json.dumps(value)
    path.write_text(lines)
    return path


def expected(path: Path) -> list[Row]:
    """Return the raw events that a sample stands for, one a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def halt_codes(events: Iterable[Row]) -> list[str]:
    """Return the codes of the halts that raw events lead to."""
    monitor = Monitor()
    return [control.code for event in events for control in monitor.feed(event) if control.severity == "halt"]


def halts(events: list[Row]) -> set[tuple[str, str]]:
    """Return the halted runs of raw events, each with the code of its first halt."""
    monitor, found = Monitor(), {}
    for event in events:
        for control in monitor.feed({key: value for key, value in event.items() if key != "#"}):
            if control.severity == "halt":
                found.setdefault(control.run_id, control.code)
    return set(found.items())


def formats_that_match(path: Path) -> list[str]:
    """Return the names of all formats that take a log for theirs."""
    sample = LogFile(path).sample()
    return [one.name for one in FORMATS if one.matches(sample)]


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all values inside of a value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*place, key)
        yield from places(child, (*place, key))


def _without(value: Any, place: tuple[Any, ...], new: Any, *, delete: bool) -> None:
    for key in place[:-1]:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return  # an earlier change took it away
    try:
        if delete:
            del value[place[-1]]
        else:
            value[place[-1]] = new
    except (KeyError, IndexError, TypeError):
        return


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """Return a document in which values of any kind stand at up to six places, or are missing."""
    found = copy.deepcopy(document)
    known = list(places(found))
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.sampled_from(known))
        _without(found, place, copy.deepcopy(draw(st.sampled_from(ODD_VALUES))), delete=draw(st.booleans()))
    return found
