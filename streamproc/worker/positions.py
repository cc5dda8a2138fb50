"""Up to which offset a partition is processed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faust.types import TP

    from streamproc.worker.partition_pipeline import PartitionPipelines


async def position_of(consumer: Any, pipelines: PartitionPipelines, tp: TP) -> int:
    """Return the offset up to which a partition is processed; if none of it is in hand, up to which it is fetched.

    The marker that ends a transaction has an offset and is not a record.
    """
    pipeline = pipelines.get(tp.partition)
    stepped = pipeline.position if pipeline is not None else -1
    if tp in consumer.in_hand:
        return stepped
    fetched = await consumer.position(tp)
    return max(stepped, fetched if fetched is not None else -1)
