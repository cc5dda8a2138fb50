"""A client of a model's API that watches the loop around it: what `watched` of `openai` and `anthropic` share."""

from __future__ import annotations

import functools
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final, TypeVar

from streamproc.integrations._history import CallResult, Reply, RequestedCall, reply, results, told
from streamproc.integrations._steps import Steps, sparing
from streamproc.integrations._streams import Collector, observed
from streamproc.integrations.watch import Watch

RUNS_MAX: Final = 1_000  # runs of one client
RESULTS_MAX: Final = 10_000  # ids of results of one run

Client = TypeVar("Client")


class Loop:
    """What happens around requests to models: before each, the results of tools are fed and the run is checked.

    A loop is `shared` if other processes get requests of the same runs: it feeds no result that an earlier request had,
    and gives each turn an id, so that a request that is sent again brings no second one.
    """

    def __init__(
        self, run_id: str | None, node: str, watch: Watch | None, own: str = "", *, shared: bool = False
    ) -> None:
        self.watch = watch or Watch()
        self.given = run_id
        self.node = node
        self._shared = shared
        self._own = own or str(uuid.uuid4())  # the run, unless there is another id
        self._steps = Steps(self.watch)
        self._seen: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()  # ids of results, by run
        self._lock = threading.Lock()

    def before(self, request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the run and the request to send. Raises `Halted`."""
        run_id = self._own
        with sparing(self.watch):
            run_id = self.watch.run_id(self.given, self._own)
            for name in ("messages", "input"):
                if isinstance(request.get(name), Iterable) and not isinstance(request[name], (str, list, Mapping)):
                    request[name] = list(request[name])  # it may be read only once
        self.heard(run_id, request)
        return run_id, self.nudged(run_id, request)

    def heard(self, run_id: str, request: Mapping[str, Any]) -> None:
        """Feed the results that a request brings. Raises `Halted`."""
        with sparing(self.watch):
            self.returned(run_id, request)
        with sparing(self.watch):
            self.watch.check(run_id)

    def nudged(self, run_id: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request with the sentence of a new warning, or the request itself."""
        with sparing(self.watch):
            if sentence := self.watch.nudge(run_id):
                return told(request, sentence)
        return request

    def after(self, run_id: str, answer: Reply | None) -> None:
        """Feed what a model answered, unless it waits for tools."""
        with sparing(self.watch):
            if answer is not None:
                self.watch.spent(run_id, self.node, **answer.usage)
                self._steps.answered(run_id, self.node, answer.text, answer.calls, model=answer.model)

    def returned(self, run_id: str, request: Mapping[str, Any]) -> None:
        """Feed what tools returned, as far as it was not fed."""
        found = self._unseen(run_id, request)
        unknown = [result for result in found if not self._steps.knows(run_id, result.call_id)]
        if unknown:
            asked = [result.call or RequestedCall(result.call_id, "?", None) for result in unknown]
            fields = {"event_id": _event_id(asked)} if self._shared else {}
            self._steps.answered(run_id, self.node, unknown[-1].said, asked, **fields)
        for result in found:
            about = {"result": result.content, "error": True if result.failed else None}
            self._steps.returned(run_id, self.node, result.call_id, **about)
        if found:
            self._steps.ended(run_id, for_good=False)
        else:
            self._steps.begins(run_id)  # calls that nothing answers, such as those for structured output

    def _unseen(self, run_id: str, request: Mapping[str, Any]) -> list[CallResult]:
        """Return the results that were not fed. What an older process heard comes with the first request: it is not
        new."""
        with self._lock:
            first = run_id not in self._seen
            seen = self._seen.setdefault(run_id, OrderedDict())
            self._seen.move_to_end(run_id)
            if len(self._seen) > RUNS_MAX:
                self._seen.popitem(last=False)
            found = [result for result in results(request) if result.call_id not in seen]
            for result in found:
                seen[result.call_id] = None
            while len(seen) > RESULTS_MAX:
                seen.popitem(last=False)
        return [result for result in found if result.new or not (first or self._shared)]


def _event_id(calls: Iterable[RequestedCall]) -> str:
    """Return the id of the turn that made these calls: the same in every process."""
    ids = "\0".join(call.id for call in calls)
    return blake2b(ids.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


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

    def heard(run_id: str, response: Any) -> Any:
        with sparing(loop.watch):
            if hasattr(response, "_iterator"):
                collector = Collector()
                return observed(
                    response, functools.partial(_add, loop, collector), lambda: loop.after(run_id, collector.reply())
                )
            loop.after(run_id, reply(response))
        return response

    @functools.wraps(send)
    def call(*args: Any, **request: Any) -> Any:
        run_id, request = loop.before(request)
        response = send(*args, **request)
        return _Manager(response, functools.partial(heard, run_id)) if name == "stream" else heard(run_id, response)

    @functools.wraps(send)
    async def call_async(*args: Any, **request: Any) -> Any:
        run_id, request = loop.before(request)
        return heard(run_id, await send(*args, **request))

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
