"""The operator's event that has lifted the last halt of a run: kept in place of that halt, and published with statuses.

Guards release a run only with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from streamproc.model.wire import OperatorResume, encode
from streamproc.worker.limits import RESUME_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamproc.core.decision import Decision
    from streamproc.core.run_state import RunState
    from streamproc.worker.tables import Runs

RESUME_START: Final = b'{"type":"operator.resume"'


def note_lifted(runs: Runs, key: bytes, state: RunState, event: OperatorResume, decisions: Sequence[Decision]) -> None:
    """Forget the halt that a resume has lifted. Keep the operator's resume in its place: guards release the run only
    with it, and, where it must be signed, with its signature."""
    resumed = any(decision.type == "run.resumed" for decision in decisions)
    if resumed or (state.halted < 0 and resumed_by(runs, key) is None):
        runs.halts.pop(key, None)
    if resumed:
        kept = encode(msgspec.structs.replace(event, token=""))  # the signature does not cover the run's secret
        if len(kept) <= RESUME_BYTES_MAX:
            runs.halts[key] = kept


def resumed_by(runs: Runs, key: bytes) -> bytes | None:
    """Return the operator's event that has resumed this run; None if it was not resumed since its last halt."""
    kept = runs.halts.get(key)
    return kept if kept is not None and kept.startswith(RESUME_START) else None
