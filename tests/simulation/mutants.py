"""Faults planted in the worker: the simulation must find each of them."""

from __future__ import annotations
import __future__

import contextlib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from streamproc.core.compiled import core_kind
from streamproc.core.slice_steps import SliceSteps
from streamproc.kafka.partitioning import Home
from streamproc.worker.accounts_table import AccountPartition
from streamproc.worker.consumer import BatchConsumer
from streamproc.worker.crash_marks import PartitionMarks
from streamproc.worker.partition_pipeline import PartitionPipeline, PartitionPipelines
from streamproc.worker.partition_store import PartitionStore
from streamproc.worker.spend import AccountProcessor
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.simulation.plan import KINDS


class Change(NamedTuple):
    """A method, and what is changed in it."""

    owner: type[Any]
    method: str
    old: str
    new: str


class Mutant(NamedTuple):
    """Some changes, and the kinds of faults that bring it to light soon."""

    changes: tuple[Change, ...]
    kinds: tuple[str, ...] = KINDS


def _mutant(owner: type[Any], method: str, old: str, new: str, *kinds: str) -> Mutant:
    return Mutant((Change(owner, method, old, new),), kinds or KINDS)


PUBLISHED: Final = "await self._until(lambda: self._sent >= given)"
STORED: Final = "self.committable = self.position"

MUTANTS: Final = {
    "stored before it is published": _mutant(PartitionPipeline, "_store_some", PUBLISHED, "pass"),
    "committable before it is stored": _mutant(PartitionPipeline, "_store_some", PUBLISHED, f"{PUBLISHED}; {STORED}"),
    "committable when some of it is stored": _mutant(
        PartitionPipeline, "store", "max(1, changed)", "1"
    ),
    "commits go as far as was stepped": _mutant(
        PartitionPipelines, "committable", "pipeline.committable for", "pipeline.position for"
    ),
    "the last state wins, even of an expelled worker": _mutant(
        Runs, "restore", "elif applied < (peek_run(known) or (-1,))[0]:", "elif False:", "freeze"
    ),
    "the last account wins, even of an expelled worker": _mutant(
        AccountPartition, "restore", "account.offset < before.offset", "False", "freeze", "compact"
    ),
    "a failed step forgets its run": _mutant(
        TurnProcessor, "_failed", "runs.rebuild(key, self._again)", "runs.states.begin(runs.partition)"
    ),
    "refused records are dropped": _mutant(
        TurnProcessor, "_read", "effects.at(place).append(self._refused(why, record, partition, *problem.problems))",
        "pass"
    ),
    "a state under way is taken for stored": _mutant(Runs, "raw", "if key in self._under_way:", "if False:"),
    "what a fetch brings that outlived a rebalance is dropped": _mutant(
        BatchConsumer, "_give_back", "self.kafka.seek(tp, batch[0].offset)", "pass"
    ),
    # Each of the four is enough to keep such a slice from the agent.
    "slices are processed through a rebalance": Mutant((
        Change(BatchConsumer, "_step", "or not self._may_go_on(asked)", ""),
        Change(BatchConsumer, "_step", "if self._may_go_on(asked) else 0", ""),
        Change(BatchConsumer, "_offer", "self._may_go_on(asked) and not pipeline.closed", "True"),
        Change(BatchConsumer, "_withdraw", "self._offered.withdraw()", "pass"),
    )),
    "an overwritten state is not written again": Mutant(
        (Change(PartitionPipelines, "repair", "self[partition].store_soon()", "pass"),), ("freeze",)
    ),
    "a record that crashes the process is tried for ever": _mutant(
        PartitionMarks, "is_poison", "self._mark.crashes.get(offset, 0) >= CRASHES_IN_HAND_MAX", "False"
    ),
    "a record is refused after one crash": _mutant(
        PartitionMarks, "is_poison", ">= CRASHES_IN_HAND_MAX", ">= 1", "kill", "rebalance"
    ),
    "records outside of their home are stepped": _mutant(
        TurnProcessor, "_load", "if not self._home.holds(key, runs.partition):", "if False:", "kill"
    ),
    "records outside of their home vanish": _mutant(
        TurnProcessor, "_away", "return [refused, *self._strays.refuse(record, runs.partition)]", "return []", "kill"
    ),
    "the home is the next partition": _mutant(Home, "holds", "== partition", "== (partition + 1) % self.count", "kill"),
    "the first partition is every run's home, too": _mutant(
        Home, "holds", "return not self.checked", "return not partition or not self.checked", "kill"
    ),
    "a run that is known elsewhere is at home there, too": _mutant(
        TurnProcessor, "_load", "if not self._home.holds(key, runs.partition):",
        "if key not in runs and not self._home.holds(key, runs.partition) and type(event) is not RunStarted:", "kill"
    ),
    "calls of models vanish": _mutant(
        TurnProcessor, "accept", "outgoing += call_records(self._calls.take(runs.partition))",
        "self._calls.take(runs.partition)", "kill"
    ),
    "a breaker forgets what it has booked": _mutant(
        AccountPartition, "book", "account.offset = max(account.offset, offset)", "pass", "kill"
    ),
    "the last state of a provider is not published": _mutant(
        AccountProcessor, "_book_calls", "in states if self._policy", "in states[:-1] if self._policy", "kill"
    ),
    "partitions that moved away stay": _mutant(PartitionStore, "on_rebalance", "self.leave(partition)", "pass"),
}  # fmt: skip
if core_kind() == "python":  # these change the core, or what it does only uncompiled: a failed step leaves no bytes
    MUTANTS["what was applied is applied again"] = _mutant(
        SliceSteps, "_step_run", "if offset <= run.offset:", "if False:"
    )
    MUTANTS["what came since the last write is not rebuilt"] = _mutant(
        Runs, "rebuild", "in self.dirty.get(key, ())", "in ()"
    )
"""The mutants by their fault, among them those that the simulation once found in the worker."""


@contextlib.contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The fault, for a while."""
    sources: dict[tuple[type[Any], str], str] = {}
    for owner, method, old, new in mutant.changes:
        source = sources.get((owner, method)) or textwrap.dedent(inspect.getsource(getattr(owner, method)))
        assert source.count(old) == 1, f"{method} has no {old!r} any more: bring this fault up to date"
        sources[owner, method] = source.replace(old, new)
    honest = {(owner, method): getattr(owner, method) for owner, method in sources}
    try:
        for (owner, method), source in sources.items():
            made: dict[str, Any] = {}
            code = compile(source, f"<{method}>", "exec", flags=__future__.annotations.compiler_flag)
            exec(code, honest[owner, method].__globals__, made)
            setattr(owner, method, made[method])
        yield
    finally:
        for (owner, method), function in honest.items():
            setattr(owner, method, function)
