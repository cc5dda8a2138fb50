"""Names for agents of one name that work beside each other in a run: each is a node of its own."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from itertools import count
from typing import Any, Final

from streamproc.model.newest import Newest

NODES_MAX: Final = 10_000  # nodes of runs with an agent at work
BESIDE_MAX: Final = 1_000  # agents of one node at work: further ones share the last name


class Instances:
    """Names the agents at work: `researcher`, and beside it `researcher/2` and `researcher/3`.

    A name is free again when its agent is done, so that agents which work one after another are one node: that they
    repeat each other is seen. An agent is known by an object or a text of its framework. Thread-safe.
    """

    def __init__(self) -> None:
        self._at_work: Newest[tuple[str, str], dict[int | str, tuple[int, Any]]] = Newest(NODES_MAX)
        self._gone: deque[tuple[str, str, int]] = deque()  # objects that were collected: at any time, in any thread
        self._lock = threading.Lock()

    def name(self, run_id: str, node: str, agent: object) -> str:
        """Return the name of an agent, which is at work until `done`, or until the object is gone."""
        with self._lock:
            while self._gone:
                self._done(*self._gone.popleft())
            places = self._at_work[run_id, node] = self._at_work.get((run_id, node), {})
            key = agent if isinstance(agent, str) else id(agent)
            if key not in places:
                taken = {place for place, _ in places.values()}
                place = min(next(place for place in count(1) if place not in taken), BESIDE_MAX)
                places[key] = place, self._end(run_id, node, agent)
            place = places[key][0]
        return node if place == 1 else f"{node}/{place}"

    def done(self, run_id: str, node: str, agent: object) -> None:
        """Take note that an agent is done, so that the next one has its name."""
        with self._lock:
            self._done(run_id, node, agent if isinstance(agent, str) else id(agent))

    def _done(self, run_id: str, node: str, key: int | str) -> None:
        places = self._at_work.get((run_id, node), {})
        _, end = places.pop(key, (0, None))
        if end is not None:
            end.detach()
        if not places:
            self._at_work.pop((run_id, node), None)

    def _end(self, run_id: str, node: str, agent: object) -> Any:
        """Arrange that an object which is gone is done, if the framework never says so."""
        if isinstance(agent, str):
            return None
        end = weakref.finalize(agent, self._gone.append, (run_id, node, id(agent)))
        end.atexit = False
        return end
