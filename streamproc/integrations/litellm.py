"""LiteLLM: a callback that watches the agents behind calls of the SDK or requests to a proxy, and stops them.

    from streamproc.integrations.litellm import Breaker

    litellm.callbacks = [Breaker(run_id="r1")]

A run that must stop leaves `acompletion`, `completion` and their like as `Halted`, before the next call of a model:

    except Halted as halt:  # from streamproc; in a task group: except* Halted
        print(halt)

A proxy takes the name of the callback, and answers requests of a halted run with status 400:

    litellm_settings:
      callbacks: streamproc.integrations.litellm.breaker
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, Literal

from litellm import get_llm_provider
from litellm.exceptions import ModifyResponseException
from litellm.integrations.custom_logger import CustomLogger

from streamproc.errors import Halted, ProviderUnavailable
from streamproc.integrations._client_loop import Loop
from streamproc.integrations._history import reply, usage_of
from streamproc.integrations.watch import Watch, sparing
from streamproc.model.newest import Newest
from streamproc.model.provider_state import provider_name

__all__ = ["Breaker", "breaker"]

log = logging.getLogger("streamproc.integrations")

CALLS_MAX: Final = 10_000  # calls of models that have not been answered
RUNS_MAX: Final = 10_000  # runs whose user and team were sent
RESUME: Final = "x-streamproc-resume"  # header with the reason
UNNAMED: Final = "?"  # in place of the id of a run, where a call has none
ANSWERABLE: Final = ("acompletion", "aresponses")  # calls of the SDK that take an answer in place of the model's

breaker: Breaker
"""The callback of a proxy, made when it is first asked for."""


class WatchedCalls:
    """The runs of calls: each is known from the call itself, and until its answer is logged elsewhere. Thread-safe."""

    def __init__(self, watch: Watch, run_id: str | None) -> None:
        self._watch = watch
        self._given = run_id
        self._runs: Newest[str, tuple[str, dict[str, str]]] = Newest(CALLS_MAX)  # by LiteLLM's id of the call
        self._started: Newest[str, None] = Newest(RUNS_MAX)
        self._permits: Newest[str, str] = Newest(CALLS_MAX)
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

    def permitted(self, call: Mapping[str, Any], permit: str) -> None:
        """Remember the permit of a call for its provider, until its outcome."""
        with self._lock:
            self._permits[str(call.get("litellm_call_id"))] = permit

    def permit(self, call: Mapping[str, Any]) -> str:
        """Return the permit of a call, once; empty: it needed none."""
        with self._lock:
            return self._permits.pop(str(call.get("litellm_call_id")), "")

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


def model_of(call: Mapping[str, Any]) -> str:
    """Return the provider and model of a call, as turns name them; empty: LiteLLM does not know either."""
    given = call.get("litellm_params") or call
    with suppress(Exception):  # it raises what it would answer the call with
        model, provider, *_ = get_llm_provider(
            call["model"], call.get("custom_llm_provider") or given.get("custom_llm_provider"), given.get("api_base")
        )
        return provider_name(provider, model)
    return ""


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


class Breaker(CustomLogger):
    """A callback that feeds what the histories in requests say to a `Watch`, and stops a halted run before its next
    call of a model.

    One `Breaker` serves any number of runs. The id of a run is `run_id`; else that of `Watch.run`; else, in a proxy,
    the header ``x-streamproc-run-id``; else LiteLLM's id of the session or trace. A call that has none of them is not
    watched, except with ``unnamed="key"`` or ``unnamed="user"`` in a proxy: then all those of a key or user are one
    run. Further options are those of `Watch`. A proxy wants this class itself, and calls no subclass.

    A proxy's administrator resumes a run by a request of it with the header ``x-streamproc-resume``, whose value is the
    reason. On Kafka, ``streamproc resume`` does it.
    """

    def __init__(
        self,
        watch: Watch | None = None,
        *,
        run_id: str | None = None,
        node: str = "agent",
        unnamed: Literal["key", "user"] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._unnamed = unnamed
        self.watch = watch or Watch(**options)
        self._node = node
        self._loop = Loop(run_id, node, self.watch, shared=True)
        self._calls = WatchedCalls(self.watch, run_id)
        self._in_proxy = False

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Stop an asynchronous call of the SDK, or tell a warning to its model. Raises `Halted`."""
        if self._in_proxy:
            return None  # the request has passed `async_pre_call_hook`, and nothing there expects a `Halted`
        run_id, request = None, kwargs
        with sparing(self.watch):
            if not {"messages", "input"} & kwargs.keys():  # given by position
                request = {"messages": kwargs["litellm_logging_obj"].messages}
            run_id = self._asked(kwargs, kwargs, request)
        if run_id is None:
            return None
        await self.watch.waited(run_id)
        try:
            self._loop.heard(run_id, request)
        except Halted as halt:
            if self.watch.on_halt == "end" and getattr(call_type, "value", "") in ANSWERABLE:
                self._calls.ended(kwargs)
                return kwargs | {"mock_response": str(halt)}
            raise
        if self.watch.on_provider != "report":
            self._calls.permitted(kwargs, await self.watch.entered(run_id, model_of(kwargs)))
        return self._loop.nudged(run_id, kwargs) if request is kwargs else None

    def log_pre_api_call(self, model: str, messages: Any, kwargs: dict[str, Any]) -> None:
        """Stop a synchronous call of the SDK, as its request is about to be sent. Raises `Halted`."""
        if self._in_proxy or self._calls.knows(kwargs):
            return
        run_id = None
        with sparing(self.watch):
            run_id = self._asked(kwargs, kwargs["litellm_params"], {"messages": messages})
        if run_id is not None:
            self._loop.heard(run_id, {"messages": messages})
            if self.watch.on_provider != "report":
                self._calls.permitted(kwargs, self.watch.enter(run_id, model_of(kwargs)))

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        """Stop a request to the proxy, or tell a warning to its model. Raises what the proxy answers with."""
        self._in_proxy = True
        run_id = None
        with sparing(self.watch):
            run_id = self._asked(data, data, data, owner_of(user_api_key_dict, self._unnamed))
            if run_id is not None:
                self._calls.owned(run_id, user_api_key_dict)
                if reason := resumed_by(user_api_key_dict, data):
                    self.watch.resume(run_id, by=str(user_api_key_dict.user_id or ""), reason=reason)
        if run_id is None:
            return None
        await self.watch.waited(run_id)
        try:
            self._loop.heard(run_id, data)
        except Halted as halt:
            if self.watch.on_halt == "end":
                raise ModifyResponseException(str(halt), data.get("model", ""), data) from None
            raise rejection(halt) from None
        return self._loop.nudged(run_id, data)

    def _asked(
        self, call: dict[str, Any], named: dict[str, Any], request: dict[str, Any], otherwise: str = ""
    ) -> str | None:
        """Return the run of a call; None if it is not watched, or another `Breaker` does."""
        call_id = call.get("litellm_call_id")
        if call_id and not self.watch.owns(("litellm", call_id), self):
            return None
        run_id = self._calls.asked(call, named, otherwise)
        if run_id is not None:
            self._calls.about(call, self._loop.about(run_id, request))
        return run_id

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._answered(kwargs, response_obj)

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._answered(kwargs, response_obj)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._failed(kwargs)

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._failed(kwargs)

    def _failed(self, call: dict[str, Any]) -> None:
        """Report a call of a provider that failed."""
        with sparing(self.watch):
            run_id, _ = self._calls.answered(call)
            error, permit = call.get("exception"), self._calls.permit(call)
            if run_id and isinstance(error, Exception) and not isinstance(error, ProviderUnavailable):
                self.watch.called(run_id, model_of(call), error, permit=permit)

    def _answered(self, call: dict[str, Any], response: Any) -> None:
        """Feed an answer: its usage goes with the next turn, and a text without calls of tools is a turn. Calls are fed
        with their results, from the next request, since an answer may be logged after that."""
        with sparing(self.watch):
            (run_id, about), answer = self._calls.answered(call), reply(response)
            if not run_id or answer is None:
                return
            payload = call["standard_logging_object"]
            if permit := self._calls.permit(call):
                self.watch.called(run_id, model_of(call), permit=permit)
            if not call.get("cache_hit"):
                self.watch.spent(run_id, self._node, **usage_in(payload))
            if not answer.calls:
                fields = {"output": answer.text} if answer.text else {}
                provider = payload.get("custom_llm_provider") or ""
                fields |= answer.fields()
                self.watch.turn(run_id, self._node, model=answer.model, provider=provider, **about, **fields)


def rejection(halt: Halted) -> Exception:
    """Return the answer of a proxy to a request of a halted run. Clients do not try again after status 400."""
    from litellm.proxy._types import ProxyException  # needs LiteLLM's extra `proxy`

    code = halt.control.code if halt.control is not None else "HALTED"
    rejected: Exception = ProxyException(str(halt), "run_halted", None, 400, {"x-streamproc-halted": code})
    return rejected


def __getattr__(name: str) -> Any:
    if name != "breaker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, Breaker())
