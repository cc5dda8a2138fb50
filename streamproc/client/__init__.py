"""The client side: publish what agents do, and receive which runs are halted."""

from __future__ import annotations

from streamproc.client.blocking import BlockingHaltListener, BlockingTurnPublisher
from streamproc.client.guard import Guard
from streamproc.client.listener import HaltListener
from streamproc.client.publisher import TurnPublisher

__all__ = ["BlockingHaltListener", "BlockingTurnPublisher", "Guard", "HaltListener", "TurnPublisher"]
