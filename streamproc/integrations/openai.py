"""Plain loops around the OpenAI client: a client that watches the loop that calls it.

    client = watched(OpenAI(), run_id="r1", node="coder")

Its requests carry what tools returned, so the loop itself need not change. A run that must stop ends as `Halted`,
before the next request. It is no `Exception`, so catch it by name:

    try:
        loop(client)
    except Halted as halted:
        print(halted)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from streamproc.integrations._client_loop import Loop
from streamproc.integrations._clients import provider_of, watched_copy

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

    from streamproc.integrations.watch import Watch

OpenAIClient = TypeVar("OpenAIClient", bound="OpenAI | AsyncOpenAI")

METHODS: Final = {"chat.completions": ("create", "parse"), "responses": ("create", "parse")}


def watched(
    client: OpenAIClient, run_id: str | None = None, *, node: str = "agent", watch: Watch | None = None
) -> OpenAIClient:
    """Return a copy of the client that feeds what the loop around it does and raises `Halted` before a request.

    The copy shares the connections of the client, which stays as it is. It watches `create`, `parse` and `stream` of
    Chat Completions and Responses. Of raw responses it sees the request only, and of a Chat stream the usage only with
    ``stream_options={"include_usage": True}``.

    The run is `run_id`, else that of `Watch.run`, else the copy is a run. With ``Watch(on_warn="tell")`` a warning is
    added to one request, as a message of the user.
    """
    loop = Loop(run_id, node, watch, provider=provider_of(client, "openai"))
    return watched_copy(client, METHODS, loop)
