"""One run's log, replayed when a page of the run is opened, and kept while the run does not change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from streamproc.model.newest import Newest

if TYPE_CHECKING:
    from streamproc.policy import Policy
    from streamproc.read_model.model import ReadModel
    from streamproc.read_model.rows import LiveRun
    from streamproc.report import Recording
    from streamproc.settings import Settings

KEPT: Final = 16  # runs: several people look at few runs


class RunLog:
    """Reads runs from the turns topic, one at a time: stepping an engine takes the whole processor."""

    def __init__(self, settings: Settings, policy: Policy, model: ReadModel) -> None:
        self._settings = settings
        self._policy = policy
        self._model = model
        self._kept: Newest[str, tuple[object, Recording]] = Newest(KEPT)
        self._turn = asyncio.Lock()

    async def read(self, run: LiveRun) -> Recording:
        """Return the recording of a run. Raises `Unavailable`."""
        from streamproc.read_model.one_run import read_run

        version = (run.offset, run.turns, run.status, run.at_ms)
        async with self._turn:
            known = self._kept.get(run.run_id)
            if known is not None and known[0] == version:
                self._kept.move_to_end(run.run_id)
                return known[1]
            recording = await read_run(self._settings, self._policy, run.run_id, model=self._model)
            self._kept[run.run_id] = version, recording
            return recording
