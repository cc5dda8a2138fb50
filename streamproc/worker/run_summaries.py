"""A summary of every run of a partition (its user and tenant, whether it is over), without decoding whole states."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streamproc.worker.codec import peek_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.worker.tables import Runs


class RunSummary(NamedTuple):
    """The facts needed to stop a run. `over`: it is halted or finished already."""

    key: bytes
    offset: int
    over: bool
    user: str
    tenant: str


def run_summaries(runs: Runs) -> Iterator[RunSummary]:
    """Yield every run as it is now. Runs may be added and removed during the iteration."""
    for key in runs.known():
        state = runs.decoded(key)
        if state is not None:
            over = state.halted >= 0 or state.finished
            yield RunSummary(key, state.offset, over, state.scope.user, state.scope.tenant)
        elif (raw := runs.raw(key)) is not None and (known := peek_whole(raw)) is not None:
            head, scope = known
            yield RunSummary(key, head.offset, head.halted >= 0 or head.finished, scope.user, scope.tenant)
