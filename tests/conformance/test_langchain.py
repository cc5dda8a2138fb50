"""LangChain: agents of `create_agent` with the middleware, without network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

from streamproc import Halted, Watch
from streamproc.integrations.langchain import Breaker, BreakerMiddleware
from tests.conformance.driver import Driver, Job, Say
from tests.conformance.suite import Conformance
from tests.conformance.test_langgraph import STEPS_MAX, Grade, LangGraph, Played, tools_of


class LangChain(Driver):
    name = "langchain"
    problem = ToolException
    decides = LangGraph.decides
    image = LangGraph.image

    def agent(self, job: Job, tools: list[Any] | None = None, name: str = "agent", **more: Any) -> Any:
        middleware = [BreakerMiddleware(job.watch, run_id=job.run_id)] if job.watch else []
        return create_agent(
            Played(play=job.model),
            tools_of(job) if tools is None else tools,
            name=name,
            middleware=middleware,
            response_format=ToolStrategy(Grade) if job.grades else None,
            **more,
        )

    def config(self, job: Job) -> dict[str, Any]:
        """An agent refuses the same middleware twice, so the second watcher is the callback handler."""
        more = [Breaker(job.watch, run_id=job.run_id) for _ in range(job.times - 1)]
        return {"configurable": {"thread_id": "t1"}, "recursion_limit": STEPS_MAX, "callbacks": more}

    async def run(self, job: Job) -> list[str]:
        chat = {"checkpointer": InMemorySaver()} if job.way == "chat" else {}
        agent, config = self.agent(job, **chat), self.config(job)

        async def ask(prompt: str) -> str:
            state = await agent.ainvoke({"messages": [("user", prompt)]}, config)
            return str(state["structured_response"].grade if job.grades else state["messages"][-1].text)

        if job.way == "beside":
            return list(await asyncio.gather(*map(ask, job.prompts)))
        if job.way == "chat":
            return [await ask(prompt) for prompt in job.prompts]
        found = []

        @tool
        async def ask_each() -> str:
            """Ask the other agent about each item."""
            found.extend([await ask(prompt) for prompt in job.prompts])
            return "asked"

        def once(asked: str, results: list[str]) -> Say:
            return Say("Done.") if results else Say(calls=(("ask_each", {}),))

        outer = self.agent(Job(once, [], watch=job.watch, run_id=job.run_id), [ask_each], "outer")
        await outer.ainvoke({"messages": [("user", "Ask about each.")]}, config)
        return found

    def fails(self, message: str) -> Callable[..., Any]:
        """By default the exception of a tool ends an agent: one that goes on tells its model what went wrong."""

        def run(cmd: str) -> str:
            raise ToolException(message)

        return run

    async def retry(self, watch: Watch) -> int:
        """The schema asks for a number."""

        class Number(BaseModel):
            """The grade."""

            grade: int

        Number.__name__ = "Grade"
        job = Job(lambda asked, results: Say("bad"), [], watch=watch)
        middleware = [BreakerMiddleware(watch, run_id=job.run_id)]
        agent = create_agent(
            Played(play=job.model), [], name="agent", middleware=middleware, response_format=ToolStrategy(Number)
        )
        state = await agent.ainvoke({"messages": [("user", "Grade it.")]}, self.config(job))
        return len(state["messages"])

    async def hand_over(self, watch: Watch) -> int:
        """Two agents of one graph, each with a tool that hands over to the other."""
        built = StateGraph(MessagesState)
        for name, other in (("lead", "coder"), ("coder", "lead")):

            @tool(f"transfer_to_{other}")
            def transfer(other: str = other) -> Command[str]:
                """Hand over."""
                return Command(goto=other, graph=Command.PARENT)

            def model(asked: str, results: list[str], other: str = other) -> Say:
                return Say(calls=((f"transfer_to_{other}", {}),))

            built.add_node(name, self.agent(Job(model, [], watch=watch), [transfer], name), destinations=(other,))
        built.add_edge(START, "lead")
        config = self.config(Job(model, []))
        state = await built.compile().ainvoke({"messages": [("user", "Fix it.")]}, config)
        return len(state["messages"])

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        agent, config = self.agent(job, checkpointer=InMemorySaver()), self.config(job)
        try:
            await agent.ainvoke({"messages": [("user", job.prompts[0])]}, config)
        except Halted:
            go_on()
        return [(await agent.ainvoke(None, config))["messages"][-1].text]


class TestLangChain(Conformance):
    driver = LangChain()
