"""A summary of every run of a partition (its user and tenant, whether it is over), without decoding whole states."""

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
    """The first fields of a stored state, up to the tenant and user of the run."""

    echo: int = -1
    halt_code: str = ""
    severity: int = 0
    workflow: str = ""
    tenant: str = ""
    user: str = ""


class RunSummary(NamedTuple):
    """The facts needed to stop a run. `over`: it is halted or finished already."""

    key: bytes
    offset: int
    over: bool
    user: str
    tenant: str


_scopes: Final = msgspec.msgpack.Decoder(RunScope)


def run_summaries(runs: Runs) -> Iterator[RunSummary]:
    """Yield every run as it is now. Runs may be added and removed during the iteration."""
    for key in runs.known():
        state: RunState | RunScope | None = runs.decoded(key)
        if state is None and (raw := runs.raw(key)) is not None:
            with contextlib.suppress(msgspec.DecodeError):  # of another version
                state = _scopes.decode(state_bytes(raw))
        if state is not None:
            yield RunSummary(key, state.offset, state.halted >= 0 or state.finished, state.scope.user, state.scope.tenant)
