"""What happens around the calls of a client: the results of tools are fed, and the run is checked."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final

from streamproc.errors import Halted
from streamproc.integrations._history import CallResult, Reply, RequestedCall, asked_of, results, told
from streamproc.integrations._requests import Requests
from streamproc.integrations._steps import Steps
from streamproc.integrations.watch import Watch, sparing
from streamproc.model.newest import Newest
from streamproc.model.provider_state import provider_name

RUNS_MAX: Final = 1_000  # runs of one client
RESULTS_MAX: Final = 10_000  # ids of results of one run


class Loop:
    """What happens around requests to models: before each, the results of tools are fed and the run is checked.

    Its node has a number (``coder/2``) while another loop of that name works in the same run.

    A loop is `shared` if other processes get requests of the same runs: it feeds no result that an earlier request had,
    and gives each turn an id, so that a request that is sent again brings no second one.
    """

    def __init__(
        self,
        run_id: str | None,
        node: str,
        watch: Watch | None,
        own: str = "",
        *,
        shared: bool = False,
        provider: str = "",
    ) -> None:
        self._about_all = {"provider": provider} if provider else {}
        self.watch = watch or Watch()
        self.given = run_id
        self.node = node
        self._shared = shared
        self._own = own or str(uuid.uuid4())  # the run, unless there is another id
        self._steps = Steps(self.watch)
        self._seen: Newest[str, Newest[str, None]] = Newest(RUNS_MAX)  # ids of results, by run
        self._requests = Requests()
        self._lock = threading.Lock()

    def before(self, request: dict[str, Any]) -> tuple[str, dict[str, str], dict[str, Any]]:
        """Return the run, what is asked (`about`), and the request to send. Raises `Halted`."""
        run_id = self._own
        with sparing(self.watch):
            run_id = self.watch.run_id(self.given, self._own)
            for name in ("messages", "input"):
                if isinstance(request.get(name), Iterable) and not isinstance(request[name], (str, list, Mapping)):
                    request[name] = list(request[name])  # it may be read only once
        about = self.about(run_id, request)
        self.heard(run_id, request)
        with sparing(self.watch):
            self._node(run_id)  # taken now: a loop beside this one may have its answer first
        return run_id, about, self.nudged(run_id, request)

    async def waited(self) -> None:
        """Wait while no step may begin (`Watch.waited`), before the request of an asynchronous client."""
        run_id = self._own
        with sparing(self.watch):
            run_id = self.watch.run_id(self.given, self._own)
        await self.watch.waited(run_id)

    def heard(self, run_id: str, request: Mapping[str, Any]) -> None:
        """Feed the results that a request brings. Raises `Halted`."""
        with sparing(self.watch):
            self.returned(run_id, request)
        try:
            with sparing(self.watch):
                self.watch.check(run_id)
        except Halted:
            self._rest(run_id)
            raise

    def about(self, run_id: str, request: Mapping[str, Any]) -> dict[str, str]:
        """Return the digest of what a request asks, as a field of the turn of its answer. Where the API stores the
        conversation, that is what an earlier request asked."""
        about = None
        with sparing(self.watch):
            asked, instructions = asked_of(request)
            newest = [] if asked is None else [asked]
            about = self._requests.of((run_id, self.node), newest, instructions, goes_on=not newest)
        return {"request": about} if about else {}

    def nudged(self, run_id: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request with the sentence of a new warning, or the request itself."""
        with sparing(self.watch):
            if sentence := self.watch.nudge(run_id):
                return told(request, sentence)
        return request

    def after(self, run_id: str, answer: Reply | None, about: Mapping[str, str] | None = None) -> None:
        """Feed what a model answered, unless it waits for tools. `about` is what was asked (see the method)."""
        with sparing(self.watch):
            if answer is not None:
                node = self._node(run_id)
                self.watch.spent(run_id, node, **answer.usage)
                self._steps.answered(
                    run_id,
                    node,
                    answer.text,
                    answer.calls,
                    model=answer.model,
                    **self._about_all,
                    **answer.fields(),
                    **(about or {}),
                )
                if not answer.calls:
                    self._rest(run_id)

    def returned(self, run_id: str, request: Mapping[str, Any]) -> None:
        """Feed what tools returned, as far as it was not fed."""
        found = self._unseen(run_id, request)
        unknown = [result for result in found if not self._steps.knows(run_id, result.call_id)]
        if unknown:
            asked = [result.call or RequestedCall(result.call_id, "?", None) for result in unknown]
            fields = self.about(run_id, request)
            if self._shared:
                fields |= {"event_id": _event_id(asked), "model": str(request.get("model") or "")}
            self._steps.answered(run_id, self._node(run_id), unknown[-1].said, asked, **fields)
        for result in found:
            about = {"result": result.content, "error": True if result.failed else None}
            self._steps.returned(run_id, self._node(run_id), result.call_id, **about)
        if found:
            self._steps.ended(run_id, for_good=False)
        else:
            self._steps.begins(run_id)  # calls that nothing answers, such as those for structured output

    def knows(self, run_id: str, call_id: str) -> bool:
        """Whether this loop waits for the result of a call."""
        return self._steps.knows(run_id, call_id)

    def called_model(self, request: Mapping[str, Any]) -> str:
        """Return the provider and model that a request goes to; empty: not known."""
        model, provider = request.get("model"), self._about_all.get("provider", "")
        return provider_name(provider, model) if provider and isinstance(model, str) else ""

    @contextmanager
    def sending(self, run_id: str, model: str = "", permit: str = "") -> Iterator[None]:
        """Send a request to a `model` inside. One that gets no answer leaves the name of this loop to the next one."""
        try:
            yield
        except BaseException as error:
            self.watch.called(run_id, model, error, permit=permit)
            with sparing(self.watch):
                self._rest(run_id)
            raise
        self.watch.called(run_id, model, permit=permit)

    def _node(self, run_id: str) -> str:
        return self.node if self._shared else self.watch.instances.name(run_id, self.node, self)

    def _rest(self, run_id: str) -> None:
        """Give the name of the node to the next loop: this one has its answer."""
        self.watch.instances.done(run_id, self.node, self)

    def _unseen(self, run_id: str, request: Mapping[str, Any]) -> list[CallResult]:
        """Return the results that were not fed. What an older process heard comes with the first request: it is not
        new."""
        with self._lock:
            first = run_id not in self._seen
            seen = self._seen[run_id] = self._seen.get(run_id) or Newest(RESULTS_MAX)
            found = [result for result in results(request) if result.call_id not in seen]
            for result in found:
                seen[result.call_id] = None
        return [result for result in found if result.new or not (first or self._shared)]


def _event_id(calls: Iterable[RequestedCall]) -> str:
    """Return the id of the turn that made these calls: the same in every process."""
    ids = "\0".join(call.id for call in calls)
    return blake2b(ids.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
