"""What every table of the worker keeps in memory: its partitions, each of which comes and goes as a whole."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from faust.stores import memory

if TYPE_CHECKING:
    from collections.abc import Callable

Change = tuple[bytes, bytes | None]
"""A record of a changelog: a key, and its value (None: it is forgotten)."""


def read_up_to(known: int | None, written: int, last: int | None) -> int | None:
    """Up to which record of its changelog a partition is in memory, after it wrote some, the last of them at `last`.

    Not up to its own last record where others stand before it: a worker that was expelled, and does not know it yet,
    writes behind its successor, and has not read what that one wrote.
    """
    follows = last is not None and last - written == (-1 if known is None else known)
    return last if follows else known


class Part(Protocol):
    """One partition of a table."""

    partition: int
    changelog_offset: int | None  # the last record of the changelog that is in memory

    def take(self) -> list[Change]: ...

    def stored(self, changes: Iterable[Change], last_offset: int | None) -> None: ...

    def restore(self, key: bytes, raw: bytes | None, offset: int) -> None: ...

    def leave(self) -> None: ...


P = TypeVar("P", bound=Part)


class PartitionStore(memory.Store[bytes, bytes], Generic[P]):
    """The partitions of a table that this worker has, as Faust wants to see them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.partitions: dict[int, P] = {}
        self.retained: Callable[[set[int]], None] = lambda _mine: None  # told which partitions stay, or come
        self.now_ms: Callable[[], int] = lambda: int(time.monotonic() * 1000)

    @abstractmethod
    def _new(self, partition: int) -> P:
        """A partition with nothing in it."""

    def _counted(self) -> None:
        """There are more partitions than before, or fewer."""

    def runs(self, partition: int) -> P:
        """What is kept of a partition; nothing yet of one that is new."""
        part = self.partitions.get(partition)
        if part is None:
            part = self.partitions[partition] = self._new(partition)
            self._counted()
        return part

    def leave(self, partition: int) -> None:
        """Forget a partition."""
        part = self.partitions.pop(partition, None)
        if part is not None:
            part.leave()
            self._counted()

    def close(self) -> None:
        """Forget all partitions: the worker ends."""
        for partition in list(self.partitions):
            self.leave(partition)

    def apply_changelog_batch(self, batch: Iterable[Any], to_key: Any, to_value: Any) -> None:  # noqa: ARG002 (Faust's signature)
        """Recovery by Faust's own loop: the stock path."""
        for event in batch:
            message = event.message
            self.runs(message.partition).restore(message.key, message.value, message.offset)

    def persisted_offset(self, tp: Any) -> int:
        """Up to which record of the changelog a partition is in memory: recovery goes on from there.

        -1, not None, where none is: to Faust, None means as far as it was read before.
        """
        part = self.partitions.get(tp.partition)
        known = part.changelog_offset if part is not None else None
        return known if known is not None else -1

    async def on_rebalance(
        self,
        assigned: set[Any],
        revoked: set[Any],  # noqa: ARG002 (Faust's signature)
        newly_assigned: set[Any],  # noqa: ARG002 (Faust's signature)
        generation_id: int = 0,  # noqa: ARG002 (Faust's signature)
    ) -> None:
        """Forget the partitions that are no longer this worker's."""
        topic = self.table.changelog_topic.get_topic_name()
        mine = {tp.partition for tp in assigned if tp.topic == topic}
        self.retained(mine)
        for partition in [partition for partition in self.partitions if partition not in mine]:
            self.leave(partition)

    async def on_recovery_completed(self, active_tps: set[Any], standby_tps: set[Any]) -> None:
        """Nothing."""
