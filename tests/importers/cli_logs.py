"""Logs of coding agents for tests: written to files, read as raw events, and judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from streamproc.importers import FORMATS, Format, Import, LogFile
from streamproc.importers.discovery import format_of, log_paths
from tests.importers.reading import SAMPLES, Row, calls_of, events_of, places

if TYPE_CHECKING:
    from collections.abc import Iterable


def named(name: str) -> Format:
    """Return a format."""
    return next(one for one in FORMATS if one.name == name)


def read_log(name: str, path: Path, reading: Import | None = None) -> list[Row]:
    """Return the raw events of a log of a format."""
    return events_of(path, named(name), reading)


def shape(events: Iterable[Row]) -> list[str]:
    """Return what happened, in short: `u` for a person's message, else the texts and tools of a turn."""
    return [
        "u" if event.get("type") == "user.message" else
        "+".join([*([event["output"]] if event.get("output") else []), *(call["name"] for call in calls_of([event]))])
        for event in events
    ]  # fmt: skip


def formats_found(folder: Path) -> set[str]:
    """Return the formats of the logs in a directory."""
    return {found.name for path in log_paths([str(folder)]) if (found := format_of(LogFile(path), FORMATS)) is not None}


def samples_matched(name: str) -> set[str]:
    """Return the sample directories with a log that a format claims."""
    return {
        Path(path).relative_to(SAMPLES).parts[0]
        for path in log_paths([str(SAMPLES)])
        if named(name).matches(LogFile(path).sample())
    }


odd_values: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["user", "assistant", "tool_use", "tool_result", "message", "2026-01-01T00:00:00Z", "x" * 400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, rows: list[Row]) -> list[Any]:
    """Change some values of some rows, or drop, repeat and move rows."""
    found: list[Any] = json.loads(json.dumps(rows))
    for _ in range(draw(st.integers(1, 5))):
        if not found:
            break
        match draw(st.integers(0, 5)):
            case 0:
                found.pop(draw(st.integers(0, len(found) - 1)))
            case 1:
                found.append(found[draw(st.integers(0, len(found) - 1))])
            case 2:
                found.insert(0, found.pop(draw(st.integers(0, len(found) - 1))))
            case _:
                where = draw(st.sampled_from(list(places(found))))
                target: Any = found
                for key in where[:-1]:
                    target = target[key]
                target[where[-1]] = draw(odd_values)
        found = json.loads(json.dumps(found))
    return found
