"""Trials of policies: one at a time, in a process, for half a minute at most, ended when no page waits for it."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from streamproc.errors import StreamprocError
from streamproc.model.newest import Newest
from streamproc.policy import load_policy
from streamproc.settings import Settings
from streamproc.web.trial_process import TRIAL_FILE, Trial, TrialResult

log = logging.getLogger(__name__)

SECONDS_MAX: Final = 30.0
KEPT: Final = 8  # results, in memory: a page that is opened again shows what it showed
POLICY_FILE: Final = "policy.yaml"


class TrialBusy(StreamprocError):
    """Another trial is running. Wait for it, or cancel it."""


@dataclass(slots=True)
class TrialState:
    """A trial: what was asked, and its result once there is one."""

    id: str
    text: str  # of the changed policy
    hash: str  # of the changed policy
    runs: int
    began_s: float = field(default_factory=time.monotonic)
    result: TrialResult | None = None
    task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Return whether there is no result yet."""
        return self.result is None


class Trials:
    """The trials of this process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._states: Newest[str, TrialState] = Newest(KEPT)
        self._reading = False

    def find(self, trial_id: str) -> TrialState | None:
        """Return a trial."""
        return self._states.get(trial_id)

    @property
    def running(self) -> TrialState | None:
        """Return the trial that is running."""
        return next((one for one in self._states.values() if one.running), None)

    async def start(self, text: str, run_ids: Sequence[str], since_ms: int) -> TrialState:
        """Start a trial of a policy, given as text. Raises `InvalidPolicy`, and `TrialBusy`."""
        if self.running is not None or self._reading:
            raise TrialBusy
        folder = tempfile.TemporaryDirectory(prefix="streamproc-trial-")
        trial = Trial(
            run_ids=list(run_ids), since_ms=since_ms, in_force=self._in_force(), changed=f"{folder.name}/{POLICY_FILE}"
        )
        self._reading = True
        try:
            policy_hash = await asyncio.to_thread(_written, trial, text, Path(folder.name))
        except BaseException:
            folder.cleanup()
            raise
        finally:
            self._reading = False
        state = TrialState(secrets.token_urlsafe(12), text, policy_hash, len(run_ids))
        self._states[state.id] = state
        state.task = asyncio.create_task(self._run(state, folder))
        return state

    def cancel(self, trial_id: str) -> None:
        """End a trial that is running."""
        state = self._states.get(trial_id)
        if state is not None and state.task is not None and state.running:
            state.task.cancel()

    async def close(self, _app: Any = None) -> None:
        """End all trials."""
        tasks = [one.task for one in self._states.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _in_force(self) -> str:
        source = self._settings.policy
        return str(Path(source).resolve()) if Path(source).is_file() else source

    async def _run(self, state: TrialState, folder: tempfile.TemporaryDirectory[str]) -> None:
        environment = os.environ | {
            f"STREAMPROC_{name.upper()}": str(getattr(self._settings, name)) for name in ("brokers", "topic_prefix")
        }
        process = None
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "streamproc.web.trial_process", folder.name, env=environment,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            async with asyncio.timeout(SECONDS_MAX):
                output, errors = await process.communicate()
            if process.returncode:
                log.error("a trial failed: %s", errors.decode("utf-8", "replace")[-2_000:])
                state.result = TrialResult(problem="The trial failed; the log of the page says why.")
            else:
                state.result = msgspec.json.decode(output, type=TrialResult)
        except TimeoutError:
            text = f"It took longer than {SECONDS_MAX:g} s and was ended. Choose fewer runs, or a shorter time."
            state.result = TrialResult(problem=text)
        except asyncio.CancelledError:
            state.result = TrialResult(problem="It was cancelled.")
        finally:
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
            folder.cleanup()


def _written(trial: Trial, text: str, folder: Path) -> str:
    """Write the files of a trial, and return the hash of its policy; reading a long policy takes seconds."""
    path = folder / POLICY_FILE
    path.write_text(text, "utf-8", "replace")
    (folder / TRIAL_FILE).write_bytes(msgspec.json.encode(trial))
    return load_policy(path).hash
