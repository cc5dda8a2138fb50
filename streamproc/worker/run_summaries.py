"""A quick look at every run of a partition: whose it is, and whether it is over. Without decoding whole states."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from streamproc.worker.codec import Head, state_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.core.run_state import RunState
    from streamproc.worker.tables import Runs


class RunScope(Head, array_like=True):
    """The first fields of a stored state, as far as those that say whose run it is."""

    halted: int = -1
    echo: int = -1
    halt_code: str = ""
    severity: int = 0
    workflow: str = ""
    tenant: str = ""
    user: str = ""


class RunSummary(NamedTuple):
    """What must be known of a run to stop it: `over` where it is halted or finished already."""

    key: bytes
    offset: int
    over: bool
    user: str
    tenant: str


_scopes: Final = msgspec.msgpack.Decoder(RunScope)


def run_summaries(runs: Runs) -> Iterator[RunSummary]:
    """Every run as it is now. May be walked slowly: runs may come and go meanwhile."""
    for key in runs.known():
        state: RunState | RunScope | None = runs.decoded(key)
        if state is None and (raw := runs.raw(key)) is not None:
            with contextlib.suppress(msgspec.DecodeError):  # of another version
                state = _scopes.decode(state_bytes(raw))
        if state is not None:
            yield RunSummary(key, state.offset, state.halted >= 0 or state.finished, state.user, state.tenant)
