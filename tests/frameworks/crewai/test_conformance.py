"""CrewAI: tasks of crews and calls of agents, with a model that is played."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar

from crewai import Agent, BaseLLM, Crew, Task
from crewai.events.event_bus import crewai_event_bus
from crewai.llms.base_llm import LLMCallType, llm_call_context
from crewai.tools import BaseTool, tool
from pydantic import BaseModel, PrivateAttr

from streamproc import Watch
from streamproc.integrations.crewai import Breaker, HaltedCrew
from tests.conformance.driver import INPUT_TOKENS, MODEL, OUTPUT_TOKENS, Driver, Job, Model, Say
from tests.conformance.suite import Conformance

USAGE = {
    "prompt_tokens": INPUT_TOKENS,
    "completion_tokens": OUTPUT_TOKENS,
    "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
}


class Grade(BaseModel):
    grade: str


class Played(BaseLLM):
    grades: bool = False
    answers: int = 0
    _model: Model = PrivateAttr()

    def __init__(self, model: Model, **options: Any) -> None:
        super().__init__(model=MODEL, **options)
        self._model = model

    def call(self, messages: Any, *_: Any, from_task: Any = None, from_agent: Any = None, **__: Any) -> Any:
        asked = next(one["content"] for one in reversed(messages) if "Current Task:" in str(one["content"]))
        results = [one["content"] for one in messages if one["role"] == "tool"]
        said = self._model(asked, results)
        self.answers += 1
        answer: Any = json.dumps({"grade": said.text}) if self.grades else said.text
        if said.calls:
            answer = [
                {
                    "id": f"c{len(results)}-{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(args)},
                }
                for number, (name, args) in enumerate(said.calls)
            ]
        with llm_call_context():
            self._emit_call_started_event(messages, from_task=from_task, from_agent=from_agent)
            self._emit_call_completed_event(answer, LLMCallType.LLM_CALL, from_task, from_agent, messages, USAGE)
        assert crewai_event_bus.flush(timeout=60)  # a real model is slower than the threads that hear of its usage
        return answer

    async def acall(self, *args: Any, **options: Any) -> Any:
        return self.call(*args, **options)

    def get_input_tokens_count(self, messages: Any) -> int:
        return INPUT_TOKENS

    def supports_function_calling(self) -> bool:
        return True


def described(function: Callable[..., Any]) -> BaseTool:
    function.__doc__ = function.__doc__ or "A tool."
    return tool(function.__name__)(function)


class CrewAI(Driver):
    name = "CrewAI"
    without: ClassVar[dict[str, str]] = {
        "honest_parallel_equal_calls": "CrewAI itself ends an agent at its fifth equal call, also of one answer",
        "cancelled_while_a_tool_runs": "CrewAI runs tools in threads, which go on",
        "parallel calls, one of which fails": "CrewAI itself ends an agent at its fifth equal call",
    }

    def image(self, data: bytes) -> Any:
        return [{"type": "image", "data": base64.b64encode(data).decode()}]

    def agent(self, job: Job, role: str = "agent") -> Agent:
        played = Played(job.model, grades=job.grades)
        tools = [described(one) for one in job.tools]
        return Agent(role=role, goal="g", backstory="b", llm=played, tools=tools, max_iter=60)

    async def run(self, job: Job) -> list[str]:
        with ExitStack() as entered:
            for _ in range(job.times if job.watch else 0):
                entered.enter_context(Breaker(job.watch, run_id=job.run_id))
            return await self.done(job)

    async def done(self, job: Job) -> list[str]:
        agent = self.agent(job)
        if job.way == "beside":
            return [str(one) for one in await asyncio.gather(*map(agent.kickoff_async, job.prompts))]
        if job.way == "map":
            output = Grade if job.grades else None
            tasks = [
                Task(description=prompt, expected_output="Done.", agent=agent, output_pydantic=output)
                for prompt in job.prompts
            ]
            return [task.raw for task in (await Crew(agents=[agent], tasks=tasks).akickoff()).tasks_output]
        found: list[str] = []
        history: list[Any] = []
        for prompt in job.prompts:
            history.append({"role": "user", "content": prompt})
            found.append(str(await agent.kickoff_async(history)))
            history.append({"role": "assistant", "content": found[-1]})
        return found

    async def retry(self, watch: Watch) -> int:
        agent = self.agent(Job(lambda asked, results: Say("bad"), []))
        task = Task(
            description="Grade it.",
            expected_output="A number.",
            agent=agent,
            guardrail=lambda output: (False, "The grade must be a number."),
            guardrail_max_retries=30,
        )
        with Breaker(watch, run_id="r1"):
            await Crew(agents=[agent], tasks=[task]).akickoff()
        return agent.llm.answers

    async def hand_over(self, watch: Watch) -> int:
        order = {"task": "Fix it.", "context": "none", "coworker": "coder"}

        def leads(asked: str, results: list[str]) -> Say:
            return Say("Done.") if len(results) > 30 else Say(calls=(("delegate_work_to_coworker", order),))

        lead = self.agent(Job(leads, []), "lead")
        lead.allow_delegation = True
        coder = self.agent(Job(lambda asked, results: Say("That is for the lead to do."), []), "coder")
        task = Task(description="Lead.", expected_output="It works.", agent=lead)
        with Breaker(watch, run_id="r1"):
            await Crew(agents=[lead, coder], tasks=[task]).akickoff()
        return lead.llm.answers + coder.llm.answers

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        agent = self.agent(job)
        with Breaker(job.watch, run_id=job.run_id):
            try:
                await agent.kickoff_async(job.prompts[0])
            except HaltedCrew as halted:
                go_on()
                return [str(await agent.kickoff_async(halted.messages))]
        return []


class TestCrewAI(Conformance):
    driver = CrewAI()
