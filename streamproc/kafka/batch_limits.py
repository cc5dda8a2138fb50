"""Compressed record batches are unpacked up to a limit: 13 KB of zstd can hold 600 MB, and readers unpack them whole.

A batch over the limit, or one that cannot be unpacked, is replaced by one record that says so at the batch's last
offset. A worker sends it to the dead-letter topic like any other record that is no event, and goes on behind it.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import cramjam
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streamproc.kafka.checksums import Checksums, crc32c

BATCH_BYTES_MAX: Final = 32 << 20  # unpacked; publishers fill batches of 16 KB to 1 MB
RESPONSE_BYTES_MAX: Final = 64 << 20  # all unpacked batches of a response; the others are fetched again
FIRST_RATIO: Final = 16  # JSON seldom shrinks to less
FULL: Final = "write whole buffer"  # in the error of a decoder whose output does not fit

# Base offset, bytes behind this field, leader epoch, format, checksum, attributes, last offset's delta, first and last
# time; and producer, its epoch, first sequence number, and number of records.
_HEAD: Final = Struct(">qiibIhiqq")
_REST: Final = 18
_LENGTH_AT: Final = 8
_LENGTH_ENDS: Final = 12
_FORMAT_AT: Final = 16
_CHECKSUM_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_UNTIL_ATTRIBUTES: Final = Struct(">qiibI")
_PLACE: Final = Struct(">qii")  # its first three
_ATTRIBUTES: Final = Struct(">h")
_CODEC: Final = 0x07  # of the attributes
_UNPACKERS: Final[dict[int, Any]] = {1: cramjam.gzip, 2: cramjam.snappy, 3: cramjam.lz4, 4: cramjam.zstd}
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = 16
_length_of: Final = Struct(">i").unpack_from
_checksum_of: Final = Struct(">I").unpack_from


class UnpackBudget:
    """The bytes that the batches of one response may still unpack to. The first one is always unpacked, so that readers
    advance."""

    def __init__(self, checksums: Checksums | None = None) -> None:
        self._left = RESPONSE_BYTES_MAX
        self._checksums = checksums

    def unpacked(self, records: bytes) -> bytes:
        """Return the batches of a partition without compression; without those behind the end of the budget."""
        parts: list[bytes] = []
        at = kept = 0
        while at + _HEAD.size + _REST <= len(records):
            end = at + _LENGTH_ENDS + _length_of(records, at + _LENGTH_AT)[0]
            if end <= at or end > len(records) or records[at + _FORMAT_AT] != 2:
                if self._checksums is not None and end > at:
                    self._checksums.intact = self._checksums.intact and records[at + _FORMAT_AT] == 2
                break  # cut off, or of a format from before Kafka 0.11: aiokafka knows what to do
            if self._checksums is not None:
                self._checksums.check(records, at + _ATTRIBUTES_AT, end, *_checksum_of(records, at + _CHECKSUM_AT))
            if records[at + _ATTRIBUTES_AT + 1] & _CODEC:
                parts.append(records[kept:at])
                if self._left <= 0:
                    return b"".join(parts)
                batch = _unpacked(records[at:end])
                self._left -= len(batch)
                parts.append(batch)
                kept = end
            at = end
        return b"".join((*parts, records[kept:])) if parts else records


def _unpacked(batch: bytes) -> bytes:
    """Return a compressed batch without compression."""
    first, _, epoch, version, checksum, attributes, last, *times = _HEAD.unpack_from(batch)
    if crc32c(batch, _ATTRIBUTES_AT, len(batch)) != checksum:
        return batch  # aiokafka reports it
    body = _HEAD.size + _REST
    try:
        content = _content(batch[body:], attributes & _CODEC)
    except (cramjam.DecompressionError, KeyError, ValueError) as error:
        return _replacement(first, epoch, last, times[1], f"cannot be unpacked ({error})")
    if content is None:
        return _replacement(first, epoch, last, times[1], f"unpacks to more than {BATCH_BYTES_MAX >> 20} MiB")
    plain = b"".join((_ATTRIBUTES.pack(attributes & ~_CODEC), batch[_ATTRIBUTES_AT + 2 : body], content))
    size = _ATTRIBUTES_AT + len(plain) - _LENGTH_ENDS
    return b"".join((_UNTIL_ATTRIBUTES.pack(first, size, epoch, version, crc32c(plain, 0, len(plain))), plain))


def _replacement(first: int, epoch: int, last: int, at_ms: int, what: str) -> bytes:
    """Return a batch with one record that says what is wrong with the batch in whose place it stands."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 10)
    builder.append(last, at_ms, None, f"a compressed batch of {last + 1} records {what}".encode(), [])
    batch = bytearray(builder.build())
    _PLACE.pack_into(batch, 0, first, len(batch) - _LENGTH_ENDS, epoch)  # outside of the checksum
    return bytes(batch)


def _content(packed: bytes, codec: int) -> bytes | None:
    """Return what is packed, or None if it is more than the limit. Raises `cramjam.DecompressionError`, `KeyError`."""
    unpacker = _UNPACKERS[codec]
    if unpacker is cramjam.snappy:
        return _snappy_content(packed)
    room = min(FIRST_RATIO * len(packed), BATCH_BYTES_MAX)
    while True:
        buffer = bytearray(room)
        try:
            return bytes(memoryview(buffer)[: unpacker.decompress_into(packed, buffer)])
        except cramjam.DecompressionError as error:
            if FULL not in str(error):
                raise
        if room == BATCH_BYTES_MAX:
            return None
        room = min(FIRST_RATIO * room, BATCH_BYTES_MAX)


def _snappy_content(packed: bytes) -> bytes | None:
    """Do the same for snappy, whose blocks say how large they are: one, or several in the framing of Java's clients."""
    blocks = [packed]
    if packed.startswith(_XERIAL):
        blocks, at = [], _XERIAL_HEAD
        while at < len(packed):
            (size,) = _length_of(packed, at)
            if size <= 0:
                raise ValueError("a block has no size")
            blocks.append(packed[at + 4 : at + 4 + size])
            at += 4 + size
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > BATCH_BYTES_MAX:
        return None
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)
