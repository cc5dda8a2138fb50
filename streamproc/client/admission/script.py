"""Runs the admission script on Redis, with a timeout, and with few attempts while Redis is unavailable."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final, NamedTuple

from redis.exceptions import NoScriptError, RedisError

from streamproc.client.admission.balances import REMEMBER_MS, AdmissionAccounts
from streamproc.client.admission.redis_client import CONNECTIONS_MAX, connect, place, remedy, wrong_transport
from streamproc.errors import Unavailable, plural

log = logging.getLogger(__name__)


class Lua(NamedTuple):
    """A script on Redis, with the hash by which Redis identifies it."""

    text: str
    sha: str


def _lua(name: str) -> Lua:
    text = files("streamproc.client.admission").joinpath(name).read_text(encoding="utf-8")
    return Lua(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


ADMISSION: Final = _lua("admission.lua")
BIRTHS: Final = _lua("births.lua")

RETRY_EVERY_S: Final = 0.5  # during an outage, calls in between fail at once: it must not slow down every turn


class Script:
    """Calls the script. `client` may be any asyncio client of redis-py, such as a cluster client."""

    def __init__(self, url: str, timeout_s: float, client: Any = None) -> None:
        self.trouble: Exception | None = None
        """Why Redis calls fail; None while they succeed."""
        self.unasked = 0
        """Calls of this outage that proceeded without a reservation; the admission counts them."""
        self._url = url
        self._place = place(url) if client is None else "the given client"
        self._timeout_s = timeout_s
        self._owns_client = client is None
        self._client: Any = connect(url, timeout_s) if client is None else client
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)  # first come, first served; a blocking pool starves some
        self._retry_at = 0.0

    async def ping(self) -> None:
        """Raise `Unavailable` if Redis does not answer, and say so if the reason is TLS."""
        try:
            await self._call(self._client.ping)
        except Unavailable as problem:
            found = None
            if self._owns_client and self.trouble is not None:
                found = await wrong_transport(self._url, self.trouble, self._timeout_s)
            if found is None:
                raise
            raise Unavailable(f"Redis ({self._place}) {found[0]}: {found[1]}") from problem

    async def run(
        self,
        operation: str,
        accounts: AdmissionAccounts,
        hold_id: str = "",
        cost: int | None = None,
        tokens: int | None = None,
        ttl_ms: int = 0,
    ) -> list[Any]:
        """Run the script and return its answer. Raises `Unavailable`, after `timeout_s` at the latest."""
        amounts = ("" if amount is None else amount for amount in (cost, tokens))
        keys = accounts.keys(hold_id)
        words = (operation, hold_id, *amounts, ttl_ms, REMEMBER_MS, *accounts.arguments)
        return await self.evaluate(ADMISSION, keys, words)

    async def evaluate(self, script: Lua, keys: Sequence[str], words: Sequence[Any]) -> list[Any]:
        """Run a script and return its answer. Raises `Unavailable`, after `timeout_s` at the latest."""
        answer = await self._call(self._evaluate, script, len(keys), *keys, *words)
        answer[0] = answer[0].decode() if isinstance(answer[0], bytes) else answer[0]
        return list(answer)

    async def close(self) -> None:
        """Close the connections, unless the client was given."""
        if self._owns_client:
            await self._client.aclose()

    async def _evaluate(self, script: Lua, *words: Any) -> Any:
        try:
            return await self._client.evalsha(script.sha, *words)
        except NoScriptError:  # on first use, and after a restart of Redis
            return await self._client.eval(script.text, *words)

    async def _call(self, command: Any, *words: Any) -> Any:
        if self.trouble is not None and time.monotonic() < self._retry_at:
            raise self._unavailable() from self.trouble
        try:
            async with asyncio.timeout(self._timeout_s), self._slots:
                answer = await command(*words)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            self._failed(error)
            raise self._unavailable() from error
        if self.trouble is not None:
            self._recovered()
        return answer

    def _failed(self, error: Exception) -> None:
        self._retry_at = time.monotonic() + RETRY_EVERY_S
        known, self.trouble = self.trouble, error
        if known is None:
            log.warning("admission: %s", self._unavailable())

    def _recovered(self) -> None:
        log.warning(
            "admission: %s answers again; %s proceeded without a reservation", self._place, plural(self.unasked, "call")
        )
        self.trouble = None
        self.unasked = 0

    def _unavailable(self) -> Unavailable:
        why = str(self.trouble).rstrip(".") or f"no answer within {self._timeout_s:g} s"
        fix = remedy(self.trouble) if self.trouble is not None else ""
        return Unavailable(f"Redis ({self._place}) is unavailable: {why}; {fix}")
