"""What a run's memory is made of: records of numbers, tables, trails and sets, each with a cap.

A signal is an ordinary Python module written with these words. Uncompiled it runs with what is here: a record is an
object, a table a dict, and a debugger shows every field. Compiled (`records.pxi`), `u32` is an `unsigned int`, a record
a C struct, `cfunc` marks a C function, storing a record copies its numbers in one move, and one state is loaded over
the other without allocating anything. Both forms write the same bytes.

A record stores its annotated numbers, then its parts in the order given to `super().__init__`. The widest numbers come
first, so that C leaves no gaps between them; the build refuses any other order.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, final as final

from streamproc.core.packing import (
    COUNTS,
    Part as Part,
    Reader as Reader,
    Record as Record,
    Row as Row,
    Sparse as Sparse,
    StateError as StateError,
    Writer as Writer,
    ccall as ccall,
    cclass as cclass,
    cfunc as cfunc,
    f64 as f64,
    flag as flag,
    grow as grow,
    grown as grown,
    i32 as i32,
    i64 as i64,
    u32 as u32,
    u64 as u64,
)

TAG: Final = 0xFFFFFFFF
HASH: Final = 0xFFFFFFFFFFFFFFFF  # publishers in other languages may send more than 64 bits; the state holds 64
MIX: Final = 0x9E3779B97F4A7C15  # odd, with spread bits: multiplying by it keeps combined hashes distinct
TRAIL_MAX: Final = 16
TAGS_MAX: Final = 96
VALUES_MAX: Final = 24
NAME_CHARS: Final = 16  # of a `Name`; as UTF-8 at most four times as many bytes
BLOB_MAX: Final = 0xFFFF  # bytes of a blob

# So many numbers; what is written begins with their count.
_U32S: Final = [Struct(f"<{size}I") for size in range(TAGS_MAX + 1)]
_U64S: Final = [Struct(f"<{size}Q") for size in range(VALUES_MAX + 1)]
_TRAILS: Final = [Struct(f"<B{2 * size}I").pack for size in range(TRAIL_MAX + 1)]
_TAGS: Final = [Struct(f"<B{size}I").pack for size in range(TAGS_MAX + 1)]
_VALUES: Final = [Struct(f"<B{size}Q").pack for size in range(VALUES_MAX + 1)]


@final
class Table(dict[int, Any], Part):
    """At most `cap` rows of one kind by key, the least recently added or touched first."""

    __slots__ = ("cap", "kind")

    def __init__(self, kind: type[Row], cap: int) -> None:
        self.kind, self.cap = kind, cap

    find = dict.get
    """Return the row under a key, or None."""

    @property
    def rows(self) -> list[Any]:
        """All rows, oldest first."""
        return list(self.values())

    def full(self) -> bool:
        """Whether another row takes the place of the oldest."""
        return len(self) >= self.cap

    def youngest(self) -> Any:
        """Return the row that was added or touched last, or None."""
        return self[next(reversed(self))] if self else None

    def touch(self, key: int) -> Any:
        """Return the row under a key, which becomes the youngest; None if there is none."""
        row = self.pop(key, None)
        if row is not None:
            self[key] = row
        return row

    def add(self, key: int) -> Any:
        """Return a new row, the youngest. A full table drops its oldest row."""
        if len(self) >= self.cap:
            row = self.pop(next(iter(self)))
            row.clear()
        else:
            row = self.kind()
            grow(1 + row.size_bytes())
        row.key = key
        self[key] = row
        return row

    def forget(self, key: int) -> None:
        """Drop the row under a key, if there is one."""
        row = self.pop(key, None)
        if row is not None:
            grow(-row.size_bytes())

    def rekey(self, old: int, new: int) -> None:
        """Give a row another key; it becomes the youngest."""
        row = self.pop(old)
        row.key = new
        self[new] = row

    def clear(self) -> None:
        if self:
            grow(1 - self.size_bytes())
            dict.clear(self)

    def keep_last(self, count: int) -> None:
        """Drop all rows but the youngest."""
        for key in list(self)[: max(0, len(self) - count)]:
            self.forget(key)

    def is_blank(self) -> bool:
        return not self

    def size_bytes(self) -> int:
        size = 1 + len(self) * self.kind._form.size
        for row in self.values():
            if not row.parts:
                return size
            size += row.size_bytes() - self.kind._form.size
        return size

    def load(self, reader: Reader) -> None:
        self.clear()
        for _ in range(reader.count(self.cap)):
            row = self.kind()
            row.load(reader)
            if row.key in self:
                raise StateError("a key that is there twice")
            self[row.key] = row

    def dump(self, writer: Writer) -> None:
        writer.pieces.append(COUNTS[len(self)])
        for row in self.values():
            row.dump(writer)


@final
class Trail(Part):
    """The last few numbers, at most 16, and the turn of each."""

    __slots__ = ("cap", "numbers", "size", "turns")

    def __init__(self, cap: int) -> None:
        self.cap, self.size = cap, 0
        self.numbers: tuple[int, ...] = ()  # an empty tuple takes no memory, and most trails of a run are empty
        self.turns: tuple[int, ...] = ()

    def push(self, number: int, turn: int) -> None:
        """Add a number; a full trail drops its oldest."""
        numbers, turns = self.numbers, self.turns
        if self.size == self.cap:
            numbers, turns = numbers[1:], turns[1:]
        else:
            self.size += 1
            grow(9)
        self.numbers, self.turns = numbers + (number,), turns + (turn,)  # noqa: RUF005 (unpacking is slower)

    def ago(self, count: int) -> int:
        """Return the number that was added `count` numbers ago; 1: the last."""
        return self.numbers[-count]

    def turn_ago(self, count: int) -> int:
        """Return the turn of the number that was added `count` numbers ago."""
        return self.turns[-count]

    def has(self, number: int) -> bool:
        """Whether a number is among them."""
        return number in self.numbers

    def next_age(self, number: int, age: int) -> int:
        """Return how long ago a number was added, in numbers, of all times longer ago than `age`; 0: at no time."""
        older = self.numbers[::-1][age:]
        return age + 1 + older.index(number) if number in older else 0

    def last_numbers(self, count: int) -> list[int]:
        """Return the last so many, oldest first."""
        return list(self.numbers[len(self.numbers) - count :])

    def last_turns(self, count: int) -> list[int]:
        """Return the turns of the last so many."""
        return list(self.turns[len(self.turns) - count :])

    def keep_last(self, count: int) -> None:
        """Drop all but the last so many."""
        if len(self.numbers) > count:
            self.numbers, self.turns = self.numbers[self.size - count :], self.turns[self.size - count :]
            self.size = count

    def clear(self) -> None:
        if self.size:
            grow(-8 * self.size)
            self.numbers = self.turns = ()
            self.size = 0

    def is_blank(self) -> bool:
        return not self.numbers

    def size_bytes(self) -> int:
        return 1 + 8 * len(self.numbers)

    def load(self, reader: Reader) -> None:
        size = self.size = reader.count(self.cap)
        both = reader.take(_U32S[2 * size])
        self.numbers, self.turns = both[:size], both[size:]

    def dump(self, writer: Writer) -> None:
        size = self.size
        writer.pieces.append(_TRAILS[size](size, *self.numbers, *self.turns) if size else COUNTS[0])


@final
class Tags(dict[int, None], Part):
    """A set of at most 96 tags; the one not met for the longest time is dropped first."""

    __slots__ = ("cap",)

    def __init__(self, cap: int) -> None:
        self.cap = cap

    def add(self, tag: int) -> bool:
        """Remember a tag, and return whether it is new."""
        if tag in self:
            del self[tag]
            self[tag] = None
            return False
        self[tag] = None
        if len(self) > self.cap:
            del self[next(iter(self))]
        else:
            grow(4)
        return True

    def has(self, tag: int) -> bool:
        """Whether a tag is known."""
        return tag in self

    def full(self) -> bool:
        """Whether another tag takes the place of the oldest."""
        return len(self) >= self.cap

    def keep_last(self, count: int) -> None:
        """Drop all but the last so many."""
        for tag in list(self)[: max(0, len(self) - count)]:
            del self[tag]

    def size_bytes(self) -> int:
        return 1 + 4 * len(self)

    def load(self, reader: Reader) -> None:
        self.clear()
        self.update(dict.fromkeys(reader.take(_U32S[reader.count(self.cap)])))

    def dump(self, writer: Writer) -> None:
        writer.pieces.append(_TAGS[len(self)](len(self), *self))


@final
class Values(Part):
    """The last few 64-bit numbers, at most 24, oldest first."""

    __slots__ = ("cap", "values")

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.values: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.values)

    def push(self, value: int) -> None:
        """Add a number; a full list drops its oldest."""
        values = self.values
        if len(values) >= self.cap:
            values = values[1:]
        else:
            grow(9)
        self.values = values + (value,)  # noqa: RUF005 (unpacking is slower)

    def full(self) -> bool:
        """Whether another number takes the place of the oldest."""
        return len(self.values) >= self.cap

    def at(self, place: int) -> int:
        """Return the number at a place; 0: the oldest."""
        return self.values[place]

    def has(self, value: int) -> bool:
        """Whether a number is among them."""
        return value in self.values

    def drop_last(self) -> None:
        """Drop the number that was added last."""
        self.values = self.values[:-1]

    def keep_last(self, count: int) -> None:
        """Drop all but the last so many."""
        self.values = self.values[max(0, len(self.values) - count) :]

    def listed(self) -> list[int]:
        """Return all of them."""
        return list(self.values)

    def clear(self) -> None:
        self.values = ()

    def is_blank(self) -> bool:
        return not self.values

    def size_bytes(self) -> int:
        return 1 + 8 * len(self.values)

    def load(self, reader: Reader) -> None:
        self.values = reader.take(_U64S[reader.count(self.cap)])

    def dump(self, writer: Writer) -> None:
        size = len(self.values)
        writer.pieces.append(_VALUES[size](size, *self.values) if size else COUNTS[0])


@final
class Name(Part):
    """The beginning of a name, for messages."""

    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = ""

    def set(self, text: str) -> None:
        """Keep the first characters."""
        before, self.text = self.text, text[:NAME_CHARS]
        if len(self.text) > len(before) or not self.text.isascii():
            grow(4 * len(self.text))

    def get(self) -> str:
        """Return them."""
        return self.text

    def clear(self) -> None:
        self.text = ""

    def size_bytes(self) -> int:
        return 1 + len(self.text.encode("utf-8", "surrogatepass"))

    def load(self, reader: Reader) -> None:
        size = reader.count(4 * NAME_CHARS)
        (raw,) = reader.take(Struct(f"<{size}s"))
        try:
            self.text = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise StateError("a name that is no UTF-8") from None

    def dump(self, writer: Writer) -> None:
        raw = self.text.encode("utf-8", "surrogatepass")
        writer.pieces += (COUNTS[len(raw)], raw)


def is_utf8(text: str, raw: bytes | None) -> bool:
    """Whether these bytes are the text as UTF-8. Raises `UnicodeEncodeError` for a text that has none."""
    return text.encode() == raw


def hash64(value: int) -> int:
    """Return the low 64 bits of a number."""
    return value & HASH


def tag32(value: int) -> int:
    """Return the low half of a hash: enough where one false match in 4·10⁹ is harmless."""
    return value & TAG


def mixed(value: int) -> int:
    """Return a number whose bits are spread over all 64, so that sums of hashes stay apart."""
    return value * MIX & HASH


def bits_of(value: int) -> int:
    """Return how many bits of a number are 1."""
    return value.bit_count()


def distance(one: int, other: int) -> int:
    """Return in how many bits two hashes differ."""
    return (one ^ other).bit_count()
