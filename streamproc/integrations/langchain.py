"""LangGraph and LangChain: a callback handler for any graph or chain, and a middleware for `create_agent`.

    graph.invoke(state, {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker()]})
    agent = create_agent(model, tools, middleware=[BreakerMiddleware()])     # or this; not both

A run that must stop ends as `Halted`, before its next step. It is no `Exception`, so catch it by name:

    try:
        graph.invoke(state, config)
    except Halted as halted:
        print(halted)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.callbacks import BaseCallbackHandler

from streamproc.errors import Halted
from streamproc.integrations._langchain_messages import (
    Passed,
    answer_of,
    asked_in,
    newest_results,
    read_fields,
    result_of,
    said_by,
    state_of,
)
from streamproc.integrations._langchain_spans import Span, Spans, causes, drain, is_control_flow, is_left
from streamproc.integrations._requests import Requests
from streamproc.integrations._steps import Steps, model_field, plain
from streamproc.integrations.watch import Watch, sparing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from langchain_core.messages import BaseMessage, ToolMessage
    from langchain_core.outputs import LLMResult


STATE_FIELDS: Final = frozenset({"round", "convergence", "consensus"})


class Breaker(BaseCallbackHandler):
    """Watches what a graph or chain does, and stops it before its next step.

    The run is `run_id`, else that of `Watch.run`, else the ``thread_id`` of the configuration, else each top-level call
    is a run. With ``Watch(on_halt="end")`` a graph is drained where it can be, and ends as LangGraph's `GraphDrained`.
    A callback cannot tell warnings to the model: that takes `BreakerMiddleware`. What several handlers hear is reported
    once, by the outermost.

    With ``nodes="all"``, a node that calls neither a model nor a tool is a turn, too, with what it adds to the state.
    `state_fields` says which names in that state are the ``round``, ``convergence`` or ``consensus`` of a turn.
    """

    run_inline = True  # else an asynchronous graph hands handlers to a thread, and nothing promises their order

    def __init__(
        self,
        watch: Watch | None = None,
        *,
        run_id: str | None = None,
        node: str = "",
        graph: Mapping[str, Any] | None = None,
        nodes: Literal["models", "all"] = "models",
        state_fields: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.watch = watch or Watch(**options)
        if unknown := set(state_fields or ()) - STATE_FIELDS:
            raise ValueError(f"{', '.join(sorted(unknown))}: not one of {', '.join(sorted(STATE_FIELDS))}")
        self._graph = graph
        self._all_nodes = nodes == "all"
        self._state_fields = dict(state_fields or {})
        self.raise_error = self.watch.fail == "closed"
        self._steps = Steps(self.watch)
        self._spans = Spans(self.watch, self, run_id, node)
        self._requests = Requests()

    # A step begins.

    def on_chain_start(self, serialized: dict[str, Any], inputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        with sparing(self.watch):
            span = self._spans.begin(run_id, kwargs, is_chain=True)
            if not span.reports:
                return
            if span.is_root:
                if self._graph is not None:
                    self.watch.started(span.run_id, graph=self._graph)
                self._steps.person(span.run_id, said_by(inputs))
            if span.is_node:
                self._check(span, run_id)  # a graph may loop without a model

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        with sparing(self.watch):
            span = self._spans.begin(run_id, kwargs)
            if not span.reports:
                return
            span.node = self._spans.node(span)
            with sparing(self.watch):  # a message that cannot be read must not keep a run from being stopped
                self._heard(span, newest_results(messages[0]))
                span.is_structured = "ls_structured_output_format" in (kwargs.get("options") or {})
                asked, instructions, goes_on = asked_in(messages[0])
                loop = (span.run_id, span.scope, span.node)
                span.request = self._requests.of(loop, asked, instructions, goes_on=goes_on)
            self._model_begins(span, run_id)

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any) -> None:
        with sparing(self.watch):
            span = self._spans.begin(run_id, kwargs)
            if span.reports:
                span.node = self._spans.node(span)
                loop = (span.run_id, span.scope, span.node)
                span.request = self._requests.of(loop, [prompts[0]], "", goes_on=False)
                self._model_begins(span, run_id)

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **kwargs: Any) -> None:
        with sparing(self.watch):
            span = self._spans.begin(run_id, kwargs)
            if not span.reports:
                return
            name = kwargs.get("name") or (serialized or {}).get("name") or "tool"
            span.call = {
                "id": kwargs.get("tool_call_id") or "",
                "name": name,
                "args": kwargs.get("inputs") or input_str,
            }
            self._called(span)
            self._check(span, run_id)

    def _model_begins(self, span: Span, uuid: UUID) -> None:
        self._called(span)
        self._steps.begins(span.run_id, span.scope)
        self._check(span, uuid)

    def _called(self, span: Span | None) -> None:
        """Take note that nodes call a model or a tool, and report what their models said before."""
        node = None if span is None else span.task
        while node is not None:
            node.called = True
            self._release(node)
            node = None if node.above is None else node.above.task

    def _check(self, span: Span, uuid: UUID) -> None:
        try:
            self.watch.check(span.run_id)
        except Halted:
            with self._spans.ended(uuid):  # LangChain says nothing of what did not begin
                raise

    # A step has ended.

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        with sparing(self.watch), self._spans.ended(run_id) as span:
            if span is None:
                return
            answer = answer_of(response.generations[0][0])
            self.watch.spent(span.run_id, span.node, **answer.usage)
            fields: dict[str, Any] = ({"from_": None} if span.is_parallel else {}) | answer.fields()
            fields |= model_field(answer.model or span.meta.get("ls_model_name"), "a model of LangChain")
            fields["provider"] = span.meta.get("ls_provider") or ""
            if span.request:
                fields["request"] = span.request
            calls = answer.calls
            if span.is_structured and calls:  # no tool, but the form of the answer
                found = [plain(args) for _, _, args in calls]
                fields["structured_output"], calls = found[0] if len(found) == 1 else found, []
            if self._state_fields and span.task is not None and not calls:
                span.task.held = span, answer.text, fields
            else:
                self._steps.answered(span.run_id, span.node, answer.text, calls, scope=span.scope, **fields)
                if calls:
                    span.loops[span.scope] = None
            self._over(span)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        with sparing(self.watch), self._spans.ended(run_id) as span:
            if span is not None:
                self._returned(span, **result_of(output, span.call["id"]))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        with sparing(self.watch), self._spans.ended(run_id) as span:
            if span is not None and isinstance(error, Exception) and not is_control_flow(error):
                _is_news(span, error)
                self._returned(span, error=f"{type(error).__name__}: {error}")

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        with sparing(self.watch), self._spans.ended(run_id) as span:
            if span is None:
                return
            if span.is_node:
                self._node_ended(span, outputs)
            self._over(span)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        with sparing(self.watch), self._spans.ended(run_id) as span:
            if span is None:
                return
            self._release(span)
            failed = isinstance(error, Exception) and not is_control_flow(error)
            if failed and span.is_node and _is_news(span, error):
                said = {"class": type(error).__name__, "message": str(error) or type(error).__name__}
                self.watch.turn(span.run_id, self._spans.node(span), from_=None, errors=[said])
            if span.is_root and is_left(span, error):
                for loop in span.loops:
                    self._steps.dropped(span.run_id, loop, ())
            self._over(span, "failed" if failed else "stopped")

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self.on_chain_error(error, run_id=run_id)

    def _release(self, node: Span, **fields: Any) -> None:
        if node.held is not None:
            (model, text, about), node.held = node.held, None
            self._steps.answered(node.run_id, model.node, text, scope=model.scope, **about, **fields)

    def _node_ended(self, span: Span, outputs: Any) -> None:
        if self._steps.waiting(span.run_id):
            passed = Passed(outputs)
            self._heard(span, passed.results)
            if passed.is_clear:
                self._steps.dropped(span.run_id, span.scope, passed.ids)
        fields = read_fields(outputs, self._state_fields)
        if span.held is not None:
            self._release(span, **fields)
        elif fields or (self._all_nodes and not span.called and _is_written(span)):
            if not span.called:
                fields["structured_output"] = state_of(outputs)
            sender = {"from_": None} if span.is_parallel else {}
            self.watch.turn(span.run_id, self._spans.node(span), **sender, **fields)
            self._called(span.above)  # what a node around it adds to the state is this

    def _heard(self, span: Span, results: Iterable[ToolMessage]) -> None:
        """Report results that no callback told of: of functions that are no tools of LangChain, and refused calls."""
        for message in results:
            call_id = message.tool_call_id
            if self._steps.waits_for(span.run_id, call_id):
                self._steps.returned(span.run_id, span.name, call_id, **result_of(message, call_id))

    def _returned(self, span: Span, **found: Any) -> None:
        asked = span.call
        node = "" if self._steps.knows(span.run_id, asked["id"]) else self._spans.node(span)
        self._steps.returned(span.run_id, node, asked["id"], name=asked["name"], args=asked["args"], **found)
        self._over(span)

    def _over(self, span: Span, status: str = "") -> None:
        """Report that a run has ended; drain its graph if it must not go on."""
        if span.is_root:
            self._steps.ended(span.run_id, for_good=span.own)
            if span.own and status != "stopped":
                self.watch.finished(span.run_id, status)
        elif self.watch.on_halt == "end" and (halt := self.watch.halted(span.run_id)):
            drain(str(halt.message))


def _is_written(node: Span) -> bool:
    """Whether people wrote a node: not one of LangGraph, or of a middleware of `create_agent`."""
    name = str(node.meta.get("langgraph_node"))
    return not name.startswith("__") and not ("." in name and "lc_agent_name" in node.meta)


def _is_news(span: Span, error: BaseException) -> bool:
    """Whether no part of this reported the exception, or one that led to it; what it is a part of will not either."""
    if span.failed is not None and span.failed in causes(error):
        return False
    above: Span | None = span
    while above is not None:
        above.failed = error
        above = above.above
    return True


def __getattr__(name: str) -> Any:
    """Load the middleware on first use: it needs LangChain, and the handler only its core."""
    if name != "BreakerMiddleware":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamproc.integrations._langchain_middleware import BreakerMiddleware

    return BreakerMiddleware
