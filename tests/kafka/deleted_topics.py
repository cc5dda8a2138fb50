"""Delete topics of a test, and wait until they are gone: the broker confirms a deletion before it has happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproc.kafka import topics
from tests.waiting import until

if TYPE_CHECKING:
    from streamproc.settings import Settings


async def delete_topics(settings: Settings, *names: str) -> None:
    """Delete topics by their full names."""

    async def are_gone() -> bool:
        async with topics.administering(settings) as admin:
            return not {*names} & {*await admin.list_topics()}

    async with topics.administering(settings) as admin:
        await admin.delete_topics(list(names))
    await until(are_gone, 30, "the topics to be gone", every_s=0.1)
