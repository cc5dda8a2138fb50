"""A coder on LiteLLM that runs the same failing tests again and again: warned, stopped, resumed.

Its model is played, so it runs without a key: `python examples/integrations/litellm_agent.py`
"""

import asyncio
import json
from typing import Any

import litellm

from streamproc import Halted, Monitor, Watch
from streamproc.integrations.litellm import Breaker


class Played(litellm.CustomLLM):
    """A provider of models that answers from memory."""

    async def acompletion(self, messages: list[Any], **_: Any) -> litellm.ModelResponse:
        said = str(messages)
        if "same result" in said and "Look at" not in said:
            print(f"the model was told: {messages[-1]['content']}")
        if "tests/login" in said:
            return litellm.ModelResponse(choices=[{"message": {"content": "The login needs a new token."}}])
        path = "tests/login" if "Look at the login" in said else "tests"
        function = {"name": "run_tests", "arguments": json.dumps({"path": path})}
        call = {"id": f"call-{len(messages)}", "type": "function", "function": function}
        return litellm.ModelResponse(choices=[{"message": {"content": None, "tool_calls": [call]}}])


monitor = Monitor()  # or Watch(brokers="kafka:9092"), and workers decide
litellm.callbacks = [Breaker(Watch(monitor, on_warn="tell"), run_id="r1")]
litellm.custom_provider_map = [{"provider": "played", "custom_handler": Played()}]


def run_tests(path: str) -> str:
    """Run the tests under a path."""
    print(f"run_tests({path})")
    return "2 failed: test_login, test_logout"


async def work(messages: list[Any]) -> str:
    while True:
        answer = await litellm.acompletion(model="played/coder", messages=messages)
        message = answer.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            result = run_tests(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def main() -> None:
    messages: list[Any] = [{"role": "user", "content": "Fix the tests."}]
    try:
        await work(messages)
    except Halted as halt:
        print(f"stopped: {halt}")

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look at one test only")
    messages.append({"role": "user", "content": "Look at the login first."})
    print(f"done: {await work(messages)}")


asyncio.run(main())
