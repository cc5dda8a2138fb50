"""Metrics of publishers and listeners, for programs that serve their own.

from prometheus_client import start_http_server
from streamproc.metrics import register_listener, register_publisher

register_publisher(turns)
register_listener(halts)
start_http_server(9464, "127.0.0.1")
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from streamproc.metrics import definitions
from streamproc.metrics.readings import Reading, ReadingsCollector

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class PublisherCounts(Protocol):
    """What is read of a `TurnPublisher` or `BlockingTurnPublisher`."""

    @property
    def delivered(self) -> int: ...

    @property
    def dropped(self) -> int: ...

    @property
    def invalid(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class ListenerStates(Protocol):
    """What is read of a `HaltListener` or `BlockingHaltListener`."""

    @property
    def connected(self) -> bool: ...

    @property
    def caught_up(self) -> Any: ...

    @property
    def closed(self) -> bool: ...


def register_publisher(publisher: PublisherCounts, registry: CollectorRegistry | None = None) -> None:
    """Add a publisher to a registry; None is the global one of `prometheus_client`.

    The metrics are the sums over all publishers of a registry, which keeps them: its counters must not go down.
    """
    _publishers.add(publisher, registry)


def register_listener(listener: ListenerStates, registry: CollectorRegistry | None = None) -> None:
    """Add a listener to a registry; None is the global one of `prometheus_client`.

    A listener that was closed leaves it. The metrics are 1 if all others of the registry are connected (caught up).
    """
    _listeners.add(listener, registry)


def publisher_readings(publishers: Iterable[PublisherCounts]) -> Iterable[Reading]:
    """Return the sums of these publishers."""
    publishers = list(publishers)
    for outcome in definitions.PUBLISHER_OUTCOMES:
        value = sum(getattr(publisher, outcome) for publisher in publishers)
        yield Reading(definitions.PUBLISHER_EVENTS, value, (outcome,))
    yield Reading(definitions.PUBLISHER_WAITING, sum(publisher.waiting for publisher in publishers))


def _listener_readings(listeners: list[ListenerStates]) -> Iterable[Reading]:
    listeners[:] = [listener for listener in listeners if not listener.closed]
    if listeners:
        yield Reading(definitions.LISTENER_CONNECTED, all(listener.connected for listener in listeners))
        yield Reading(definitions.LISTENER_CAUGHT_UP, all(map(_is_caught_up, listeners)))
        states = Counter(map(_state, listeners))
        for state in definitions.LISTENER_STATES:
            yield Reading(definitions.LISTENER_STATE, states[state], (state,))


def _state(listener: ListenerStates) -> str:
    return str(getattr(getattr(listener, "state", None), "name", "unknown"))


def _is_caught_up(listener: ListenerStates) -> bool:
    state = listener.caught_up  # an event, or the value itself
    return bool(state.is_set() if hasattr(state, "is_set") else state)


C = TypeVar("C")


class _Registered(Generic[C]):
    """Clients by registry. A registry gets one collector for all of them."""

    def __init__(self, read: Callable[[list[C]], Iterable[Reading]]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._clients: WeakKeyDictionary[CollectorRegistry, list[C]] = WeakKeyDictionary()

    def add(self, client: C, registry: CollectorRegistry | None) -> None:
        from prometheus_client import REGISTRY

        registry = REGISTRY if registry is None else registry
        with self._lock:
            clients = self._clients.get(registry)
            if clients is None:
                clients = self._clients[registry] = []
                registry.register(ReadingsCollector(partial(self._read, clients)))
            if not any(known is client for known in clients):
                clients.append(client)


_publishers: _Registered[PublisherCounts] = _Registered(publisher_readings)
_listeners: _Registered[ListenerStates] = _Registered(_listener_readings)
