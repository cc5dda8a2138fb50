"""What a shell completes: ids of runs, topics and their prefixes from Kafka, codes of detectors, presets.

A completion never fails and never takes long: without a broker there are no suggestions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from streamproc.errors import StreamprocError

if TYPE_CHECKING:
    from streamproc.settings import Settings

PATIENCE_S: Final = 3.0  # a person waits for the key's effect
SHOWN_MAX: Final = 200  # more than a person reads


def complete_codes(incomplete: str) -> list[str]:
    """Return codes of detectors."""
    from streamproc.detectors import BY_CODE
    from streamproc.fleet.code_pages import PAGES

    return _beginning(sorted({*BY_CODE, *PAGES}), incomplete)


def complete_policies(incomplete: str) -> list[str]:
    """Return presets; where none fits, the shell completes files."""
    from streamproc.policy.files import preset_names

    return _beginning(preset_names(), incomplete)


def complete_runs(ctx: Any, incomplete: str) -> list[str]:
    """Return ids of runs that the workers know."""
    from streamproc.replay.published import statuses

    return _asked(ctx, statuses, incomplete)


def complete_topics(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of all topics."""
    return _asked(ctx, _topics, incomplete)


def complete_prefixes(ctx: Any, incomplete: str) -> list[str]:
    """Return the prefixes of topics of turns."""
    ending = ".turns"
    found = _asked(ctx, _topics, incomplete)
    return [name.removesuffix(ending) for name in found if name.endswith(ending)]


async def _topics(settings: Settings) -> Iterable[str]:
    from streamproc.kafka.reading import open_consumer

    async with open_consumer(settings) as consumer:
        found: Iterable[str] = await consumer.topics()
        return found


def _asked(ctx: Any, ask: Any, incomplete: str) -> list[str]:
    """Ask Kafka with the settings of the command line so far, and return what begins with `incomplete`."""
    from aiokafka.errors import KafkaError

    from streamproc.settings import load_settings

    async def answer(settings: Settings) -> Iterable[str]:
        async with asyncio.timeout(PATIENCE_S):
            asking: Coroutine[Any, Any, Iterable[str]] = ask(settings)
            return await asking

    logging.disable()
    try:
        settings = load_settings(brokers=ctx.params.get("brokers"), topic_prefix=ctx.params.get("topic_prefix"))
        return _beginning(sorted(asyncio.run(answer(settings))), incomplete)
    except (StreamprocError, KafkaError, OSError, TimeoutError):
        return []
    finally:
        logging.disable(logging.NOTSET)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)][:SHOWN_MAX]
