"""What an orchestrator uses: tell the breaker what agents do, and hear which runs it halts."""

from __future__ import annotations

from streamproc.client.blocking import BlockingHaltListener, BlockingTurnPublisher
from streamproc.client.guard import Guard
from streamproc.client.listener import HaltListener
from streamproc.client.publisher import TurnPublisher

__all__ = ["BlockingHaltListener", "BlockingTurnPublisher", "Guard", "HaltListener", "TurnPublisher"]
