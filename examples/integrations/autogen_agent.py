"""A coder of AutoGen that runs the same failing tests again and again: warned, stopped, resumed.

Its model is a function, so it runs without a key: `python examples/integrations/autogen_agent.py`
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from streamproc import Halted, Monitor, Watch
from streamproc.integrations.autogen import guarded


class Model(ReplayChatCompletionClient):
    async def create(self, messages: Sequence[Any], **options: Any) -> CreateResult:
        said = [message.content for message in messages if isinstance(message, UserMessage)]
        if said[-1].startswith("run_tests returned"):
            print(f"the model was told: {said[-1]}")
        if "Look at the login first." not in said:
            return answer(calling("tests"))
        if "tests/login" not in str(messages):
            return answer(calling("tests/login"))
        return answer("The login needs a new token.")


def answer(content: Any) -> CreateResult:
    usage = RequestUsage(prompt_tokens=20, completion_tokens=3)
    return CreateResult(finish_reason="unknown", content=content, usage=usage, cached=False)


def calling(path: str) -> list[FunctionCall]:
    global calls
    calls += 1
    return [FunctionCall(id=f"call {calls}", name="run_tests", arguments=f'{{"path": "{path}"}}')]


def run_tests(path: str) -> str:
    """Run the tests under a path."""
    print(f"run_tests({path})")
    return "2 failed: test_login, test_logout"


calls = 0
info: Any = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown"}
info |= {"structured_output": False}
monitor = Monitor()  # or Watch(brokers="kafka:9092"), and workers decide
client = guarded(Model([], info), Watch(monitor, on_warn="tell"), node="coder", run_id="r1")
agent = AssistantAgent("coder", client, tools=[run_tests], max_tool_iterations=25)


async def main() -> None:
    try:
        await agent.run(task="Fix the tests.")
    except Halted as halt:
        print(f"stopped: {halt}")

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look at one test only")
    result = await agent.run(task="Look at the login first.")
    print(f"done: {result.messages[-1].to_text()}")


asyncio.run(main())
