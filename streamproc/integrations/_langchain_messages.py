"""What messages of LangChain say: a model's answer, a tool's result, a person's message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from streamproc.fingerprint.reviews import stop_reason
from streamproc.integrations._history import Reply, RequestedCall, usage_of
from streamproc.integrations._requests import ASKED_MAX, as_json

WARNING_ID: Final = "streamproc:warning"  # of a message that tells a warning to the model, which is no request
ROUNDS_MAX: Final = 2**31
SIMPLE: Final = (str, int, float, bool, type(None))
DEPTH_MAX: Final = 6  # of the state of a graph that is searched for messages


def answer_of(generated: Any) -> Reply:
    """Read a generation of a model, or its message."""
    message = getattr(generated, "message", generated)
    if not isinstance(message, AIMessage):
        return Reply(str(getattr(generated, "text", "")), [], {}, "")
    calls = [
        RequestedCall(call["id"] or "", call["name"] or "?", call["args"])
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    ]
    about = message.response_metadata
    model = about.get("model_name") or about.get("model") or ""
    word = next((about[name] for name in ("finish_reason", "stop_reason", "done_reason") if about.get(name)), "")
    ended = stop_reason(str(word), is_empty=not calls and not message.content)
    return Reply(str(message.text), calls, usage_of(message.usage_metadata), str(model), ended)


def model_name(model: Any) -> str:
    """Return the name of a chat model; an empty text if it has none."""
    found = (getattr(model, name, None) for name in ("model_name", "model", "model_id"))
    return next((name for name in found if isinstance(name, str)), "")


def asked_in(messages: Sequence[BaseMessage], system: BaseMessage | None = None) -> tuple[list[Any], str, bool]:
    """Return what a model is asked: the newest messages of a person or a program, the system prompt, and whether the
    model has answered them before."""
    instructions = "\n".join(str(one.text) for one in (system, *messages) if isinstance(one, SystemMessage))
    at = next((at for at in range(len(messages) - 1, -1, -1) if _is_asked(messages[at])), -1)
    newest = takewhile(_is_asked, (messages[index] for index in range(at, -1, -1)))
    return [one.content for one in islice(newest, ASKED_MAX)], instructions, -1 < at < len(messages) - 1


def _is_asked(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and message.id != WARNING_ID


def newest_results(messages: Sequence[BaseMessage]) -> Iterator[ToolMessage]:
    """Return what was told to a model last: results of tools, wherever they ran, and refusals of its calls."""
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            return
        yield message


class Passed:
    """What a node of a graph passes on."""

    def __init__(self, output: Any) -> None:
        self.results: list[ToolMessage] = []
        self.ids: set[str] = set()  # of calls that others may answer
        self.is_clear = True
        """Whether all of it was understood."""
        self._read(output, DEPTH_MAX)

    def _read(self, value: Any, depth: int) -> None:
        if isinstance(value, ToolMessage):
            self.results.append(value)
        elif isinstance(value, AIMessage):
            self.ids.update(call["id"] or "" for call in (*value.tool_calls, *value.invalid_tool_calls))
        elif not isinstance(value, (*SIMPLE, BaseMessage)):
            if isinstance(value, Mapping) and isinstance(value.get("id"), str):
                self.ids.add(value["id"])
            parts = _parts(value) if depth else None
            self.is_clear = self.is_clear and parts is not None
            for part in parts or ():
                self._read(part, depth - 1)


def _parts(value: Any) -> Iterable[Any] | None:
    """Return the parts of a state of a graph; None if its type is not known."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (list, tuple)):
        return value
    if type(value).__name__ in ("Command", "Send"):
        return [getattr(value, name, None) for name in ("update", "goto", "arg")]
    return None


def state_of(output: Any) -> Any:
    """Return what a node of a graph adds to its state, as JSON without the ids of messages."""
    if isinstance(output, BaseMessage):
        return {"role": output.type, "content": as_json(output.content)}
    if type(output).__name__ == "Command":
        return state_of({"update": output.update, "goto": output.goto})
    if type(output).__name__ == "Send":
        return state_of({"node": output.node, "arg": output.arg})
    if isinstance(output, Mapping):
        return {str(name): state_of(value) for name, value in output.items()}
    return [state_of(one) for one in output] if isinstance(output, (list, tuple)) else as_json(output)


def read_fields(output: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a turn (``round``, ``convergence``, ``consensus``) that a node adds to the state of its
    graph under the names given."""
    state = getattr(output, "update", output) if not isinstance(output, Mapping) else output
    found: dict[str, Any] = {}
    for field, name in names.items():
        value = state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if field == "round" and 0 <= value < ROUNDS_MAX and int(value) == value:
                found[field] = int(value)
            elif field != "round" and 0 <= value <= 1:
                found[field] = value
    return found


def result_of(output: Any, call_id: str) -> dict[str, Any]:
    """Return what a tool's output says as `result` or `error`. It is a message, a command with one, or any object."""
    update = getattr(output, "update", None)
    if isinstance(update, Mapping) and not isinstance(output, Mapping):
        output = update.get("messages")
    if isinstance(output, (list, tuple)):
        messages = [one for one in output if isinstance(one, ToolMessage)]
        output = next((one for one in messages if one.tool_call_id == call_id), messages[0] if messages else output)
    if not isinstance(output, ToolMessage):
        return {"result": output}
    return {"error" if output.status == "error" else "result": output.content}


def said_by(state: Any) -> str:
    """Return what a person says by starting or resuming a graph; an empty text if a program does."""
    resume = getattr(state, "resume", None)
    if resume is not None and not isinstance(state, Mapping):
        return f"resume {resume!r}"
    messages = state.get("messages") if isinstance(state, Mapping) else None
    last = messages[-1] if isinstance(messages, (list, tuple)) and messages else messages
    if isinstance(last, HumanMessage):
        return str(last.text)
    if isinstance(last, (list, tuple)) and len(last) == 2 and last[0] in ("user", "human"):
        return str(last[1])
    if isinstance(last, Mapping) and last.get("role") in ("user", "human"):
        return str(last.get("content"))
    return ""
