"""What the agents of the Claude Agent SDK were asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from streamproc.integrations._requests import request_of
from streamproc.model.newest import Newest

AGENTS_MAX: Final = 1_000  # agents of one connection whose request is remembered, and sub-agents that have not begun

Data = Mapping[str, Any]


class PromptRequests:
    """What the agents of a connection were asked: the main one by prompts, a sub-agent by the tool that begins it.

    Hooks do not tell which call has begun which sub-agent: those of a type begin in the order of their calls.
    """

    def __init__(self) -> None:
        self._requests: Newest[tuple[str, str], dict[str, str]] = Newest(AGENTS_MAX)  # by session and sub-agent
        self._orders: deque[tuple[str, dict[str, str]]] = deque(maxlen=AGENTS_MAX)  # with the type of the sub-agent

    def prompted(self, data: Data) -> None:
        """Note a prompt for the main agent of a session."""
        self._requests[data["session_id"], ""] = _field(data.get("prompt"))

    def ordered(self, tool_input: Data) -> None:
        """Note that a sub-agent is going to begin."""
        self._orders.append((str(tool_input.get("subagent_type") or ""), _field(tool_input.get("prompt"))))

    def of(self, session_id: str, data: Data) -> dict[str, str]:
        """Return what an agent was asked, as a field of its turn."""
        key = session_id, str(data.get("agent_id") or "")
        if key not in self._requests and key[1]:
            order = next((one for one in self._orders if one[0] == data.get("agent_type")), None)
            if order is not None:
                self._orders.remove(order)
                self._requests[key] = order[1]
        return self._requests.get(key, {})


def _field(prompt: Any) -> dict[str, str]:
    request = request_of(prompt)
    return {"request": request} if request else {}
