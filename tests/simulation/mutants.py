"""Faults put into the worker on purpose: whatever the simulation is to catch, it must be seen to catch."""

from __future__ import annotations
import __future__

import contextlib
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamproc.worker.accounts import Accounts
from streamproc.worker.chunks import ChunkConsumer
from streamproc.worker.lanes import Lane, Lanes
from streamproc.worker.processors import Processor
from streamproc.worker.stores import PartitionStore
from streamproc.worker.tables import Runs
from tests.simulation.plan import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator


class Mutant(NamedTuple):
    """A method, and what is changed in it: old text and new text. `kinds` are the faults that bring it out soon."""

    owner: type[Any]
    method: str
    changes: tuple[tuple[str, str], ...]
    kinds: tuple[str, ...] = KINDS


def _mutant(owner: type[Any], method: str, old: str, new: str, *kinds: str) -> Mutant:
    return Mutant(owner, method, ((old, new),), kinds or KINDS)


TOLD: Final = "await self._until(lambda position=position: self.told >= position)"
STORED: Final = "self.committable = position; self._on_stored(self.partition, position)"
GENERATION: Final = "self.app.consumer_generation_id"
FETCH: Final = "records = await self._thread.fetch(set(active))"

MUTANTS: Final = {
    "stored before it is told": _mutant(Lane, "store", TOLD, "pass"),
    "committable before it is stored": _mutant(Lane, "store", TOLD, f"{TOLD}; {STORED}"),
    "commits go as far as was stepped": _mutant(Lanes, "committable", "lane.committable for", "lane.position for"),
    "what was applied is applied again": _mutant(Processor, "accept", "if offset <= state.offset:", "if False:"),
    "the last state wins, whoever wrote it": _mutant(
        Runs, "restore", "elif head.offset >= self._applied(key):", "else:", "freeze"
    ),
    "the last account wins, whoever wrote it": _mutant(
        Accounts, "restore", "account.offset < before.offset", "False", "freeze"
    ),
    "what came since the last write is not rebuilt": _mutant(Runs, "rebuild", "in self.dirty.get(key, ())", "in ()"),
    "what a failed step did stays": _mutant(
        Processor, "_failed", "runs.rebuild(record.key, self._engine.step)", "runs.hot[record.key]"
    ),
    "refused records are dropped": _mutant(
        Processor, "_read", "letters.append(self._refused(record, problem.problems))", "pass"
    ),
    "a state under way is taken for stored": _mutant(Runs, "raw", "if key in self._under_way:", "if False:"),
    "what is fetched belongs to the generation in which fetching began": Mutant(
        ChunkConsumer, "_drain_messages",
        ((FETCH, f"before = {GENERATION}; {FETCH}"), (f"generation = {GENERATION}", "generation = before")),
    ),
    "slices go on through a rebalance": _mutant(
        ChunkConsumer, "_hand_over", "or not self._may_go_on(generation)", ""
    ),
    "an expelled worker goes on with what it had": _mutant(
        ChunkConsumer, "wait_empty", "if self._thread.expelled:", "if False:", "freeze"
    ),
    "partitions that moved away stay": _mutant(PartitionStore, "on_rebalance", "self.leave(partition)", "pass"),
}  # fmt: skip
"""By what is wrong with the worker then. Among them the faults that the simulation has found."""


@contextlib.contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The fault, for a while."""
    honest = getattr(mutant.owner, mutant.method)
    source = textwrap.dedent(inspect.getsource(honest))
    for old, new in mutant.changes:
        assert source.count(old) == 1, (
            f"{mutant.owner.__name__}.{mutant.method} has not {old!r}: bring its fault up to date"
        )
        source = source.replace(old, new)
    made: dict[str, Any] = {}
    code = compile(source, f"<{mutant.method}>", "exec", flags=__future__.annotations.compiler_flag)
    exec(code, honest.__globals__, made)
    setattr(mutant.owner, mutant.method, made[mutant.method])
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.method, honest)
