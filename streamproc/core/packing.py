"""How records are packed: numbers of fixed widths, readers and writers, and the mark of what becomes C.

Modules of the core take these words from `records`, which says what they are for.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, final as final

import msgspec

u64: TypeAlias = int  # hashes
i64: TypeAlias = int  # epoch milliseconds, amounts
f64: TypeAlias = float
u32: TypeAlias = int  # tags, counts
i32: TypeAlias = int  # turn indices; -1: never
flag: TypeAlias = bool

U16: Final = Struct("<H")
COUNTS: Final = [bytes((count,)) for count in range(256)]  # as they are written
CODES: Final = {"u64": "Q", "i64": "q", "f64": "d", "u32": "I", "i32": "i", "flag": "?"}  # as `struct` calls them
_ZEROS: Final = dict.fromkeys(CODES, 0) | {"f64": 0.0, "flag": False}

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class StateError(msgspec.DecodeError):
    """These bytes are not the state of a run."""


def cfunc(function: F) -> F:
    """Mark a function that only signals call: a C function once compiled."""
    return function


def ccall(function: F) -> F:
    """Mark a function that signals and Python call: once compiled, both a C function and a Python one."""
    return function


def cclass(kind: type[T]) -> type[T]:
    """Make a class whose annotated numbers begin as 0, as they do in C. Records are born so."""
    if issubclass(kind, Record):
        return kind
    body = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    fields = body["__annotations__"]
    blank = {name: _ZEROS[word] for name, word in fields.items() if word in CODES}
    made = body | {"__slots__": tuple(fields)}
    base: Any = kind.__bases__[0]

    def new(cls: type[T], *_: Any, **__: Any) -> T:
        one: T = base.__new__(cls)
        for name, zero in blank.items():
            setattr(one, name, zero)
        return one

    return type(kind.__name__, kind.__bases__, made | {"__new__": new} if blank else made)


class Reader:
    """Reads a state. Every count is checked against its cap, and every read against the end."""

    __slots__ = ("at", "raw")

    def __init__(self) -> None:
        self.raw = b""
        self.at = 0

    def begin(self, raw: bytes, at: int) -> None:
        """Start at a place in a state."""
        self.raw, self.at = raw, at

    def count(self, cap: int) -> int:
        """Return a count, how many entries follow. Raises `StateError` above the cap."""
        if self.at >= len(self.raw) or self.raw[self.at] > cap:
            raise StateError("a count out of bounds")
        self.at += 1
        return self.raw[self.at - 1]

    def take(self, form: Struct) -> tuple[Any, ...]:
        """Return the next numbers."""
        try:
            values = form.unpack_from(self.raw, self.at)
        except struct.error:
            raise StateError("cut short") from None
        self.at += form.size
        return values

    def blob(self) -> bytes:
        """Return the next bytes that carry their own length."""
        (size,) = self.take(U16)
        start, self.at = self.at, self.at + size
        if self.at > len(self.raw):
            raise StateError("cut short")
        return self.raw[start : self.at]

    def end(self) -> None:
        """Refuse bytes that are left over."""
        if self.at != len(self.raw):
            raise StateError("bytes left over")


class Writer:
    """Writes a state."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def begin(self, head: bytes) -> None:
        """Start with the bytes that identify the layout."""
        self.pieces = [head]

    def blob(self, raw: bytes) -> None:
        """Write bytes with their length."""
        self.pieces += (U16.pack(len(raw)), raw)

    def end(self) -> bytes:
        """Return the state."""
        return b"".join(self.pieces)


class _Growth(threading.local):
    """Bytes by which the records of this thread have grown, at most: not all that was dropped is subtracted."""

    bytes = 0


GROWTH: Final = _Growth()


def grow(size: int) -> None:
    """Count bytes by which a record grows or shrinks."""
    GROWTH.bytes += size


def grown() -> int:
    """Return by how many bytes the records of this thread have grown so far, at most."""
    return GROWTH.bytes


class Part:
    """Anything that can be stored."""

    __slots__ = ()

    def clear(self) -> None:
        """Forget everything."""

    def is_blank(self) -> bool:
        """Whether there is nothing to store; only asked of parts of a `Sparse` record."""
        return False

    def size_bytes(self) -> int:
        """Return how many bytes `dump` writes."""
        return 0

    def load(self, reader: Reader) -> None:
        """Read what `dump` wrote. Raises `StateError` for anything else."""

    def dump(self, writer: Writer) -> None:
        """Write everything that must be known again."""


class RecordType(type):
    """Makes the classes of records. Annotated fields become slots: an object without a dict is smaller, and its fields
    are read faster. What touches every number is written out for each class: a loop would take several times longer."""

    _fields: dict[str, str]
    _form: Struct

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> RecordType:
        words: dict[str, str] = body.get("__annotations__", {})
        own = {field: word for field, word in words.items() if not word.startswith("ClassVar")}
        made = super().__new__(cls, name, bases, body | {"__slots__": tuple(own)})
        made._fields = getattr(made, "_fields", {}) | own
        numbers = {field: word for field, word in made._fields.items() if word in CODES}
        made._form = Struct("<" + "".join(CODES[word] for word in numbers.values()))
        has_parts = len(numbers) + ("parts" in made._fields) < len(made._fields)
        in_its_way = any("dump_parts" in vars(one) for one in made.__mro__ if one.__name__ != "Record")
        for function, value in _written_out(numbers, made._form, has_parts, in_its_way).items():
            if function not in body:
                setattr(made, function, value)
        return made


def _written_out(numbers: dict[str, str], form: Struct, has_parts: bool, in_its_way: bool) -> dict[str, Any]:
    """Return the functions of a record that touch all of its numbers. Parts that are stored `in_its_way` have functions
    of its own, `load_parts` and `dump_parts`."""
    zeros = [f"self.{name} = {_ZEROS[word]}" for name, word in numbers.items()]
    fields = "".join(f"self.{name}, " for name in numbers)
    read = [f"{fields} = take(reader, form)"] if numbers else []
    write = [f"writer.pieces.append(pack({fields}))"] if numbers else []
    parts = "self.{0}_parts({1})" if in_its_way else "for part in self.parts: part.{0}({1})"
    functions = {
        "_zero(self)": zeros,
        "clear(self)": [*zeros, *["for part in self.parts: part.clear()"] * has_parts],
        "load(self, reader)": [*read, *[parts.format("load", "reader")] * has_parts],
        "dump(self, writer)": [*write, *[parts.format("dump", "writer")] * has_parts],
    }
    known: dict[str, Any] = {"form": form, "pack": form.pack, "take": Reader.take}
    exec("\n".join("\n ".join((f"def {head}:", *lines, "pass")) for head, lines in functions.items()), known)
    return {name: known[name] for name in (head.partition("(")[0] for head in functions)}


class Record(Part, metaclass=RecordType):
    """Annotated numbers, and its parts, which `__init__` makes and hands over in the order in which they are stored."""

    parts: tuple[Part, ...]
    _form: ClassVar[Struct]
    _zero: ClassVar[Callable[[Any], None]]

    def __init__(self, *parts: Part) -> None:
        self.parts = ()  # they are new: there is nothing to clear
        self.clear()
        self.parts = parts

    def clear(self) -> None:
        """Set all numbers to 0, and clear the parts."""
        self._zero()
        for part in self.parts:
            part.clear()

    def size_bytes(self) -> int:
        size = self._form.size
        for part in self.parts:
            size += part.size_bytes()
        return size

    def load(self, reader: Reader) -> None:
        self.load_parts(reader)

    def dump(self, writer: Writer) -> None:
        self.dump_parts(writer)

    def load_parts(self, reader: Reader) -> None:
        """Read the parts."""
        for part in self.parts:
            part.load(reader)

    def dump_parts(self, writer: Writer) -> None:
        """Write the parts."""
        for part in self.parts:
            part.dump(writer)


class Row(Record):
    """A record of a table, found by its key."""

    key: u64


class Sparse(Row):
    """A row with many parts, at most 16, of which few are in use: only those are stored."""

    def size_bytes(self) -> int:
        size = self._form.size + U16.size
        for part in self.parts:
            if not part.is_blank():
                size += part.size_bytes()
        return size

    def load_parts(self, reader: Reader) -> None:
        (used,) = reader.take(U16)
        if used >> len(self.parts):
            raise StateError("a part that does not exist")
        for place, part in enumerate(self.parts):
            if used >> place & 1:
                part.load(reader)
            else:
                part.clear()

    def dump_parts(self, writer: Writer) -> None:
        used, bit = 0, 1
        place = len(writer.pieces)
        writer.pieces.append(b"")  # which parts are in use
        for part in self.parts:
            if not part.is_blank():
                used |= bit
                part.dump(writer)
            bit <<= 1
        writer.pieces[place] = U16.pack(used)
