"""Records of a topic, as aiokafka returns them."""

from __future__ import annotations

import json
from typing import Any

from aiokafka import ConsumerRecord


def record(
    value: dict[str, Any] | bytes | None, *, offset: int, partition: int = 0, at_ms: int = 0, key: bytes | None = b"r"
) -> ConsumerRecord:
    """One record of a turns topic. By default its key is that of the run `r`."""
    raw = json.dumps(value).encode() if isinstance(value, dict) else value
    return ConsumerRecord("t.turns", partition, offset, at_ms, 1, key, raw, None, 0, 0, ())


def stuck_record(offset: int, **options: Any) -> ConsumerRecord:
    """A turn with the same output as the one before it."""
    return record({"run_id": "r", "node": "coder", "output": "I will try again."}, offset=offset, **options)
