"""The part of a state that few runs have, as MessagePack. It is decoded when it is first read."""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.core.board.state import Board
from streamproc.core.records import StateError
from streamproc.core.signals.open_turns import OpenTurn
from streamproc.core.signals.task_attempts import TaskAttempt
from streamproc.core.signals.task_tokens import TaskTokens


class Cold(msgspec.Struct, array_like=True):
    """What few runs have."""

    board: Board | None = None  # tasks, from the first event about one
    open_turns: list[OpenTurn] = []  # started and not ended, oldest first
    task_tokens: dict[int, TaskTokens] = {}  # by task tag, oldest first
    node_names: dict[int, str] = {}  # by node tag, shortened: names for the counters of edges, oldest first
    recent_calls: list[list[int]] = []  # see `recent_calls`; only if the policy's gate of LOOP003 is not `any`
    command_ids: dict[int, int] = {}  # tags of the ids of operators' commands, with the time of each
    commands_since_ms: int = 0  # the latest time among the commands that were forgotten; 0: none was
    plugins: dict[str, bytes] = {}  # what detectors keep, by their codes (`detector_memory`)
    halted_by: int = 0  # hash of the id of the decision that halted the run; 0: none, or one of an earlier version
    ended_tasks: dict[str, list[str]] = {}  # by task id: how it ended (`board.ends`), oldest first
    graph_declared: bool = False  # in states of version 3: whether the run has declared its graph
    task_attempts: dict[int, TaskAttempt] = {}  # by task tag, the latest last; only if every error counts


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Cold).decode
NO_COLD: Final = Cold()
_BLANK: Final = _encode(NO_COLD)


def read_cold(raw: bytes) -> Cold:
    """Decode it; nothing at all is a blank one. Raises `StateError`."""
    try:
        return _decode(raw or _BLANK)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # msgspec lets Python's own through
        raise StateError(str(error)) from None


def write_cold(cold: Cold) -> bytes:
    """Encode it; a blank one is nothing at all."""
    raw = _encode(cold)
    return b"" if raw == _BLANK else raw
