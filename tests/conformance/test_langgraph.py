"""LangGraph: graphs written by hand around a model that plays, without network."""

from __future__ import annotations

import base64
import inspect
import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send
from pydantic import BaseModel

from streamproc import Halted, Watch
from streamproc.integrations.langgraph import watch as watched
from tests.conformance.driver import INPUT_TOKENS, MODEL, OUTPUT_TOKENS, Driver, Job, Say
from tests.conformance.sessions import AS_TEXT
from tests.conformance.suite import Conformance

STEPS_MAX = 200  # of a graph


class Grade(BaseModel):
    """The grade."""

    grade: str


class Played(BaseChatModel):
    """A chat model that a function plays. It gives a grade where it has that tool."""

    play: Any
    model: str = MODEL

    @property
    def _llm_type(self) -> str:
        return "played"

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], *_: Any, tools: Sequence[Any] = (), **__: Any) -> ChatResult:
        asked, results = "", []
        for message in messages:
            if isinstance(message, HumanMessage):
                asked, results = str(message.text), []
            elif isinstance(message, ToolMessage):
                results.append(str(message.text))
        said: Say = self.play(asked, results)
        calls = [*said.calls]
        text = said.text
        if text and any(tool["function"]["name"] == "Grade" for tool in tools):
            calls, text = [("Grade", {"grade": text})], ""
        usage = {
            "input_tokens": INPUT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        message = AIMessage(
            text,
            tool_calls=[{"name": name, "args": args, "id": f"call_{uuid.uuid4().hex}"} for name, args in calls],
            usage_metadata=usage,
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def tools_of(job: Job) -> list[Any]:
    return [
        StructuredTool.from_function(
            coroutine=tool if inspect.iscoroutinefunction(tool) else None,
            func=None if inspect.iscoroutinefunction(tool) else tool,
            description=tool.__doc__ or tool.__name__,
            handle_tool_error=True,
        )
        for tool in job.tools
    ]


def agent_of(job: Job) -> StateGraph[Any, Any, Any, Any]:
    """An agent as tutorials write it: a node that asks the model, and one that calls its tools."""
    tools = tools_of(job)
    llm = Played(play=job.model).bind_tools(tools) if tools else Played(play=job.model)

    def agent(state: MessagesState) -> Any:
        return {"messages": [llm.invoke(state["messages"])]}

    def route(state: MessagesState) -> str:
        return "tools" if state["messages"][-1].tool_calls else END  # type: ignore[union-attr]

    built = StateGraph(MessagesState)
    built.add_node("agent", agent)
    built.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    built.add_edge(START, "agent")
    built.add_conditional_edges("agent", route, ["tools", END])
    built.add_edge("tools", "agent")
    return built


class Items(TypedDict):
    items: list[str]
    found: Annotated[list[str], lambda old, new: old + new]


def map_of(job: Job) -> StateGraph[Any, Any, Any, Any]:
    """A graph with one node, which asks the model about each item."""
    tools = {tool.name: tool for tool in tools_of(job)}
    llm = Played(play=job.model)
    grader = llm.with_structured_output(Grade)
    caller = llm.bind_tools(list(tools.values())) if tools else llm

    def ask(item: str) -> str:
        if job.grades:
            return str(grader.invoke(item).grade)  # type: ignore[union-attr]
        messages: list[AnyMessage] = [HumanMessage(item)]
        while (answer := caller.invoke(messages)).tool_calls:
            messages += [answer, *(tools[call["name"]].invoke(call) for call in answer.tool_calls)]
        return str(answer.text)

    built = StateGraph(Items)
    built.add_node("grader", lambda state: {"found": [ask(item) for item in state["items"]]})
    built.add_edge(START, "grader")
    return built


def fan_out_of(job: Job) -> StateGraph[Any, Any, Any, Any]:
    """A graph that sends each item to an instance of one agent."""
    agent = agent_of(job).compile()

    async def worker(state: Any) -> Any:
        done = await agent.ainvoke({"messages": [HumanMessage(state["item"])]})
        return {"found": [done["messages"][-1].text]}

    built = StateGraph(Items)
    built.add_node("worker", worker)
    built.add_conditional_edges(
        START, lambda state: [Send("worker", {"item": item}) for item in state["items"]], ["worker"]
    )
    return built


class LangGraph(Driver):
    name = "langgraph"
    problem = ToolException
    decides = AS_TEXT

    def image(self, data: bytes) -> Any:
        return [{"type": "image", "base64": base64.b64encode(data).decode(), "mime_type": "image/png"}]

    def graph(self, job: Job, built: StateGraph[Any, Any, Any, Any], **compiled: Any) -> Any:
        graph = built.compile(**compiled)
        for _ in range(job.times if job.watch else 0):
            graph = watched(graph, job.run_id, watch=job.watch)
        return graph

    async def run(self, job: Job) -> list[str]:
        if job.way == "chat":
            graph, config = self.graph(job, agent_of(job), checkpointer=InMemorySaver()), self.config()
            return [
                (await graph.ainvoke({"messages": [("user", prompt)]}, config))["messages"][-1].text
                for prompt in job.prompts
            ]
        built = map_of(job) if job.way == "map" else fan_out_of(job)
        state = await self.graph(job, built).ainvoke({"items": list(job.prompts), "found": []}, self.config())
        return list(state["found"])

    async def retry(self, watch: Watch) -> int:
        """A node looks at the answer and asks again, as long as it does not like it."""
        job = Job(lambda asked, results: Say("bad"), [], watch=watch)
        llm = Played(play=job.model)
        built = StateGraph(MessagesState)
        built.add_node("agent", lambda state: {"messages": [llm.invoke(state["messages"])]})
        built.add_node("review", lambda state: {"messages": [HumanMessage("The grade must be a number.")]})
        built.add_edge(START, "agent")
        built.add_conditional_edges("agent", lambda state: "review" if state else END, ["review", END])
        built.add_edge("review", "agent")
        state = await self.graph(job, built).ainvoke({"messages": [("user", "Grade it.")]}, self.config())
        return len(state["messages"])

    async def hand_over(self, watch: Watch) -> int:
        """Two agents of one graph, of which each thinks that it is the other's turn."""
        job = Job(lambda asked, results: Say("over to the other"), [], watch=watch)
        built = StateGraph(MessagesState)
        for name, other in (("lead", "coder"), ("coder", "lead")):
            llm = Played(play=lambda asked, results, other=other: Say(f"That is for the {other}."))
            built.add_node(name, lambda state, llm=llm: {"messages": [llm.invoke(state["messages"])]})
            built.add_conditional_edges(name, lambda state, other=other: other if state else END, [other, END])
        built.add_edge(START, "lead")
        state = await self.graph(job, built).ainvoke({"messages": [("user", "Fix it.")]}, self.config())
        return len(state["messages"])

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        graph, config = self.graph(job, agent_of(job), checkpointer=InMemorySaver()), self.config()
        try:
            await graph.ainvoke({"messages": [("user", job.prompts[0])]}, config)
        except Halted:
            go_on()
        return [(await graph.ainvoke(None, config))["messages"][-1].text]

    def config(self) -> dict[str, Any]:
        return {"configurable": {"thread_id": "t1"}, "recursion_limit": STEPS_MAX}


class TestLangGraph(Conformance):
    driver = LangGraph()
