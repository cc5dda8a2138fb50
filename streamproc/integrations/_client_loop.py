"""What happens around the calls of a client: the results of tools are fed, and the run is checked."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from streamproc.integrations._history import CallResult, Reply, RequestedCall, results, told
from streamproc.integrations._steps import Steps, sparing
from streamproc.integrations.watch import Watch

RUNS_MAX: Final = 1_000  # runs of one client
RESULTS_MAX: Final = 10_000  # ids of results of one run


class Loop:
    """The loop of an agent around the calls of one client, as its requests and answers show it."""

    def __init__(self, run_id: str | None, node: str, watch: Watch | None) -> None:
        self.watch = watch or Watch()
        self.given = run_id
        self.node = node
        self._own = str(uuid.uuid4())
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
            self._results(run_id, request)
        self.watch.check(run_id)
        with sparing(self.watch):
            if sentence := self.watch.nudge(run_id):
                request = told(request, sentence)
        return run_id, request

    def after(self, run_id: str, answer: Reply | None) -> None:
        """Feed what a model answered, unless it waits for tools."""
        with sparing(self.watch):
            if answer is not None:
                self.watch.spent(run_id, self.node, **answer.usage)
                self._steps.answered(run_id, self.node, answer.text, answer.calls, model=answer.model)

    def _results(self, run_id: str, request: Mapping[str, Any]) -> None:
        found = self._unseen(run_id, request)
        unknown = [result for result in found if not self._steps.knows(run_id, result.call_id)]
        if unknown:
            asked = [result.call or RequestedCall(result.call_id, "?", None) for result in unknown]
            self._steps.answered(run_id, self.node, "", asked)
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
        return [result for result in found if result.new or not first]
