"""What LiteLLM tells its callbacks about a call of a model: its run, whose it is, and what its answer has cost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from streamproc.integrations._history import usage_of
from streamproc.model.newest import Newest

if TYPE_CHECKING:
    from streamproc.integrations.watch import Watch

log = logging.getLogger("streamproc.integrations")

CALLS_MAX: Final = 10_000  # calls of models that have not been answered
RUNS_MAX: Final = 10_000  # runs whose user and team were sent
RESUME: Final = "x-streamproc-resume"  # header with the reason
UNNAMED: Final = "?"  # in place of the id of a run, where a call has none


class WatchedCalls:
    """The runs of calls: each is known from the call itself, and until its answer is logged elsewhere. Thread-safe."""

    def __init__(self, watch: Watch, run_id: str | None) -> None:
        self._watch = watch
        self._given = run_id
        self._runs: Newest[str, tuple[str, dict[str, str]]] = Newest(CALLS_MAX)  # by LiteLLM's id of the call
        self._started: Newest[str, None] = Newest(RUNS_MAX)
        self._lock = threading.Lock()
        self._is_unnamed_logged = False

    def asked(self, call: Mapping[str, Any], named: Mapping[str, Any], otherwise: str = "") -> str | None:
        """Return the run of a call, and remember it until the answer; None if nothing in `named` names one.

        Calls without a name belong to the run `otherwise`. Without that they are not watched: all those of a process
        would be one run.
        """
        run_id = self._watch.run_id(self._given, name_of(named) or otherwise or UNNAMED)
        if run_id == UNNAMED:
            if not self._is_unnamed_logged:
                self._is_unnamed_logged = True
                log.warning("calls of models without the id of a run or a session are not watched")
            return None
        with self._lock:
            self._runs[str(call.get("litellm_call_id"))] = run_id, {}
        return run_id

    def knows(self, call: Mapping[str, Any]) -> bool:
        """Whether an answer to this call is awaited."""
        return str(call.get("litellm_call_id")) in self._runs

    def about(self, call: Mapping[str, Any], about: dict[str, str]) -> None:
        """Remember what a call asks, until its answer."""
        with self._lock:
            key = str(call.get("litellm_call_id"))
            if key in self._runs:
                self._runs[key] = self._runs[key][0], about

    def answered(self, call: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        """Return the run of a call and what it asks, once; an empty run if it is not watched, or its answer comes from
        no model."""
        with self._lock:
            return self._runs.pop(str(call.get("litellm_call_id")), ("", {}))

    def ended(self, call: Mapping[str, Any]) -> None:
        """Note that a call is answered by us, and not by a model."""
        with self._lock:
            self._runs[str(call.get("litellm_call_id"))] = "", {}

    def owned(self, run_id: str, key: Any) -> None:
        """Report once whose run it is, as far as the key of a proxy says it."""
        scope = {"user": key.user_id, "tenant": key.team_id}
        with self._lock:
            is_new = run_id not in self._started
            self._started[run_id] = None
        if is_new and any(scope.values()):
            self._watch.started(run_id, **{name: str(value) for name, value in scope.items() if value})


def owner_of(key: Any, by: str | None) -> str:
    """Return the run of what a key of a proxy asks without naming a run: that of the key, or of its user."""
    if by == "user" and key.user_id:
        return f"user {key.user_id}"
    if by and key.key_alias:
        return f"key {key.key_alias}"
    return f"key {blake2b(key.api_key.encode(), digest_size=8).hexdigest()}" if by and key.api_key else ""


def resumed_by(key: Any, request: Mapping[str, Any]) -> str:
    """Return why a proxy's administrator resumes the run of a request; an empty text if none does."""
    headers = (request.get("proxy_server_request") or {}).get("headers") or {}
    role = getattr(key, "user_role", None)
    return str(headers.get(RESUME) or "") if getattr(role, "value", role) == "proxy_admin" else ""


def name_of(given: Mapping[str, Any]) -> str:
    """Return what the arguments of a call or a request to a proxy name its run, or an empty text."""
    headers = (given.get("proxy_server_request") or {}).get("headers") or {}
    metadata = given.get("metadata") or given.get("litellm_metadata") or {}
    session = given.get("litellm_session_id") or metadata.get("session_id")
    trace = given.get("litellm_trace_id") or metadata.get("trace_id")
    return str(headers.get("x-streamproc-run-id") or session or trace or "")


def usage_in(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an answer has cost. LiteLLM counts what a cache held as input, whatever the provider does."""
    details = usage_of((payload.get("metadata") or {}).get("usage_object"))
    usage = {
        "input_tokens": payload.get("prompt_tokens"),
        "output_tokens": payload.get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens"),
        "cache_write_tokens": details.get("cache_write_tokens"),
        "cost_usd": f"{payload['response_cost']:.12g}" if payload.get("response_cost") else None,
    }
    return {name: value for name, value in usage.items() if value}
