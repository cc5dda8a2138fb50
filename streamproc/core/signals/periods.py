"""Periods: streams of hashes that repeat with a length of 2 to 16, at a bounded cost per event."""

from __future__ import annotations

from typing import Final, NamedTuple

from streamproc.core.run_state import RING_BYTES, HashWindow, RunState

PERIOD_MAX: Final = 16
STEPS: Final = 1  # ring of all steps of a run: calls with their answers, and statements
SAID: Final = 2  # ring of what was said or left behind, whatever was called in between
TALK: Final = 4  # ring of texts with no call in between, by nodes that call tools
LEFT: Final = 3  # ring of artifacts, as they change; only what is measured breaks its periods


class Period(NamedTuple):
    """A stream repeats with this `length`; `matches` tags in a row equalled the one a period earlier. `tags` and
    `turns` are those of the last round."""

    stream: int
    length: int
    matches: int
    onset: int
    tags: list[int]
    turns: list[int]


def push(run: RunState, stream: int, tag: int, index: int) -> Period | None:
    """Add a tag to a stream; the shortest period above 1 that holds for two full rounds, if any."""
    ring = run.rings.get(stream)
    if ring is None:
        ring = run.rings[stream] = HashWindow()
        run.room -= RING_BYTES
    tags = ring.tags
    found = None
    if tag in tags:
        held = len(ring.active)
        found = _extend(ring, stream, tag, index)
        run.room -= RING_BYTES * max(0, len(ring.active) - held)
    elif ring.active:
        ring.active.clear()
    tags.append(tag)
    ring.turns.append(index)
    if len(tags) > PERIOD_MAX:
        del tags[0], ring.turns[0]
    else:
        run.room -= RING_BYTES
    return found


def _extend(ring: HashWindow, stream: int, tag: int, index: int) -> Period | None:
    """Lengthen every period that this tag continues, drop every other."""
    tags, before = ring.tags, ring.active
    active: dict[int, list[int]] = {}
    found = None
    size, place = len(tags), -1
    lengths = [size - (place := tags.index(tag, place + 1)) for _ in range(tags.count(tag))]
    for length in reversed(lengths):
        held = before.get(length)
        if held is None:
            held = [0, ring.turns[-length]]
        held[0] += 1
        active[length] = held
        if found is None and length > 1 and held[0] >= length and _varied(active, length):
            last = slice(1 - length, None)
            found = Period(stream, length, held[0], held[1], [*tags[last], tag], [*ring.turns[last], index])
    ring.active = active
    return found


def _varied(active: dict[int, list[int]], length: int) -> bool:
    """False where the period is the same tag over and over: that is a repeat, not an oscillation."""
    constant = active.get(1)
    return constant is None or constant[0] < length - 1


def loop_tag(block: list[int]) -> int:
    """The same number for the same loop, wherever in its round one starts to look."""
    rotations = (tuple(block[i:] + block[:i]) for i in range(len(block)))
    value = 0
    for tag in min(rotations):
        value = (value * 0x9E3779B1 + tag) & 0xFFFFFFFFFFFFFFFF
    return value
