"""A played model for CrewAI: it runs commands one after another, with tool calls or as text, and then is done."""

from __future__ import annotations

import json
from typing import Any

from crewai import BaseLLM
from crewai.events.event_bus import crewai_event_bus
from crewai.llms.base_llm import LLMCallType, llm_call_context
from crewai.tools import BaseTool

from tests.integrations.commands import ran, run

asked: list[list[dict[str, Any]]] = []  # the messages of each request


class Run(BaseTool):
    name: str = "run"
    description: str = "Run a command."

    def _run(self, cmd: str) -> Any:
        result = run(cmd)
        return f"{len(ran)} files are copied" if cmd == "poll" else result


class Played(BaseLLM):
    """Which command is next, it reads from the messages: it may serve any number of agents at a time."""

    cmds: list[str]
    text: bool = False
    """Whether it calls tools by text (ReAct)."""
    together: int = 1
    """How many calls each answer has; as text there can be only one."""
    tool: str = "run"
    args: str = ""
    """The arguments of every call, in place of a command."""
    is_slow: bool = False
    """Whether it answers only when all events before are heard, as slow models do."""

    def call(self, messages: Any, *_: Any, from_task: Any = None, from_agent: Any = None, **__: Any) -> Any:
        asked.append([dict(one) for one in messages])
        with llm_call_context():
            self._emit_call_started_event(messages, from_task=from_task, from_agent=from_agent)
            answer = self._answer(messages)
            if isinstance(answer, str):
                self._emit_stream_chunk_event(answer, from_task, from_agent)
            usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
            self._emit_call_completed_event(answer, LLMCallType.LLM_CALL, from_task, from_agent, messages, usage)
        if self.is_slow:
            assert crewai_event_bus.flush(timeout=60)
        return answer

    async def acall(self, *args: Any, **options: Any) -> Any:
        return self.call(*args, **options)

    def _answer(self, messages: list[dict[str, Any]]) -> Any:
        answered = [one for one in messages if one["role"] == "assistant"]
        if len(answered) >= len(self.cmds):
            return "Thought: I now can give a great answer\nFinal Answer: Done." if self.text else "Done."
        args = self.args or json.dumps({"cmd": self.cmds[len(answered)]})
        if self.text:
            return f"Thought: I run it.\nAction: {self.tool}\nAction Input: {args}"
        function = {"name": self.tool, "arguments": args}
        ids = [f"c{len(answered)}-{number}" for number in range(self.together)]
        return [{"id": one, "type": "function", "function": function} for one in ids]

    def supports_function_calling(self) -> bool:
        return not self.text

    def supports_stop_words(self) -> bool:
        return True

    def get_context_window_size(self) -> int:
        return 100_000

    def get_input_tokens_count(self, messages: Any) -> int:
        return 10
