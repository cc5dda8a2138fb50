"""`GET /halted/RUN`: whether a run is halted, for agents in any language, before they call a model or a tool.

The answer comes from memory. Without it an agent that is only traced could not hear of its halt: a span is a report,
and OTLP has no way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

if TYPE_CHECKING:
    from streamproc.client import HaltListener

PATH: Final = "/halted/{run:[\\s\\S]+}"  # ids may have slashes and line breaks
NOT_CURRENT: Final = "halts are not received now: see the log, or run `streamproc doctor`"


def halt_answer(listener: HaltListener, run_id: str) -> web.Response:
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
