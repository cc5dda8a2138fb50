"""Run the engine over files, without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamproc.core.decision import Decision
from streamproc.core.local_accounts import LocalAccounts
from streamproc.core.states import KeptRuns
from streamproc.fingerprint import HashKey
from streamproc.model.wire import Turn
from streamproc.policy import Policy
from streamproc.replay.source import Source


class Scan:
    """A scan of files under one policy.

    Runs are independent, except for the budgets that they share. A run that continues in a later file is the same run.
    Hashes are made under the `key`, if there is one, as a publisher with that key makes them.
    """

    def __init__(self, sources: Iterable[Source], policy: Policy, key: HashKey | None = None) -> None:
        self.sources = list(sources)
        self.runs: KeptRuns[str] = KeptRuns()
        self.turns = 0
        self._key = key
        self._accounts = LocalAccounts(policy.engine(), self.runs)

    def __iter__(self) -> Iterator[Decision]:
        """Yield decisions in log order. Raises what `Source` raises."""
        step = self._accounts.step
        for source in self.sources:
            for event in source.fingerprints(self._key):
                self.turns += type(event) is Turn
                yield from step(event, event.at)

    def turns_of(self) -> dict[str, int]:
        """Return how many turns each run has taken."""
        return {run_id: run.turns for run_id in self.runs if (run := self.runs.read(run_id)) is not None}
