"""streamproc: a circuit breaker for fleets of AI agents."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamproc.client import BlockingHaltListener, BlockingTurnPublisher, HaltListener, TurnPublisher
    from streamproc.client.admission import Admission, BlockingAdmission
    from streamproc.core.graph import check_graph
    from streamproc.errors import (
        Halted,
        InvalidEvent,
        InvalidGraph,
        InvalidPolicy,
        ProviderUnavailable,
        Refused,
        SpawnRefused,
        StreamprocError,
        TaskEnded,
        UnsafeCycle,
    )
    from streamproc.integrations.watch import Watch
    from streamproc.model.controls import ControlEvent
    from streamproc.monitor import Monitor
    from streamproc.policy import load_policy

__version__ = "0.1.0"

if "STREAMPROC_CORE" in os.environ or Path(__file__).with_name("_compiled").is_dir():  # made by `make compile`
    from streamproc.core.compiled import activate

    activate()

_HOMES = {
    "Admission": "client.admission",
    "BlockingAdmission": "client.admission",
    "BlockingHaltListener": "client",
    "BlockingTurnPublisher": "client",
    "ControlEvent": "model.controls",
    "HaltListener": "client",
    "Halted": "errors",
    "InvalidEvent": "errors",
    "InvalidGraph": "errors",
    "InvalidPolicy": "errors",
    "Monitor": "monitor",
    "ProviderUnavailable": "errors",
    "Refused": "errors",
    "SpawnRefused": "errors",
    "StreamprocError": "errors",
    "TaskEnded": "errors",
    "TurnPublisher": "client",
    "UnsafeCycle": "errors",
    "Watch": "integrations.watch",
    "check_graph": "core.graph",
    "load_policy": "policy",
}

__all__ = [
    "Admission",
    "BlockingAdmission",
    "BlockingHaltListener",
    "BlockingTurnPublisher",
    "ControlEvent",
    "HaltListener",
    "Halted",
    "InvalidEvent",
    "InvalidGraph",
    "InvalidPolicy",
    "Monitor",
    "ProviderUnavailable",
    "Refused",
    "SpawnRefused",
    "StreamprocError",
    "TaskEnded",
    "TurnPublisher",
    "UnsafeCycle",
    "Watch",
    "check_graph",
    "load_policy",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use: `Monitor` needs no Kafka client, and a publisher needs no detectors."""
    if name not in _HOMES:
        raise AttributeError(f"module 'streamproc' has no attribute {name!r}")
    return getattr(import_module(f"streamproc.{_HOMES[name]}"), name)
