"""The bytes of logs: regular files only, decompressed, and no more of them at once than a log has.

Logs come from other people and machines. A name may be a link to a device, a pipe without a writer, or an archive
of a few KB that expands to gigabytes.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
from zstandard import ZstdDecompressor, ZstdError

from streamproc.errors import InvalidEvent, Problem
from streamproc.model.expansion import json_expands_beyond

DOCUMENT_BYTES_MAX: Final = 1 << 28  # a JSON document is read at once; larger exports are lines
LINE_BYTES_MAX: Final = 1 << 28  # also of a document on one line
BESIDE_BYTES_MAX: Final = 1 << 26  # of a file with one event, or with facts about the log beside it
EXPANDED_BYTES_MAX: Final = 5 << 28  # what a line or a document may become in memory, by an upper bound
BLOCK_BYTES: Final = 1 << 18
ZSTD_BLOCK_BYTES: Final = 1 << 10  # read at once: a file made for it expands to 32 MB from so few
RECORDS_MAX: Final = 1_000  # objects that are told apart on one line
JSON_MARK: Final = re.compile(
    rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}]', re.DOTALL
)  # a text, which may hold braces, or a brace
GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
UTF8_MARK: Final = b"\xef\xbb\xbf"  # what some Windows tools put before a text
LINES_REMEDY: Final = "export it as JSON lines, or in parts"
KINDS: Final = ((stat.S_ISDIR, "it is a directory"), (stat.S_ISFIFO, "it is a pipe"), (stat.S_ISSOCK, "it is a socket"))


def open_regular(path: str | Path, *, follow: bool = True) -> io.BufferedReader:
    """Open a file to read. Raises `OSError` for what is no regular file, and without `follow` for a link. Does not wait
    for the writer of a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    what = next((what for is_kind, what in KINDS if is_kind(mode)), "it is a device")
    raise OSError(errno.EINVAL, f"{what}, and not a file", str(path))


def read_beside(path: Path) -> Any:
    """Return the JSON of a small file that belongs to a log. Raises `OSError`, also for a link, and `ValueError`."""
    with open_regular(path, follow=False) as file:
        raw = file.read(BESIDE_BYTES_MAX + 1)
    if len(raw) > BESIDE_BYTES_MAX or json_expands_beyond(raw, EXPANDED_BYTES_MAX):
        raise ValueError("it is too large")
    return orjson.loads(raw)


def too_large(name: str) -> InvalidEvent:
    """Return what to raise for a document that is larger than any."""
    return InvalidEvent([Problem("file", f"a document of more than {DOCUMENT_BYTES_MAX} bytes", LINES_REMEDY, name)])


def parsed_whole(raw: bytes, name: str) -> Any:
    """Return the JSON value of a document. Raises `orjson.JSONDecodeError`, and `InvalidEvent` for one that would fill
    the memory."""
    if len(raw) > DOCUMENT_BYTES_MAX:
        raise too_large(name)
    if json_expands_beyond(raw, EXPANDED_BYTES_MAX):
        raise InvalidEvent([Problem("file", TOO_MANY_VALUES, LINES_REMEDY, name)])
    return orjson.loads(raw)


TOO_MANY_VALUES: Final = f"its values may take more than {EXPANDED_BYTES_MAX >> 20} MB of memory"


def is_compressed(magic: bytes) -> bool:
    """Whether a file that begins with these four bytes is read decompressed."""
    return magic[:2] == GZIP_MAGIC or magic == ZSTD_MAGIC


@contextmanager
def decompressed(stream: Any, name: str) -> Iterator[BinaryIO]:
    """Yield the content of a stream that may be gzip or Zstandard. Raises `InvalidEvent` for a damaged archive."""
    magic = stream.peek(4)[:4] if hasattr(stream, "peek") else b""  # a pipe, such as /dev/fd/63, cannot seek
    try:
        if magic[:2] == GZIP_MAGIC:
            with gzip.open(stream, "rb") as content:
                yield without_mark(content)
        elif magic == ZSTD_MAGIC:
            yield without_mark(io.BufferedReader(_Zstandard(stream), BLOCK_BYTES))
        else:
            yield without_mark(stream)
    except (EOFError, gzip.BadGzipFile, zlib.error, ZstdError) as error:
        kind = "gzip" if magic[:2] == GZIP_MAGIC else "Zstandard"
        raise InvalidEvent([Problem("file", f"damaged {kind}: {error}", "copy the file again", name)]) from None


def bounded(stream: Any, name: str) -> Iterator[bytes]:
    """Yield the lines of a stream. Raises `InvalidEvent` for one that no log has, such as those of a device or of a
    small archive that expands without end."""
    number = 1
    while line := bounded_line(stream, f"{name}:{number}"):
        yield line
        number += 1


def bounded_line(stream: Any, place: str, begun: int = 0) -> bytes:
    """Return the next line of a stream, or the rest of one of which so many bytes were read. Raises `InvalidEvent` for
    one that no log has."""
    line: bytes = stream.readline(LINE_BYTES_MAX + 1 - begun)
    if begun + len(line) > LINE_BYTES_MAX:
        what = f"a line of more than {LINE_BYTES_MAX} bytes"
        raise InvalidEvent([Problem("line", what, "give a log in JSON, or leave it out", place)])
    if json_expands_beyond(line, EXPANDED_BYTES_MAX):
        raise InvalidEvent([Problem("line", TOO_MANY_VALUES, LINES_REMEDY, place)])
    return line


def records_of(line: bytes) -> list[bytes]:
    """Return the objects that stand on one line, as two writers or a lost line break leave them; the last one may be
    cut off. Anything else is the line itself."""
    found: list[bytes] = []
    begin = depth = 0
    for match in JSON_MARK.finditer(line):
        mark = match[0]
        if mark == b"{":
            depth += 1
        elif mark == b"}":
            depth -= 1
            if depth < 0:
                break
            if not depth:
                found.append(line[begin : match.end()])
                begin = match.end()
        if not depth and len(found) >= RECORDS_MAX:
            break
    if rest := line[begin:].strip():
        found.append(rest)
    return found if found and all(record.lstrip().startswith(b"{") for record in found) else [line]


def without_mark(stream: Any) -> Any:
    """Return a stream behind the byte order mark of a UTF-8 text."""
    if hasattr(stream, "peek") and stream.peek(3)[:3] == UTF8_MARK:
        stream.read(3)
    return stream


class _Zstandard(io.RawIOBase):
    """Reads a Zstandard stream of any number of frames. The library's own reader ends silently inside a frame."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._frame: Any = None  # None: between two frames
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer. Raises `EOFError` if the last frame is not complete."""
        while not self._ready:
            block = self._stream.read(ZSTD_BLOCK_BYTES)
            if not block:
                if self._frame is not None:
                    raise EOFError("it ends inside a frame")
                return 0
            self._ready = memoryview(self._decompressed(block))
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _decompressed(self, block: bytes) -> bytes:
        parts = []
        while block:
            self._frame = self._frame or ZstdDecompressor().decompressobj()
            parts.append(self._frame.decompress(block))
            block = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        return b"".join(parts)
