"""OTLP/HTTP: `POST /v1/traces`, `GET /healthz`, and `GET /halted/RUN` where halts are received.

Answers follow the protocol, because exporters act on them: 200 with a partial success for spans that cannot be used,
400 for a body that is no OTLP (not sent again), 503 with `Retry-After` while the turns have nowhere to go, or too many
bodies are being read (sent again). An agent that is only traced asks whether its run is halted, before it calls a model
or a tool: a span is a report, and OTLP has no way back.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from streamproc.metrics.bounded_http import BodyTooLate, BoundedRunner
from streamproc.otel.decoding import SPANS_MAX, Encoding, TooManyValues, UnreadableSpans, read_spans, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamproc.errors import Halted
    from streamproc.importers.genai_spans import SpanRecord
    from streamproc.otel.bridge import SpanBridge, Taken

log = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 16 << 20  # also after decompression
RETRY_AFTER_S: Final = 5
CONNECTIONS_MAX: Final = 500
HELD_BODIES: Final = 8  # of the largest size, so 128 MB; a body of unknown size counts as one
STOP_TIMEOUT_S: Final = 3.0  # for requests that are being read at a stop
CONTENT_TYPES: Final[dict[str, Encoding]] = {"application/x-protobuf": "protobuf", "application/json": "json"}
TYPE_OF: Final = {encoding: content_type for content_type, encoding in CONTENT_TYPES.items()}
PATH: Final = "/halted/{run:[\\s\\S]+}"  # ids may have slashes and line breaks
NOT_CURRENT: Final = "halts are not received now: see the log, or run `streamproc doctor`"


class KnownHalts(Protocol):
    """Who knows halts: a `HaltListener`, or what judges in this process."""

    @property
    def connected(self) -> bool: ...

    @property
    def caught_up(self) -> asyncio.Event: ...

    def error(self, run_id: str) -> Halted | None: ...


class SpanReceiver:
    """Serves OTLP/HTTP on one address, and with `halts` their answers.

    With a `token`, requests need `Authorization: Bearer TOKEN`.
    """

    def __init__(
        self,
        bridge: SpanBridge,
        *,
        token: str = "",
        body_bytes_max: int = BODY_BYTES_MAX,
        halts: KnownHalts | None = None,
    ) -> None:
        self.refused = 0
        """Requests that were refused as a whole."""
        self.held_bytes = 0
        """Bytes of bodies that are being read, or wait to be decoded."""
        self._bridge = bridge
        self._token = token.encode()
        self._bytes_max = body_bytes_max
        self._halts = halts
        app = web.Application(client_max_size=body_bytes_max)
        app.router.add_post("/v1/traces", self._traces)
        app.router.add_get("/healthz", self._health)
        if halts is not None:
            app.router.add_get(PATH, self._halted)
        # Decompressed by `unpacked`, which bounds the result.
        self._runner = BoundedRunner(
            app, connections_max=CONNECTIONS_MAX, auto_decompress=False, shutdown_timeout=STOP_TIMEOUT_S
        )
        self._decoding = asyncio.Lock()  # a body of a few KB can expand to hundreds of MB of objects

    async def start(self, host: str, port: int, option: str = "") -> int:
        """Listen, and return the port: another one than that given if it is 0. Raises `InvalidSettings` about the
        option."""
        return await self._runner.listen(host, port, option)

    async def stop(self) -> None:
        """Accept no more connections, and finish the requests that are being read."""
        await self._runner.cleanup()

    async def _health(self, _request: web.Request) -> web.Response:
        if self._bridge.delivering and not self._bridge.full:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="turns are not delivered: see the log, or run `streamproc doctor`\n")

    async def _halted(self, request: web.Request) -> web.Response:
        assert self._halts is not None
        if not self._is_allowed(request):
            return self._refuse("json", 401, "the bearer token is missing or wrong: send the header "
                                "`Authorization: Bearer TOKEN` with STREAMPROC_OTEL_TOKEN")  # fmt: skip
        return halt_answer(self._halts, request.match_info["run"])

    async def _traces(self, request: web.Request) -> web.Response:
        encoding = CONTENT_TYPES.get(request.content_type)
        if encoding is None:
            return self._refuse("json", 415, f"Content-Type must be one of {', '.join(CONTENT_TYPES)}")
        if not self._is_allowed(request):
            return self._refuse(encoding, 401, "the bearer token is missing or wrong: set STREAMPROC_OTEL_TOKEN here "
                                "and the exporter's header `Authorization: Bearer TOKEN`")  # fmt: skip
        if self._bridge.full:
            return self._refuse(encoding, 503, "turns cannot be delivered fast enough: send these spans again later")
        compression = request.headers.get("Content-Encoding", "identity").strip().lower()
        if compression not in ("gzip", "identity", ""):
            return self._refuse(encoding, 415, "Content-Encoding must be gzip, or absent")
        size = min(request.content_length or self._bytes_max, self._bytes_max)
        if self.held_bytes + size > HELD_BODIES * self._bytes_max:
            return self._refuse(encoding, 503, "too many requests at once: send these spans again later")
        self.held_bytes += size
        try:
            body = await request.read()
            async with self._decoding:
                return await self._take(body, compression == "gzip", encoding)
        except BodyTooLate as error:
            return self._refuse(encoding, 408, str(error))
        except (web.HTTPRequestEntityTooLarge, OverflowError):
            return self._refuse(encoding, 413, f"the body has more than {self._bytes_max} bytes, unpacked: send fewer "
                                "spans at once")  # fmt: skip
        except UnreadableSpans as error:
            return self._refuse(encoding, 413 if isinstance(error, TooManyValues) else 400, str(error))
        finally:
            self.held_bytes -= size

    async def _take(self, body: bytes, packed: bool, encoding: Encoding) -> web.Response:
        def decode() -> Iterator[SpanRecord]:
            return read_spans(unpacked(body, self._bytes_max) if packed else body, encoding)

        spans = await asyncio.to_thread(decode)  # for a second at most, while others are answered
        taken = await self._bridge.take(islice(spans, SPANS_MAX))
        left_out = sum(1 for _ in islice(spans, SPANS_MAX))  # counted up to as many again
        return _accepted(encoding, taken, left_out)

    def _is_allowed(self, request: web.Request) -> bool:
        if not self._token:
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self._token)
        return right and scheme.lower() == "bearer"

    def _refuse(self, encoding: Encoding, status: int, why: str) -> web.Response:
        self.refused += 1
        if self.refused == 1:
            log.warning("refused a request, status %d: %s; further ones are only counted", status, why)
        headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        body = orjson.dumps({"message": why}) if encoding == "json" else _status_message(why)
        return web.Response(status=status, body=body, content_type=TYPE_OF[encoding], headers=headers)


def _accepted(encoding: Encoding, taken: Taken, left_out: int) -> web.Response:
    why = taken.why
    if left_out:
        why = f"a request may have {SPANS_MAX} spans"
    rejected = taken.refused + left_out
    if encoding == "json":
        answer: dict[str, Any] = {}
        if rejected:
            answer["partialSuccess"] = {"rejectedSpans": str(rejected), "errorMessage": why}
        return web.Response(body=orjson.dumps(answer), content_type=TYPE_OF[encoding])
    response = ExportTraceServiceResponse()
    if rejected:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = why
    return web.Response(body=response.SerializeToString(), content_type=TYPE_OF[encoding])


def _status_message(text: str) -> bytes:
    """Return a `google.rpc.Status` with a message (field 2), as OTLP asks for. Its package is not needed: the text of a
    partial success has the same bytes."""
    return ExportTracePartialSuccess(error_message=text).SerializeToString()


def halt_answer(listener: KnownHalts, run_id: str) -> web.Response:
    """Return 200 with ``{"run_id": …, "halted": …}``, and for a halted run `message` and, if it is known, `control`.

    A halt that is known is told without a broker, too. Otherwise, as long as no halts are received, the answer is 503:
    the caller decides whether to go on.
    """
    halted = listener.error(run_id)
    if halted is None and not (listener.connected and listener.caught_up.is_set()):
        return _json({"message": NOT_CURRENT}, 503)
    answer: dict[str, object] = {"run_id": run_id, "halted": halted is not None}
    if halted is not None:
        answer["message"] = str(halted)
        if halted.control is not None:
            answer["control"] = orjson.Fragment(halted.control.model_dump_json(exclude_none=True))
    return _json(answer, 200)


def _json(content: dict[str, object], status: int) -> web.Response:
    return web.Response(
        body=orjson.dumps(content),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
