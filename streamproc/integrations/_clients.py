"""A client of a model's API that watches the loop around it: what `watched` of `openai` and `anthropic` share."""

from __future__ import annotations

import functools
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeVar

from streamproc.fingerprint.reviews import stop_reason
from streamproc.integrations._client_loop import Loop
from streamproc.integrations._history import SILENT, Reply, RequestedCall, as_dict, parts, reply, usage_of
from streamproc.integrations.watch import sparing


class Collector:
    """The answer that the events of a stream make. Events of OpenAI Chat and Responses, and Anthropic Messages."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}  # by index: id, name, and the pieces of the arguments
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._ended = ""
        self._says_more = False  # than text, thoughts and calls
        self._whole: Reply | None = None

    def add(self, event: Any) -> None:
        """Take an event of the stream."""
        kind = getattr(event, "type", None)
        if hasattr(event, "choices"):
            self._chunk(as_dict(event))
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self._whole = reply(event.response)
        elif kind == "message_start":
            self._started(as_dict(event.message))
        elif kind == "content_block_start":
            block = as_dict(event.content_block)
            if block.get("type") == "tool_use":
                self._calls[event.index] = {"id": block["id"], "name": block["name"], "args": []}
            self._says_more |= block.get("type") not in SILENT
        elif kind == "content_block_delta":
            delta = as_dict(event.delta)
            self._text.append(str(delta.get("text") or ""))
            if event.index in self._calls:
                self._calls[event.index]["args"].append(str(delta.get("partial_json") or ""))
        elif kind == "message_delta":
            self._usage |= as_dict(event.usage)
            self._ended = str(as_dict(event.delta).get("stop_reason") or self._ended)

    def reply(self) -> Reply:
        """Return the answer, as far as it came."""
        if self._whole is not None:
            return self._whole
        calls = [RequestedCall(call["id"], call["name"], "".join(call["args"])) for call in self._calls.values()]
        text = "".join(self._text)
        ended = stop_reason(self._ended, is_empty=not text and not calls and not self._says_more)
        return Reply(text, calls, usage_of(self._usage), self._model, ended)

    def _started(self, message: Any) -> None:
        self._model = str(message.get("model") or "")
        self._usage |= as_dict(message.get("usage"))

    def _chunk(self, chunk: Any) -> None:
        """Take a piece of a Chat completion. Usage comes with the last one, if the caller asks for it."""
        self._model = str(chunk.get("model") or self._model)
        self._usage |= as_dict(chunk.get("usage"))
        for choice in parts(chunk["choices"]):
            if choice.get("index"):
                continue  # another answer to the same request
            delta = as_dict(choice.get("delta"))
            self._ended = str(choice.get("finish_reason") or self._ended)
            self._says_more |= any(delta.get(name) for name in ("refusal", "audio", "images", "function_call"))
            self._text.append(str(delta.get("content") or ""))
            for piece in parts(delta.get("tool_calls")):
                call = self._calls.setdefault(piece.get("index", 0), {"id": "", "name": "", "args": []})
                function = piece.get("function") or {}
                call["id"] = piece.get("id") or call["id"]
                call["name"] = function.get("name") or call["name"]
                call["args"].append(function.get("arguments") or "")


def observed(stream: Any, add: Callable[[Any], None], done: Callable[[], None]) -> Any:
    """Return the SDK's stream, with each event given to `add`, and `done` called once: at its end, or when it is closed
    or dropped before.

    Raises `AttributeError` if the SDK does not keep its iterator where it did.
    """
    inner = stream._iterator
    of_stream = weakref.ref(stream)  # a cycle would leave it to the garbage collector to close a dropped stream
    left = [done]

    def ended() -> None:
        if left:
            left.pop()()

    def events() -> Iterator[Any]:
        try:
            for event in inner:
                add(event)
                yield event
        finally:
            ended()

    async def async_events() -> AsyncIterator[Any]:
        try:
            async for event in inner:
                add(event)
                yield event
        finally:
            ended()

    def close() -> Any:
        ended()
        still = of_stream()
        return None if still is None else type(still).close(still)

    stream._iterator = async_events() if hasattr(inner, "__anext__") else events()
    stream.close = close
    return stream


Client = TypeVar("Client")


def watched_copy(client: Client, methods: Mapping[str, Iterable[str]], loop: Loop) -> Client:
    """Return a copy of a client, with its connections, whose `methods` (names by resource) are watched.

    The client itself stays as it is: one client may serve many runs. Copies of the copy are watched, too.
    """
    watched: Client = _watched(type(client).copy(client), methods, loop)  # type: ignore[attr-defined]
    return watched


def provider_of(client: Any, usual: str) -> str:
    """Return the provider that a client calls: the `usual` one, or the host of another address."""
    host = str(getattr(getattr(client, "base_url", None), "host", "") or "")
    return usual if not host or host.endswith(f"{usual}.com") else host


def _watched(client: Any, methods: Mapping[str, Iterable[str]], loop: Loop) -> Any:
    for path, names in methods.items():
        resource = attrgetter(path)(client)
        for name in names:
            if hasattr(resource, name):
                _wrap(resource, name, loop, is_async=hasattr(client, "__aenter__"))
    copy = client.copy
    client.copy = client.with_options = lambda **options: _watched(copy(**options), methods, loop)
    return client


def _wrap(resource: Any, name: str, loop: Loop, *, is_async: bool) -> None:
    """Put the loop around a method that sends a request and returns a response, a stream, or a manager of a stream."""
    send = getattr(resource, name)

    def heard(run_id: str, about: Mapping[str, str], response: Any) -> Any:
        with sparing(loop.watch):
            if hasattr(response, "_iterator"):
                collector = Collector()
                add = functools.partial(_add, loop, collector)
                return observed(response, add, lambda: loop.after(run_id, collector.reply(), about))
            loop.after(run_id, reply(response), about)
        return response

    @functools.wraps(send)
    def call(*args: Any, **request: Any) -> Any:
        run_id, about, request = loop.before(request)
        model = loop.called_model(request)
        with loop.sending(run_id, model, loop.watch.enter(run_id, model)):
            response = send(*args, **request)
        listen = functools.partial(heard, run_id, about)
        return _Manager(response, listen) if name == "stream" else listen(response)

    @functools.wraps(send)
    async def call_async(*args: Any, **request: Any) -> Any:
        await loop.waited()
        run_id, about, request = loop.before(request)
        model = loop.called_model(request)
        with loop.sending(run_id, model, await loop.watch.entered(run_id, model)):
            response = await send(*args, **request)
        return heard(run_id, about, response)

    setattr(resource, name, call_async if is_async and name != "stream" else call)


def _add(loop: Loop, collector: Collector, event: Any) -> None:
    with sparing(loop.watch):
        collector.add(event)


class _Manager:
    """What `messages.stream` returns: the stream that it opens is heard."""

    def __init__(self, manager: Any, heard: Callable[[Any], Any]) -> None:
        self._manager = manager
        self._heard = heard

    def __enter__(self) -> Any:
        return self._opened(self._manager.__enter__())

    async def __aenter__(self) -> Any:
        return self._opened(await self._manager.__aenter__())

    def __exit__(self, *problem: Any) -> Any:
        return self._manager.__exit__(*problem)

    async def __aexit__(self, *problem: Any) -> Any:
        return await self._manager.__aexit__(*problem)

    def _opened(self, stream: Any) -> Any:
        self._heard(getattr(stream, "_raw_stream", None))
        return stream
