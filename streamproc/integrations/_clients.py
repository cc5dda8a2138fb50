"""A client of a model's API that watches the loop around it: what `watched` of `openai` and `anthropic` share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, TypeVar

from streamproc.integrations._client_loop import Loop
from streamproc.integrations._history import reply
from streamproc.integrations._steps import sparing
from streamproc.integrations._streams import Collector, observed

Client = TypeVar("Client")


def watched_copy(client: Client, methods: Mapping[str, Iterable[str]], loop: Loop) -> Client:
    """Return a copy of a client, with its connections, whose `methods` (names by resource) are watched.

    The client itself stays as it is: one client may serve many runs. Copies of the copy are watched, too.
    """
    watched: Client = _watched(type(client).copy(client), methods, loop)  # type: ignore[attr-defined]
    return watched


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
        try:
            response = send(*args, **request)
        except BaseException:
            loop.failed(run_id)
            raise
        listen = functools.partial(heard, run_id, about)
        return _Manager(response, listen) if name == "stream" else listen(response)

    @functools.wraps(send)
    async def call_async(*args: Any, **request: Any) -> Any:
        await loop.waited()
        run_id, about, request = loop.before(request)
        try:
            response = await send(*args, **request)
        except BaseException:
            loop.failed(run_id)
            raise
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
