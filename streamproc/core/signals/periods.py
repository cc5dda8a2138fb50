"""Periods: streams of hashes that repeat with a length of 2 to 16, at a bounded cost per event.

Memory: for each stream a `HashWindow` of the last `PERIOD_MAX` tags and the periods that still hold. An element
extends every period that it continues and drops all others, so the engine never compares whole rounds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamproc.core.run_state import WINDOW_BYTES, HashWindow, RunState

PERIOD_MAX: Final = 16

# Streams of a run, one window each.
STEPS: Final = 1  # all steps: calls with their answers, and statements
STATEMENTS: Final = 2  # texts, structured outputs, artifacts and pages, whatever was called in between
ARTIFACTS: Final = 3  # artifacts, as they change; only measured progress clears it
NARRATION: Final = 4  # texts with no call in between, of nodes that call tools
OWN: Final = 8  # and above: the statements of one node (`own_stream`), if the policy's gate of LOOP002 is not `any`


class Period(NamedTuple):
    """A period with which a stream repeats."""

    stream: int  # STEPS, STATEMENTS, ARTIFACTS, NARRATION, or the own stream of a node
    length: int  # elements of a round
    matches: int  # elements in a row that equalled the one a round earlier
    onset: int  # turn in which the first round began
    tags: list[int]  # elements of the last round
    turns: list[int]  # and their turns


def own_stream(node_tag: int) -> int:
    """Return the stream of one node's statements."""
    return (node_tag + 1) * OWN


def push(run: RunState, stream: int, tag: int, index: int) -> Period | None:
    """Add a tag to a stream, and return the shortest period above 1 that has held for two full rounds, if any."""
    window = run.hash_windows.get(stream)
    if window is None:
        window = run.hash_windows[stream] = HashWindow()
        run.size_left -= WINDOW_BYTES
    tags = window.tags
    found = None
    if tag in tags:
        held = len(window.active)
        found = _extend(window, stream, tag, index)
        run.size_left -= WINDOW_BYTES * max(0, len(window.active) - held)
    elif window.active:
        window.active.clear()
    tags.append(tag)
    window.turns.append(index)
    if len(tags) > PERIOD_MAX:
        del tags[0], window.turns[0]
    else:
        run.size_left -= WINDOW_BYTES
    return found


def _extend(window: HashWindow, stream: int, tag: int, index: int) -> Period | None:
    """Extend every period that this tag continues, and drop all others."""
    tags, before = window.tags, window.active
    active: dict[int, list[int]] = {}
    found = None
    size, place = len(tags), -1
    lengths = [size - (place := tags.index(tag, place + 1)) for _ in range(tags.count(tag))]
    for length in reversed(lengths):
        held = before.get(length)
        if held is None:
            held = [0, window.turns[-length]]
        held[0] += 1
        active[length] = held
        if found is None and length > 1 and held[0] >= length and _varied(active, length):
            last = slice(1 - length, None)
            found = Period(stream, length, held[0], held[1], [*tags[last], tag], [*window.turns[last], index])
    window.active = active
    return found


def _varied(active: dict[int, list[int]], length: int) -> bool:
    """Whether a round has at least two different tags. The same tag over and over is a repeat, not an oscillation."""
    constant = active.get(1)
    return constant is None or constant[0] < length - 1


def loop_tag(block: list[int]) -> int:
    """Return a number that identifies a loop, whichever element of the round comes first."""
    rotations = (tuple(block[i:] + block[:i]) for i in range(len(block)))
    value = 0
    for tag in min(rotations):
        value = (value * 0x9E3779B1 + tag) & 0xFFFFFFFFFFFFFFFF
    return value
