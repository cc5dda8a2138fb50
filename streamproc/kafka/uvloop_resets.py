"""Connections to Kafka on uvloop's loop.

aiokafka takes an `OSError` of a write for a broken connection, and goes on with a new one. Where a connection has just
been closed, uvloop raises a `RuntimeError` (https://github.com/aio-libs/aiokafka/issues/1038). That ends tasks of
aiokafka that nobody watches, and after the one that keeps up with the cluster every other waits for it without end:
nothing is sent or committed any more. On asyncio's own loop there is nothing to mend.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable


def _taking_it_for_broken(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def sending(self: AIOKafkaConnection, *args: Any, **kwargs: Any) -> Any:
        try:
            return send(self, *args, **kwargs)
        except KafkaError:  # which is a RuntimeError, too
            raise
        except RuntimeError as problem:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"Connection at {self.host}:{self.port} broken: {problem}") from problem

    return sending


def treat_resets_as_disconnects() -> None:
    """Let all connections of this process take a write to what is closed for a broken connection."""
    if not hasattr(AIOKafkaConnection.send, "__wrapped__"):
        for name in ("send", "_send_sasl_token"):
            setattr(AIOKafkaConnection, name, _taking_it_for_broken(getattr(AIOKafkaConnection, name)))
