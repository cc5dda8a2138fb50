"""What CrewAI says that a tool gave: a result, a failure, or a sentence of its own in place of a result."""

from __future__ import annotations

import threading
from typing import Any, Final

from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.i18n import I18N_DEFAULT

from streamproc.integrations._answers import result_of
from streamproc.model.newest import Newest

RESULTS_MAX: Final = 1_000  # calls of all runs whose results are kept

# What CrewAI gives the model in place of a result, up to what differs.
REPEATED: Final = I18N_DEFAULT.errors("task_repeated_usage").partition("{")[0]
BLOCKED: Final = "Tool execution blocked by hook."
FAILED: Final = (
    BLOCKED,
    "Error executing tool: ",
    "\n" + I18N_DEFAULT.errors("tool_usage_exception").partition("{")[0],
)


class Outcomes:
    """What calls gave, as the fields of a call. Thread-safe.

    To a model that calls tools by text, CrewAI answers a repeated call itself: the tool does not run, so its result is
    what it was. The sentence would look like news.
    """

    def __init__(self) -> None:
        self._known: Newest[tuple[str, ...], dict[str, Any]] = Newest(RESULTS_MAX)
        self._lock = threading.Lock()

    def of(self, call: tuple[str, ...], raw: Any) -> dict[str, Any]:
        """Return what a call gave. `call` is what makes it the same: run, node, tool and arguments."""
        with self._lock:
            if isinstance(raw, str) and raw.startswith(REPEATED):
                return self._known.get(call, {"result": raw})
            outcome = self._known[call] = _outcome(raw)
        return outcome


def _outcome(raw: Any) -> dict[str, Any]:
    if isinstance(raw, ToolFailure):
        return {"error": raw.as_agent_message()}
    if isinstance(raw, str) and raw.startswith(FAILED):
        return {"error": raw.strip()}
    return {"result": result_of(raw)}
