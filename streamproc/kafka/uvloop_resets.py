"""Makes aiokafka survive closed connections on uvloop.

aiokafka treats an `OSError` on write as a broken connection and opens a new one. If the connection was closed a moment
ago, uvloop raises a `RuntimeError` instead (https://github.com/aio-libs/aiokafka/issues/1038). That ends background
tasks of aiokafka without a trace. Once its metadata task has ended, all others wait for it for ever, and nothing is
sent or committed any more. asyncio's own loop is not affected.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable


def _with_connection_error(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def wrapper(self: AIOKafkaConnection, *args: Any, **kwargs: Any) -> Any:
        try:
            return send(self, *args, **kwargs)
        except KafkaError:  # is a RuntimeError too
            raise
        except RuntimeError as problem:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"Connection at {self.host}:{self.port} broken: {problem}") from problem

    return wrapper


def treat_resets_as_disconnects() -> None:
    """Patch aiokafka: in this process, writing to a closed connection raises `KafkaConnectionError`."""
    if not hasattr(AIOKafkaConnection.send, "__wrapped__"):
        for name in ("send", "_send_sasl_token"):
            setattr(AIOKafkaConnection, name, _with_connection_error(getattr(AIOKafkaConnection, name)))
