"""A coder of Microsoft Agent Framework that runs the same failing tests again and again: warned, stopped, resumed.

Its client is scripted, so it runs without a key: `python examples/integrations/agent_framework_agent.py`
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from streamproc import Halted, Monitor, Watch
from streamproc.integrations.agent_framework import Breaker


class Client(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    async def answer(self, messages: Sequence[Message]) -> ChatResponse:
        said = [message.text for message in messages if message.role == "user"]
        calls = [content.arguments for message in messages for content in message.contents if content.arguments]
        self.told += [text for text in said if text.startswith("run_tests")]
        if "Look at the login first." not in said:
            content = Content.from_function_call(f"c{len(calls)}", "run_tests", arguments={"path": "tests"})
        elif {"path": "tests/login"} not in calls:
            content = Content.from_function_call(f"c{len(calls)}", "run_tests", arguments={"path": "tests/login"})
        else:
            content = Content.from_text("The login needs a new token.")
        return ChatResponse(messages=[Message("assistant", [content])])

    def _inner_get_response(self, *, messages: Sequence[Message], **_: Any) -> Any:
        return self.answer(messages)


@tool(approval_mode="never_require")
def run_tests(path: str) -> str:
    """Run the tests under a path."""
    print(f"run_tests({path})")
    return "2 failed: test_login, test_logout"


monitor = Monitor()  # or Watch(brokers="kafka:9092"), and workers decide
breaker = Breaker(Watch(monitor, on_warn="tell"), run_id="r1")
client = Client()
agent = Agent(client, name="coder", tools=[run_tests], middleware=[breaker])


async def main() -> None:
    session = agent.create_session()
    try:
        await agent.run("Fix the tests.", session=session)
    except Halted as halt:
        print(f"stopped: {halt}")
    print(f"the model was told: {client.told[0]}")

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look at one test only")
    print(f"done: {await agent.run('Look at the login first.', session=session)}")


asyncio.run(main())
