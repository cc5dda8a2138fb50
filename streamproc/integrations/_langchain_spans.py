"""Which run and which node of it a callback of LangChain is about."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from streamproc.integrations._instances import BESIDE_MAX
from streamproc.integrations._steps import STEPS_MAX
from streamproc.model.newest import Newest

if TYPE_CHECKING:
    from uuid import UUID

    from streamproc.integrations.watch import Watch

SPANS_MAX: Final = 50_000  # chains, models and tools that are running
AGENT_NODES: Final = ("model", "tools")  # what `create_agent` calls the nodes of an agent
CAUSES_MAX: Final = 10  # of an exception, which are looked at


@dataclass(slots=True, eq=False, weakref_slot=True)
class Span:
    """A chain, model or tool that is running."""

    run_id: str
    name: str  # of the graph's node, or of the agent
    above: Span | None = None  # what it is a part of; None if that was not seen
    host: Span | None = None  # the graph whose node it is or belongs to, else the chain around it
    task: Span | None = None  # the node that it is or belongs to
    reports: bool = True  # whether this handler reports it: another one may be there, too
    scope: str = ""  # the loop that it is a step of
    own: bool = False  # whether the run is this call and no more
    meta: Mapping[str, Any] = field(default_factory=dict)
    failed: BaseException | None = None  # the last exception of a part of it that was reported
    node: str = ""  # of a model: the node of its turn, and what it was asked
    request: str | None = None
    is_structured: bool = False
    call: dict[str, Any] = field(default_factory=dict)  # of a tool
    step: int = -1  # of a node: the number of its step in the graph
    is_sent: bool = False  # of a node: whether a `Send` started it, beside which there may be others
    is_over: bool = False
    called: bool = False  # of a node: whether it called a model or a tool
    held: tuple[Span, str, dict[str, Any]] | None = None  # what its model said last, until the node has ended
    newest: int = -1  # of a graph: the number of its newest step, and the nodes of it
    nodes: set[str] = field(default_factory=set)
    was_parallel: bool = False  # whether nodes ran beside each other in the step before
    places: dict[str, list[Span]] = field(default_factory=dict)  # its nodes that run beside each other, by name
    names: set[str] = field(default_factory=set)  # that are taken while it runs
    loops: Newest[str, None] = field(default_factory=lambda: Newest(STEPS_MAX))  # of its root, that called tools last

    @property
    def is_root(self) -> bool:
        """Whether it is the call of a program, or of a chain that has other callbacks."""
        return self.above is None

    @property
    def is_node(self) -> bool:
        """Whether it is a node of a graph."""
        return self.task is self

    @property
    def is_parallel(self) -> bool:
        """Whether nodes of its graph, or of one around it, run or ran beside each other, so that no sender is known."""
        host = self.host
        while host is not None:
            if host.was_parallel or len(host.nodes) > 1:
                return True
            host = None if host.above is None else host.above.host
        return False


class Spans:
    """What is running, by LangChain's ids. Thread-safe."""

    def __init__(self, watch: Watch, owner: object, run_id: str | None, node: str) -> None:
        self._watch = watch
        self._owner = owner
        self._given = run_id
        self._node = node
        self._instances = watch.instances
        self._spans: OrderedDict[UUID, Span] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, uuid: UUID, about: Mapping[str, Any], *, is_chain: bool = False) -> Span:
        """Keep what begins; `about` has LangChain's ``name``, ``parent_run_id`` and ``metadata``."""
        meta: Mapping[str, Any] = about.get("metadata") or {}
        above: UUID | None = about.get("parent_run_id")
        name = about.get("name") or ""
        with self._lock:
            parent = None if above is None else self._spans.get(above)
        if parent is None:
            run_id = self._watch.run_id(self._given, meta.get("thread_id") or str(uuid))
            span = Span(run_id, self._name_of(meta, name or "agent"), own=run_id == str(uuid), meta=meta)
            span.host = span if is_chain else None
        else:
            span = Span(parent.run_id, self._name_of(meta, parent.name), parent, meta=meta, loops=parent.loops)
            span.host, span.task, span.scope = parent.host, parent.task, parent.scope
        # All that runs is claimed, as a handler of an inner call asks for that call only.
        span.reports = (parent is None or parent.reports) and self._watch.owns(("langchain", uuid), self._owner)
        if name and name == meta.get("langgraph_node") and (parent is None or not _is_same_task(meta, parent.meta)):
            span.task, span.scope = span, f"{above}{meta.get('langgraph_path')}"
            span.host = parent  # the graph
            span.step, span.is_sent = meta.get("langgraph_step", -1), _is_sent(meta)
        with self._lock:
            if span.is_node and parent is not None:
                _begin_step(parent, span)
            self._spans[uuid] = span
            if len(self._spans) > SPANS_MAX:
                self._forget(self._spans.popitem(last=False)[1])
        return span

    @contextmanager
    def ended(self, uuid: UUID) -> Iterator[Span | None]:
        """Give what has ended, and forget it: None if its beginning was not seen or another handler reports it."""
        with self._lock:
            span = self._spans.pop(uuid, None)
        if span is None or not span.reports:
            yield None
            return
        try:
            yield span
        finally:
            with self._lock:
                self._forget(span)

    def node(self, span: Span) -> str:
        """Return the node of a turn: the name, with a number for one that works beside others of its name.

        Nodes of one graph are told apart while they run, and graphs (an agent of `create_agent` is one) until they end,
        as most of their nodes run again and again.
        """
        name, host = span.name, span.host
        if host is None:
            return name
        if span.task is not None:
            with self._lock:
                place = _place(host.places.setdefault(name, []), span.task)
            name = name if place == 1 else f"{name}/{place}"
        host.names.add(name)
        return self._instances.name(span.run_id, name, host)

    def _forget(self, span: Span) -> None:
        """Free the names that something which has ended had."""
        span.is_over = True
        for name in span.names:
            self._instances.done(span.run_id, name, span)

    def _name_of(self, meta: Mapping[str, Any], otherwise: str) -> str:
        node = meta.get("langgraph_node")
        if node in AGENT_NODES:
            node = meta.get("lc_agent_name") or node
        return self._node or str(node or otherwise)


def _begin_step(graph: Span, node: Span) -> None:
    """Note that a node begins in a step of its graph."""
    if graph.newest != node.step:
        graph.was_parallel, graph.newest, graph.nodes = len(graph.nodes) > 1, node.step, set()
    graph.nodes.add(node.scope if node.is_sent else node.name)


def _place(places: list[Span], node: Span) -> int:
    """Return the number of a node among those of its name that run beside it."""
    if node not in places:
        at = next((at for at, other in enumerate(places) if other.is_over and not _are_siblings(other, node)), None)
        if at is None:
            places.append(node)
        else:
            places[at] = node
    return min(places.index(node) + 1, BESIDE_MAX)


def _are_siblings(one: Span, other: Span) -> bool:
    """Whether two nodes were sent at once; they may run one after another. One that is tried again is no sibling."""
    return one.is_sent and one.step == other.step and one.scope != other.scope


def _is_sent(meta: Mapping[str, Any]) -> bool:
    path = meta.get("langgraph_path")
    return isinstance(path, tuple) and len(path) > 1 and path[0] == "__pregel_push" and isinstance(path[1], int)


def _is_same_task(meta: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    """Whether something belongs to the same node as what it is a part of: a graph may have the name of its node."""
    name = "langgraph_checkpoint_ns"
    return meta.get(name) is not None and meta.get(name) == above.get(name)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Return an exception and those that led to it."""
    for _ in range(CAUSES_MAX):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def is_control_flow(error: BaseException) -> bool:
    """Whether an exception is how LangGraph interrupts, drains or hands over, which is no error."""
    known = getattr(sys.modules.get("langgraph.errors"), "GraphBubbleUp", None)
    return known is not None and isinstance(error, known)


def is_left(root: Span, error: BaseException) -> bool:
    """Whether the tools that were called will never answer: a call was cancelled, or one that no checkpoint can resume
    was left in the middle of its stream."""
    if isinstance(error, asyncio.CancelledError):
        return True
    return isinstance(error, GeneratorExit) and root.meta.get("thread_id") is None


def drain(reason: str) -> None:
    """Ask the graph that is running to end after this step."""
    from langgraph.runtime import get_runtime

    try:
        control = get_runtime().control
    except RuntimeError:  # outside of a graph
        return
    if control is not None:
        control.request_drain(reason)
