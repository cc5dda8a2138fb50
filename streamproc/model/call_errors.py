"""What an exception of a model's client says about its provider, as fields of a ``model.called`` event.

It reads what the SDKs of OpenAI, Anthropic, Google, Mistral, LiteLLM and httpx have in common, and imports none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

CAUSES_MAX: Final = 5  # exceptions in a chain that are looked at
_LINKS: Final = ("connection", "connect", "timeout", "timedout", "unavailable", "overloaded", "ratelimit", "throttl")


def call_fields(error: BaseException) -> dict[str, Any]:
    """Return how a call failed: `status`, `error_class`, `retryable`, and `retry_after` in seconds, where known."""
    fields: dict[str, Any] = {"error_class": type(error).__name__}
    links: list[BaseException] = [error]
    while len(links) < CAUSES_MAX and (cause := links[-1].__cause__) is not None:
        links.append(cause)
    for one in links:
        response = getattr(one, "response", None)
        status = next((found for found in map(_status, (one, response)) if found), 0)
        if status:
            fields["status"] = status
            if (seconds := _retry_after(getattr(response, "headers", None))) is not None:
                fields["retry_after"] = seconds
            return fields
    names = [type(one).__name__.lower() for one in links]
    fields["retryable"] = any(isinstance(one, TimeoutError | ConnectionError) for one in links) or any(
        word in name for name in names for word in _LINKS
    )
    return fields


def _status(source: Any) -> int:
    for name in ("status_code", "status", "code", "http_status"):
        value = getattr(source, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 999:
            return value
    return 0


def _retry_after(headers: Any) -> float | None:
    """Return the seconds of ``retry-after-ms`` or ``retry-after``, which may also be a date."""
    if not isinstance(headers, Mapping) and not hasattr(headers, "get"):
        return None
    try:
        for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
            value = headers.get(name)
            if value is None:
                continue
            try:
                return max(0.0, float(value) * unit_s)
            except (TypeError, ValueError):
                return max(0.0, parsedate_to_datetime(str(value)).timestamp() - time.time())
    except Exception:  # noqa: BLE001 (headers of any shape: the status alone is enough)
        return None
    return None
