"""What a run has seen: news, repeated calls, and periods, each at a bounded cost an event.

*News* is a (call, answer) pair, statement, artifact or test result that this run has not had before. A text
between two calls of one node is *narration*: neither news nor a step. It is only known to be a message, and not
narration, when another node takes the next turn; until then it is `pending`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamproc.core.run import (
    RING_BYTES,
    SEEN_BYTES,
    SEEN_MAX,
    TAG,
    Ring,
    RunState,
)
from streamproc.wire import Turn

PERIOD_MAX: Final = 16
MIX: Final = 0x9E3779B97F4A7C15  # odd, its bits spread: multiplying by it keeps sums of hashes apart

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


def know(run: RunState, tag: int) -> bool:
    """Remember a thing; True where it was new to this run."""
    seen = run.seen
    tag &= TAG
    if tag in seen:
        del seen[tag]  # to the young end: what keeps coming back is not forgotten
        seen[tag] = 0
        return False
    seen[tag] = 0
    if len(seen) > SEEN_MAX:
        del seen[next(iter(seen))]
    else:
        run.room -= SEEN_BYTES
    return True


def note_news(run: RunState, index: int, own: tuple[int, ...] = ()) -> None:
    """Something new happened at this turn, and no round in which it happened is part of a loop.

    Where it is an element of a stream (`own`), it ends what was repeating there by being new. Other streams begin
    again: two agents may say the same two sentences around work that is new each time.
    """
    run.news = run.found = index
    _begin_again(run, own)


def _begin_again(run: RunState, own: tuple[int, ...] = ()) -> None:
    for stream, ring in run.rings.items():
        if not ring.tags:
            continue
        if stream in own:
            ring.active.clear()
        elif stream != LEFT:
            ring.clear()


def note_poll(run: RunState, index: int) -> None:
    """Somebody waits: what is repeated meanwhile is no loop, but nothing new was found."""
    run.news = index
    _begin_again(run)


def note_progress(run: RunState, index: int) -> None:
    """Something measured got better than ever before in this run."""
    run.progress = run.worked = index
    note_news(run, index)
    left = run.rings.get(LEFT)
    if left is not None:
        left.clear()


def push(run: RunState, stream: int, tag: int, index: int) -> Period | None:
    """Add a tag to a stream; the shortest period above 1 that holds for two full rounds, if any."""
    ring = run.rings.get(stream)
    if ring is None:
        ring = run.rings[stream] = Ring()
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


def _extend(ring: Ring, stream: int, tag: int, index: int) -> Period | None:
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


def observe_said(run: RunState, node_tag: int, turn: Turn, topic: int, index: int) -> tuple[Period, ...]:
    """Take in what a turn said or left behind (not a text beside calls: that is narration)."""
    tag = node_tag
    if turn.output is not None and not turn.calls:
        tag ^= turn.output.norm ^ topic
    if turn.structured is not None:
        tag ^= turn.structured.norm >> 1 ^ topic
    if turn.docs is not None:
        tag ^= turn.docs.norm >> 2
    if turn.artifact is not None:
        tag ^= turn.artifact.norm >> 3
    if tag == node_tag:
        return ()
    return state_said(run, tag, index, step=not turn.calls)


def state_said(run: RunState, tag: int, index: int, *, step: bool) -> tuple[Period, ...]:
    """A statement by a node: news or a repeat, and an element of the streams of what was said."""
    if know(run, tag):
        note_news(run, index, (STEPS, SAID))
    tag &= TAG & ~1
    found = []
    if step and (period := push(run, STEPS, tag, index)):
        found.append(period)
    if period := push(run, SAID, tag, index):
        found.append(period)
    return tuple(found)


def settle_pending(run: RunState, node_tag: int) -> tuple[Period, ...]:
    """A text that another node answers was a message; one that its own node follows up was narration."""
    waiting_node, tag, index = run.pending
    run.pending = []
    if waiting_node == node_tag:
        return ()
    return state_said(run, tag, index, step=True)
