"""LiteLLM's SDK: a plain loop around it, with the real provider, and a model on a port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, ClassVar

import httpx2
import litellm

from streamproc import Halted
from streamproc.integrations.litellm import Breaker
from tests.conformance.driver import MODEL, Driver, Job, Model, image_part, result_of, told
from tests.conformance.model_server import answered
from tests.conformance.sessions import AS_TEXT
from tests.conformance.suite import Conformance
from tests.integrations.model_server import serving

Messages = list[dict[str, Any]]


class PlayedAPI:
    """The API of a model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=answered(self._model, request.url.path, json.loads(request.content)))


def watched_by(breakers: list[Breaker]) -> None:
    """Watch with these and no others: LiteLLM copies callbacks into lists of its own, and nothing takes them out."""
    for name, value in vars(litellm).items():
        if name.endswith(("callback", "callbacks")) and isinstance(value, list):
            value.clear()
    litellm.suppress_debug_info = True
    litellm.callbacks = breakers


class LiteLLM(Driver):
    name = "LiteLLM"
    without: ClassVar[dict[str, str]] = {
        "stuck_output_retries": "LiteLLM has no output retries",
        "stuck_hand_overs": "LiteLLM has no hand-overs",
        "cancelled_while_a_tool_runs": "no request tells of tools that are cancelled",
        "honest_equal_instances_in_parallel": "calls of one run tell nothing of the loop around them: give each an id",
    }
    decides = AS_TEXT

    def image(self, data: bytes) -> Any:
        return image_part(data)

    async def run(self, job: Job) -> list[str]:
        watched_by([Breaker(job.watch) for _ in range(job.times)] if job.watch else [])
        with serving(PlayedAPI(job.model)) as address:
            found, messages = [], []
            for prompt in job.prompts:
                messages = [*([] if job.way == "map" else messages), {"role": "user", "content": prompt}]
                found.append(await self.goes_on(job, address, messages))
            return found

    async def goes_on(self, job: Job, address: str, messages: Messages) -> str:
        """Run tools until the model answers with a text."""
        tools = {tool.__name__: tool for tool in job.tools}
        form: Any = {"response_format": {"type": "json_object"}} if job.grades else {}
        while True:
            answer = await litellm.acompletion(
                model=f"openai/{MODEL}", messages=messages, api_base=f"{address}/v1", api_key="x", max_retries=0,
                litellm_session_id=job.run_id, **form,
            )  # fmt: skip
            await asyncio.sleep(0.05)  # a task logs the answer
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return json.loads(message.content)["grade"] if job.grades else str(message.content)
            for call in message.tool_calls:
                try:
                    result = told(await result_of(tools[call.function.name](**json.loads(call.function.arguments))))
                except ValueError as error:
                    result = f"Error: {error}"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        watched_by([Breaker(job.watch)])
        messages: Messages = [{"role": "user", "content": job.prompts[0]}]
        with serving(PlayedAPI(job.model)) as address:
            try:
                await self.goes_on(job, address, messages)
            except Halted:
                go_on()
            return [await self.goes_on(job, address, messages)]

    async def all(self, jobs: Any) -> list[Any]:
        watched_by([Breaker(jobs[0].watch)])  # one for all: LiteLLM's callbacks are those of the process

        async def one(job: Job, address: str) -> Any:
            try:
                return [await self.goes_on(job, address, [{"role": "user", "content": job.prompts[0]}])]
            except Halted as halted:
                return halted

        models = {job.model: None for job in jobs}
        with contextlib.ExitStack() as stack:
            addresses = {model: stack.enter_context(serving(PlayedAPI(model))) for model in models}
            return await asyncio.gather(*(one(job, addresses[job.model]) for job in jobs))


class TestLiteLLM(Conformance):
    driver = LiteLLM()

    def test_money(self) -> None:
        """LiteLLM's own price of a model counts."""
        price = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.01, "litellm_provider": "openai"}
        names = (MODEL, f"{MODEL}-2024-07-18")
        known = {name: litellm.model_cost[name] for name in names}
        litellm.register_model(dict.fromkeys(names, price))
        try:
            super().test_money()
        finally:
            litellm.model_cost.update(known)
