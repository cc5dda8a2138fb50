"""A coder of CrewAI that runs the same failing tests again and again: warned, stopped, resumed.

Its model is played, so it runs without a key: `python examples/integrations/crewai_crew.py`
"""

import json
import logging
import os
from typing import Any

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")

from crewai import Agent, BaseLLM, Crew, Task
from crewai.events.utils.console_formatter import set_suppress_console_output
from crewai.tools import tool

from streamproc import Monitor, Watch
from streamproc.integrations.crewai import Breaker, HaltedCrew


class Model(BaseLLM):
    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        said = str(messages)
        if "Look at the login" not in said:
            return self.calls("tests")
        return "The login needs a new token." if "tests/login" in said else self.calls("tests/login")

    def calls(self, path: str) -> list[dict[str, Any]]:
        return [{"id": "c1", "function": {"name": "run_tests", "arguments": json.dumps({"path": path})}}]

    def supports_function_calling(self) -> bool:
        return True


@tool("run_tests")
def run_tests(path: str) -> str:
    """Run the tests under a path."""
    print(f"run_tests({path})")
    return "2 failed: test_login, test_logout"


set_suppress_console_output(True)
logging.disable(logging.ERROR)  # CrewAI logs what ends a crew
monitor = Monitor()  # or Watch(brokers="kafka:9092"), and workers decide
breaker = Breaker(Watch(monitor, on_warn="tell"), run_id="r1")
coder = Agent(role="coder", goal="Fix code.", backstory="You fix code.", llm=Model(model="played"), tools=[run_tests])
task = Task(description="Fix the tests.", expected_output="What was wrong.", agent=coder)

with breaker:
    messages: list[Any] = []
    try:
        Crew(agents=[coder], tasks=[task]).kickoff()
    except HaltedCrew as halt:
        print(f"stopped: {halt}")
        messages = halt.messages
    told = [one["content"] for one in messages if one["role"] == "user"]
    print(f"the model was told: {told[-1]}")

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look at one test only")
    result = coder.kickoff([*messages, {"role": "user", "content": "Look at the login first."}])
    print(f"done: {result}")
