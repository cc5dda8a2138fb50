"""A coder of AG2 that runs the same failing tests again and again: warned, stopped, resumed.

Its model is a function, so it runs without a key: `python examples/integrations/ag2_agent.py`
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from ag2 import Agent, MemoryStream, tool
from ag2.events import BaseEvent, ModelMessage, ModelRequest, ModelResponse, ToolCallEvent, ToolCallsEvent
from ag2.testing import TestConfig

from streamproc import Halted, Monitor, Watch
from streamproc.integrations.ag2 import Breaker


class Model(TestConfig):
    def create(self) -> Any:
        return model


async def model(events: Sequence[BaseEvent], _: Any, **options: Any) -> ModelResponse:
    said = [part.content for event in events if isinstance(event, ModelRequest) for part in event.parts]
    if said[-1].startswith("run_tests returned"):
        print(f"the model was told: {said[-1]}")
    if "Look at the login first." not in said:
        return calling("tests")
    if "tests/login" not in str(events):
        return calling("tests/login")
    return ModelResponse(ModelMessage("The login needs a new token."))


def calling(path: str) -> ModelResponse:
    return ModelResponse(tool_calls=ToolCallsEvent([ToolCallEvent("run_tests", arguments=f'{{"path": "{path}"}}')]))


@tool
def run_tests(path: str) -> str:
    """Run the tests under a path."""
    print(f"run_tests({path})")
    return "2 failed: test_login, test_logout"


monitor = Monitor()  # or Watch(brokers="kafka:9092"), and workers decide
breaker = Breaker(Watch(monitor, on_warn="tell"), run_id="r1")
agent = Agent("coder", config=Model(), tools=[run_tests], middleware=[breaker])


async def main() -> None:
    stream = MemoryStream()  # holds the conversation
    try:
        await agent.ask("Fix the tests.", stream=stream)
    except Halted as halt:
        print(f"stopped: {halt}")

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look at one test only")
    reply = await agent.ask("Look at the login first.", stream=stream)
    print(f"done: {reply.body}")


asyncio.run(main())
