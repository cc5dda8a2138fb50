"""What logs that are read side by side share: checked afterwards, as if they had been read one after the other."""

from __future__ import annotations

from collections import UserDict
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import NamedTuple

from streamproc.importers import Import, ImportTally
from streamproc.importers.imported import id_hash


class Claims(NamedTuple):
    """What one log took from the shared state, and what it left there, since it was asked last."""

    record_ids: list[int]  # hashes of ids that were taken for new ...
    absent: list[int]  # ... and of ids that were looked up and not known
    agents_read: list[tuple[str, str | None]]  # names that were looked up, before this log wrote them
    agents_written: list[tuple[str, str]]


class _Agents(UserDict[str, str]):
    """Names of sub-agents, which notes what is looked up and what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[str, str | None]] = []
        self.written: list[tuple[str, str]] = []

    def __contains__(self, key: object) -> bool:
        known = super().__contains__(key)
        if not known and isinstance(key, str):
            self.read.append((key, None))
        return known

    def __getitem__(self, key: str) -> str:
        if key not in self:
            raise KeyError(key)
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: str) -> None:
        super().__setitem__(key, value)
        self.written.append((key, value))


@dataclass(slots=True)
class ClaimingImport(Import):
    """The import of one log that knows of no other, and notes what it would have asked of them."""

    claimed: list[int] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    agents: MutableMapping[str, str] = field(default_factory=_Agents)

    def is_new(self, record_id: str) -> bool:
        digest = id_hash(record_id)
        if digest in self.seen:
            return False
        self.seen.add(digest)
        self.claimed.append(digest)
        return True

    def knows(self, record_id: str) -> bool:
        digest = id_hash(record_id)
        if digest in self.seen:
            return True
        self.absent.append(digest)
        return False

    def take(self) -> Claims:
        """Return what was asked since the last call."""
        agents = self.agents
        assert isinstance(agents, _Agents)
        claims = Claims(self.claimed, self.absent, agents.read, agents.written)
        self.claimed, self.absent, agents.read, agents.written = [], [], [], []
        return claims


class SharedState:
    """The true shared state, against which the claims of logs are checked in their order."""

    def __init__(self, reading: Import) -> None:
        self.reading = reading
        self._record_ids: list[int] = []
        self._agents_before: dict[str, str | None] = {}

    def begin(self) -> None:
        """Begin the claims of the next log."""
        self._record_ids, self._agents_before = [], {}

    def admit(self, claims: Claims) -> bool:
        """Take over what a log claims; False if it would have read something else after the logs before it."""
        reading = self.reading
        if not reading.seen.isdisjoint(claims.record_ids) or not reading.seen.isdisjoint(claims.absent):
            return False
        if any(reading.agents.get(key) != value for key, value in claims.agents_read if key not in self._agents_before):
            return False
        reading.seen.update(claims.record_ids)
        self._record_ids += claims.record_ids
        for key, value in claims.agents_written:
            self._agents_before.setdefault(key, reading.agents.get(key))
            reading.agents[key] = value
        return True

    def withdraw(self) -> None:
        """Take back what the current log has claimed: it is read again."""
        self.reading.seen.difference_update(self._record_ids)
        for key, value in self._agents_before.items():
            if value is None:
                self.reading.agents.pop(key, None)
            else:
                self.reading.agents[key] = value
        self.begin()

    def add(self, tallies: dict[str, ImportTally], notes: dict[str, None]) -> None:
        """Add what was counted in a log."""
        self.reading.notes |= notes
        for name, counted in tallies.items():
            tally = self.reading.tally(name)
            tally.files += counted.files
            tally.runs |= counted.runs
            tally.sub_agents |= counted.sub_agents
            tally.turns += counted.turns
            tally.calls += counted.calls
            tally.answered += counted.answered
            tally.ignored += counted.ignored
            tally.repeated += counted.repeated
            tally.bad_lines += counted.bad_lines
            tally.notes |= counted.notes
            tally.names = counted.names | tally.names


@dataclass(slots=True)
class OwnedImport(Import):
    """The import of one log among several that grow: an id belongs to the log that had it first, however often that
    one is read again."""

    owner: str = ""
    owners: dict[int, str] = field(default_factory=dict)

    def is_new(self, record_id: str) -> bool:
        digest = id_hash(record_id)
        if digest in self.seen or self.owners.setdefault(digest, self.owner) != self.owner:
            return False
        self.seen.add(digest)
        return True

    def knows(self, record_id: str) -> bool:
        digest = id_hash(record_id)
        return digest in self.seen or self.owners.get(digest, self.owner) != self.owner
