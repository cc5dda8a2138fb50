"""Posts requests to an endpoint of OTLP/HTTP, at intervals."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import aiohttp

from streamproc.model.redaction import redact_text

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

    from streamproc.metrics.otlp_target import OtlpTarget

log = logging.getLogger(__name__)

FINISH_TIMEOUT_S: Final = 1.0  # of the last request, at a stop


class OtlpSender:
    """Sends requests in protobuf. `what` they hold, such as "metrics", is for the log."""

    def __init__(self, target: OtlpTarget, what: str) -> None:
        self._target = target
        self._what = what
        self._fails = False

    async def send(self, body: bytes, timeout_s: float) -> None:
        """Send a request once, and raise nothing. A failure is logged when it is the first after a success."""
        problem = ""
        try:
            problem = await self._post(body, timeout_s)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:  # of an address or header, too
            problem = redact_text(str(error)) or type(error).__name__
        if problem and not self._fails:
            shown = _shown(self._target.url)
            log.warning("%s are not accepted by %s; trying again: %s", self._what, shown, problem)
        if self._fails and not problem:
            log.info("%s are accepted by %s again", self._what, _shown(self._target.url))
        self._fails = bool(problem)

    async def _post(self, body: bytes, timeout_s: float) -> str:
        headers = {"Content-Type": "application/x-protobuf", **self._target.headers}
        if self._target.gzip:
            body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(self._target.url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            with contextlib.suppress(aiohttp.ClientError):
                await answer.read()
            return "" if answer.status < 300 else f"status {answer.status}"


@asynccontextmanager
async def sending_by_otlp(target: OtlpTarget, what: str, request: Callable[[], bytes]) -> AsyncIterator[None]:
    """Send what `request` returns at every interval while the body runs, and once more, for a short time, at its end.

    An empty request is not sent. `what` the requests hold is for the log.
    """
    sender = OtlpSender(target, what)

    async def send(timeout_s: float) -> None:
        if body := request():
            await sender.send(body, timeout_s)

    async def send_at_intervals() -> None:
        while True:
            await asyncio.sleep(target.interval_s)
            await send(target.timeout_s)

    sending = asyncio.create_task(send_at_intervals(), name=f"streamproc {what}")
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await send(min(FINISH_TIMEOUT_S, target.timeout_s))


def otlp_attributes(values: Mapping[str, str | int]) -> Iterable[KeyValue]:
    """Yield attributes as OTLP has them."""
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

    for name, value in values.items():
        found = KeyValue(key=name)
        if isinstance(value, int):
            found.value.int_value = value
        else:
            found.value.string_value = value
        yield found


def _shown(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.split('?')[0].split('#')[0].rpartition('@')[2]}"
