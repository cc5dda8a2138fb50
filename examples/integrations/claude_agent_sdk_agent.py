"""A coder of the Claude Agent SDK that runs the same failing tests again and again: warned, stopped, resumed.

The SDK's own CLI asks a function in place of a model, on loopback, so it runs without a key:
`python examples/integrations/claude_agent_sdk_agent.py`
"""

import asyncio
import json
import re
import tempfile
import uuid

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, tool
from messages_api import serving, text, use

from streamproc import Halted, Monitor, Watch
from streamproc.integrations.claude_agent_sdk import Breaker

told = []


def model(request: dict) -> list[dict]:
    said = json.dumps(request["messages"])
    told.extend(re.findall(r'hook additional context: ([^"\\]*)', said))
    call_id = f"toolu_{uuid.uuid4().hex}"
    if "Look at the login" not in said:
        return [use("mcp__tests__run", call_id, path="tests")]
    if "tests/login" not in said:
        return [use("mcp__tests__run", call_id, path="tests/login")]
    return [text("The login needs a new token.")]


@tool("run", "Run the tests under a path.", {"path": str})
async def run(args: dict) -> dict:
    print(f"run({args['path']})")
    return {"content": [{"type": "text", "text": "2 failed: test_login, test_logout"}]}


monitor = Monitor()  # or Watch(brokers="kafka:9092"), and workers decide
breaker = Breaker(Watch(monitor, on_warn="tell"), run_id="r1")


async def ask(prompt: str, options: ClaudeAgentOptions) -> None:
    async for message in breaker.query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            print(f"done: {message.result}")


async def main(url: str, home: str) -> None:
    session = str(uuid.uuid4())
    options = ClaudeAgentOptions(
        session_id=session,
        tools=[],
        allowed_tools=["mcp__tests__run"],
        mcp_servers={"tests": create_sdk_mcp_server("tests", tools=[run])},
        cwd=home,
        env={
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "HOME": home,
            "CLAUDE_CONFIG_DIR": home,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        setting_sources=[],
    )
    try:
        await ask("Fix the tests.", options)
    except Halted as halt:
        print(f"stopped: {halt}")
    print(f"the model was told: {told[0]}")

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look at one test only")
    options.session_id, options.resume = None, session
    await ask("Look at the login first.", options)


with tempfile.TemporaryDirectory() as home, serving(model) as url:
    asyncio.run(main(url, home))
