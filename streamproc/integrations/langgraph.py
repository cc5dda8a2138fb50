"""LangGraph: a graph that is watched however it is called.

    graph = watch(builder.compile(checkpointer=saver))
    graph.invoke(state, {"configurable": {"thread_id": "t1"}})

The graph itself is checked when it is wrapped, and reported when a run begins. A run that must stop ends as `Halted`:

    try:
        graph.invoke(state, config)
    except Halted as halted:
        print(halted)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamproc.core.graph import check_graph
from streamproc.integrations.langchain import Breaker
from streamproc.integrations.watch import Watch
from streamproc.model.graph_declaration import declaration

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

__all__ = ["Breaker", "watch"]


def watch(
    graph: Pregel[Any, Any, Any, Any], run_id: str | None = None, *, watch: Watch | None = None, **options: Any
) -> Any:
    """Return the graph with a `Breaker` for every call of it; `options` are those of the `Breaker`.

    Raises `UnsafeCycle` if the graph can loop without an exit, and `InvalidGraph` if it cannot be read.
    """
    check_graph(graph)
    return graph.with_config(callbacks=[Breaker(run_id=run_id, watch=watch, graph=declaration(graph), **options)])
