"""A worker's heartbeat: who it is, which partitions it decides on, and how far it is. One record of the workers topic.

The record key is the worker's name, so compaction keeps the last heartbeat of each worker, also of one that is gone.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from streamproc.errors import InvalidEvent, Problem, shown
from streamproc.model.provider_state import ProviderState

WorkerState = Literal["deciding", "restoring", "stopped"]

PARTITIONS_MAX: Final = 10_000  # as in the setting `partitions`
NAME_MAX: Final = 255  # characters: a host's name has 253 at most
TEXT_MAX: Final = 128  # characters of a version, a policy's name or its hash
HEARTBEAT_BYTES_MAX: Final = 524_288  # 10 000 partitions take 210 kB; three partitions about 350 bytes
PROVIDERS_MAX: Final = 100  # breakers of one heartbeat: those that opened last
LAGGING_MAX: Final = 1_000  # partitions whose delay one heartbeat reports: those with the longest

SHOWN_MAX: Final = 200  # characters of an unusable value that an error shows
REMEDY: Final = "only `streamproc worker` writes to this topic: look for another writer, or for an older version"

_Partition = Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]


class LaggingPartition(msgspec.Struct, kw_only=True, frozen=True):
    """A partition that a worker is behind in: turns that wait, and the age of the oldest of them, at most."""

    partition: _Partition
    records: _Count
    delay_ms: _Count


class Heartbeat(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A heartbeat of a worker. Times are epoch milliseconds of the broker's clock, as the worker estimates it.

    `partitions` are those of the turns topic on which it decides, `positions` the next offset in each. While
    ``restoring`` (it joins its group, or reads the states of runs) it decides on none, and they are those that it, or
    the worker of this name before it, had last. A worker that stops cleanly ends with ``stopped``.
    """

    w: Annotated[int, msgspec.Meta(ge=1, le=1)]
    worker: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX)]
    state: WorkerState
    at: _Count
    started: _Count = 0
    deciding_at: _Count = 0
    """When it, or the worker of this name before it, decided on these partitions last; 0: never."""
    decided_at: _Count = 0
    """When it published a decision last; 0: not since it started."""
    version: _Text = ""
    policy: _Text = ""
    policy_hash: _Text = ""
    evidence_excerpts: bool = False
    """Whether its policy asks guards for redacted excerpts of what halted runs said last."""
    shadow: _Text = ""
    """The name of its shadow; empty for a worker whose decisions count."""
    of: Annotated[int, msgspec.Meta(ge=0, le=PARTITIONS_MAX)] = 0
    """How many partitions the turns topic has; 0: not known yet."""
    partitions: Annotated[list[_Partition], msgspec.Meta(max_length=PARTITIONS_MAX)] = []
    positions: Annotated[list[_Count], msgspec.Meta(max_length=PARTITIONS_MAX)] = []
    lagging: Annotated[list[LaggingPartition], msgspec.Meta(max_length=LAGGING_MAX)] = []
    providers: Annotated[list[ProviderState], msgspec.Meta(max_length=PROVIDERS_MAX)] = []
    """The breakers of its partitions that hold calls back: not closed, or without retries left."""


_decoder: Final = msgspec.json.Decoder(Heartbeat)
_encode: Final = msgspec.json.Encoder().encode


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Return a heartbeat as its record. Of providers whose names are so long that no reader would take it, the latest
    stay."""
    raw = _encode(heartbeat)
    while len(raw) > HEARTBEAT_BYTES_MAX and heartbeat.providers:
        latest = heartbeat.providers[: len(heartbeat.providers) // 2]
        heartbeat = msgspec.structs.replace(heartbeat, providers=latest)
        raw = _encode(heartbeat)
    return raw


def read_heartbeat(value: bytes | None, key: bytes | None = None) -> Heartbeat:
    """Read a heartbeat from its record. With a `key`, the key must be the worker's name. Raises `InvalidEvent`."""
    if not value or len(value) > HEARTBEAT_BYTES_MAX:
        what = "the record has no value" if not value else f"{len(value)} bytes, more than {HEARTBEAT_BYTES_MAX}"
        raise InvalidEvent((Problem("heartbeat", what, REMEDY),))
    try:
        heartbeat = _decoder.decode(value)
        name = heartbeat.worker.encode()
    except (ValueError, RecursionError) as problem:  # msgspec's errors are ValueErrors; so are lone surrogates
        raise InvalidEvent((Problem("heartbeat", str(problem)[:SHOWN_MAX], REMEDY),)) from None
    if len(heartbeat.positions) != len(heartbeat.partitions):
        what = f"{len(heartbeat.positions)} positions of {len(heartbeat.partitions)} partitions"
        raise InvalidEvent((Problem("positions", what, REMEDY),))
    if heartbeat.partitions and max(heartbeat.partitions) >= heartbeat.of:
        what = f"partition {max(heartbeat.partitions)} of {heartbeat.of}"
        raise InvalidEvent((Problem("partitions", what, REMEDY),))
    if key is not None and key != name:
        what = f"{shown(key)}, but the worker is {heartbeat.worker[:SHOWN_MAX]!r}"
        raise InvalidEvent((Problem("key", what, REMEDY),))
    return heartbeat
