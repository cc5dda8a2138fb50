"""AutoGen: agents with guarded clients of a model that is played."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import Swarm
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from streamproc import Halted, Watch
from streamproc.integrations.autogen import Breaker, guarded
from tests.conformance.driver import INPUT_TOKENS, MODEL, OUTPUT_TOKENS, Driver, Job, Model, Say
from tests.conformance.sessions import AS_TEXT
from tests.conformance.suite import Conformance

INFO: Any = {
    "vision": False, "function_calling": True, "json_output": True, "family": "unknown", "structured_output": True,
    "multiple_system_messages": True,
}  # fmt: skip


class Grade(BaseModel):
    grade: str


class Played(ReplayChatCompletionClient):
    def __init__(self, model: Model, *, grades: bool = False) -> None:
        super().__init__([], model_info=INFO)
        self._create_args = {"model": MODEL}  # where AutoGen's clients of providers have it
        self.played = model
        self.grades = grades
        self.answers = 0

    async def create(self, messages: Sequence[Any], **_: Any) -> CreateResult:
        asked, results = "", []
        for message in messages:
            if message.type == "UserMessage":
                asked, results = str(message.content), []
            elif message.type == "FunctionExecutionResultMessage":
                results += [result.content for result in message.content]
        said = self.played(asked, results)
        self.answers += 1
        text = json.dumps({"grade": said.text}) if self.grades else said.text
        calls = [FunctionCall(str(uuid.uuid4()), json.dumps(args), name) for name, args in said.calls]
        return CreateResult(
            finish_reason="function_calls" if calls else "stop",
            content=calls or text,
            usage=RequestUsage(prompt_tokens=INPUT_TOKENS, completion_tokens=OUTPUT_TOKENS),
            cached=False,
            thought=said.text if calls else None,
        )


class AutoGen(Driver):
    name = "AutoGen"
    without: ClassVar[dict[str, str]] = {
        "cancelled_while_a_tool_runs": "no request tells of tools that are cancelled",
    }
    decides = AS_TEXT

    def image(self, data: bytes) -> Any:
        """The text that a workbench makes of one."""
        return f"[Image: {base64.b64encode(data).decode()}]"

    def agent(self, job: Job, **more: Any) -> AssistantAgent:
        client: Any = Played(job.model, grades=job.grades)
        for _ in range(job.times if job.watch else 0):
            client = guarded(client, job.watch, run_id=job.run_id)
        tools: Any = list(job.tools)
        output = Grade if job.grades else None
        return AssistantAgent(
            "agent", client, tools=tools, max_tool_iterations=60, output_content_type=output, description="d", **more
        )

    async def run(self, job: Job) -> list[str]:
        agent = self.agent(job)
        found = []
        if job.way == "beside":
            agents = [self.agent(job) for _ in job.prompts]
            return await asyncio.gather(*map(said, agents, job.prompts))
        for prompt in job.prompts:
            if job.way == "map":
                agent = self.agent(job)
            found.append(await said(agent, prompt))
        return found

    async def hand_over(self, watch: Watch) -> int:
        breaker = Breaker(watch, run_id="r1")
        clients = {
            name: Played(lambda asked, results, other=other: Say(calls=((f"transfer_to_{other}", {}),)))
            for name, other in (("lead", "coder"), ("coder", "lead"))
        }
        agents: Any = [
            AssistantAgent(name, breaker.guarded(client, name), handoffs=[other])
            for (name, client), other in zip(clients.items(), ("coder", "lead"), strict=True)
        ]
        await Swarm(agents, termination_condition=breaker, max_turns=60).run(task="Fix it.")
        watch.check("r1")  # a team ends with a reason
        return sum(client.answers for client in clients.values())

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        agent = self.agent(job)
        try:
            await agent.run(task=job.prompts[0])
        except Halted:
            go_on()
        return [(await agent.run()).messages[-1].to_text()]


async def said(agent: AssistantAgent, prompt: str) -> str:
    return str((await agent.run(task=prompt)).messages[-1].to_text())


class TestAutoGen(Conformance):
    driver = AutoGen()
