"""Streams: streams of hashes that repeat with a length of 2 to 16, at a bounded cost per event.

Memory: for each stream a `HashWindow` of the last `PERIOD_MAX` tags and the periods that still hold. An element
extends every period that it continues and drops all others, so the engine never compares whole rounds.

A period is observed once it has held for two full rounds. Read by LOOP002 and STALL008.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamproc.core.records import Record, Row, Table, Trail, ccall, cclass, cfunc, final, i32, u32, u64

PERIOD_MAX: Final = 16

# Streams of a run, one window each.
STEPS: Final = 1  # all steps: calls with their answers, and statements
STATEMENTS: Final = 2  # texts, structured outputs, artifacts and pages, whatever was called in between
ARTIFACTS: Final = 3  # artifacts, as they change; only measured progress clears it
NARRATION: Final = 4  # texts with no call in between, of nodes that call tools
OWN: Final = 8  # and above: the statements of one node (`own_stream`), if the policy's gate of LOOP002 is not `any`
NO_STREAM: Final = 0
STREAMS_MAX: Final = 20  # the four above, and one for each node with full memory


class Period(NamedTuple):
    """A period with which a stream repeats."""

    stream: int  # STEPS, STATEMENTS, ARTIFACTS, NARRATION, or the own stream of a node
    length: int  # elements of a round
    matches: int  # elements in a row that equalled the one a round earlier
    onset: int  # turn in which the first round began
    tags: list[int]  # elements of the last round
    turns: list[int]  # and their turns


@final
@cclass
class HeldPeriod(Row):
    """A period that still holds. Key: its length in elements."""

    matches: u32  # tags in a row that equalled the one a period before
    onset: u32  # turn in which the first round began


@final
@cclass
class HashWindow(Row):
    """The last 16 tags of one stream of hashes, and the periods with which they repeat. Key: the stream."""

    tags: Trail
    held: Table  # of `HeldPeriod`

    def __init__(self) -> None:
        self.tags, self.held = Trail(PERIOD_MAX), Table(HeldPeriod, PERIOD_MAX)
        super().__init__(self.tags, self.held)

    @cfunc
    def forget(self) -> None:
        """Remove all tags and periods."""
        if self.tags.size:
            self.tags.clear()
            self.held.clear()

    @cfunc
    def extend(self, tag: u32) -> u32:
        """Extend every period that a tag continues, and drop all others. Return the shortest one above 1 that has held
        for two full rounds; 0: none. The same tag over and over is a repeat, not an oscillation."""
        found: u32 = 0
        constant: u32 = 0  # matches of the period of 1
        length: u32
        held: HeldPeriod | None
        if len(self.held):
            for held in list(self.held.rows):
                if self.tags.ago(held.key) != tag:
                    self.held.forget(held.key)
        length = self.tags.next_age(tag, 0)
        while length:
            held = self.held.find(length)
            if held is None:
                held = self.held.add(length)
                held.onset = self.tags.turn_ago(length)
            held.matches += 1
            if length == 1:
                constant = held.matches
            elif not found and held.matches >= length and (not constant or constant + 1 < length):
                found = length
            length = self.tags.next_age(tag, length)
        return found


@ccall
def own_stream(node_tag: u32) -> u64:
    """Return the stream of one node's statements."""
    one: u64 = node_tag
    return (one + 1) * OWN


@cfunc
def _extend(windows: Table, stream: u64, tag: u32, index: i32) -> Period | None:
    length: u32 = 0
    held: HeldPeriod | None
    period: Period | None = None
    window: HashWindow | None = windows.find(stream)
    if window is None:
        window = windows.add(stream)
    if window.tags.has(tag):
        length = window.extend(tag)
    elif len(window.held):
        window.held.clear()
    window.tags.push(tag, index)
    held = window.held.find(length) if length else None
    if held is not None:
        period = Period(
            stream, length, held.matches, held.onset, window.tags.last_numbers(length), window.tags.last_turns(length)
        )
    return period


@cfunc
def _end(windows: Table, own: u64, other: u64) -> None:
    window: HashWindow
    for window in windows.rows:
        if window.key in (own, other):
            window.held.clear()
        elif window.key < OWN and window.key != ARTIFACTS:
            window.forget()


@cfunc
def _forget(windows: Table, stream: u64) -> None:
    window: HashWindow | None = windows.find(stream)
    if window is not None:
        window.forget()


@final
@cclass
class Streams(Record):
    """The streams of a run. While a turn is in a cycle that keeps windows of its own, its tags enter those as well."""

    windows: Table  # of `HashWindow`, by stream
    cycle_windows: Table | None  # those of the cycle in force; not stored
    seen: tuple[Period, ...]  # what this turn has extended, one for each stream at most; not stored

    def __init__(self) -> None:
        self.windows, self.cycle_windows, self.seen = Table(HashWindow, STREAMS_MAX), None, ()
        super().__init__(self.windows)

    @ccall
    def push(self, stream: u64, tag: u32, index: i32) -> Period | None:
        """Add a tag to a stream. Return the shortest period above 1 that has held for two full rounds, if any."""
        period: Period | None = _extend(self.windows, stream, tag, index)
        own: Period | None
        if self.cycle_windows is not None and stream < OWN:
            own = _extend(self.cycle_windows, stream, tag, index)
            if period is None:
                period = own
        return period

    @ccall
    def observe(self, stream: u64, tag: u32, index: i32) -> None:
        """Add a tag to a stream, and report the period that it extends, if any."""
        period: Period | None = self.push(stream, tag, index)
        if period is not None:
            self.see(period)

    @cfunc
    def has(self, stream: u64, tag: u32) -> bool:
        """Whether a tag is among the last ones of a stream."""
        window: HashWindow | None = self.windows.find(stream)
        return window is not None and window.tags.has(tag)

    @cfunc
    def see(self, period: Period) -> None:
        """Report a period."""
        self.seen = (*self.seen, period)

    @cfunc
    def excuse(self) -> None:
        """Report no period of this turn, which brought something new; but only progress ends those of artifacts, and
        those of a node's own stream have a gate of their own."""
        if self.seen:
            self.seen = tuple([one for one in self.seen if one.stream == ARTIFACTS or one.stream >= OWN])

    @cfunc
    def end(self, own: u64, other: u64) -> None:
        """End all repetitions: something new was found. Streams of which the news is an element (`own`, `other`) keep
        their tags, and lose their periods; those of artifacts and of single nodes go on."""
        _end(self.windows, own, other)
        if self.cycle_windows is not None:
            _end(self.cycle_windows, own, other)

    @cfunc
    def forget(self, stream: u64) -> None:
        """Begin a stream again."""
        _forget(self.windows, stream)
        if self.cycle_windows is not None:
            _forget(self.cycle_windows, stream)


def loop_tag(block: list[int]) -> int:
    """Return a number that identifies a loop, whichever element of the round comes first."""
    rotations = [tuple(block[i:] + block[:i]) for i in range(len(block))]
    value = 0
    for tag in min(rotations):
        value = (value * 0x9E3779B1 + tag) & 0xFFFFFFFFFFFFFFFF
    return value
