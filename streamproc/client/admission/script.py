"""Runs the script of admission on Redis: within a stated time, and not again and again while Redis is away."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import NoScriptError, RedisError

from streamproc.client.admission.balances import REMEMBER_MS
from streamproc.client.admission.redis_client import CONNECTIONS_MAX, connect, place, remedy
from streamproc.errors import Unavailable

if TYPE_CHECKING:
    from streamproc.client.admission.balances import AdmissionAccounts

log = logging.getLogger(__name__)

TEXT: Final = files("streamproc.client.admission").joinpath("admission.lua").read_text(encoding="utf-8")
SHA: Final = hashlib.sha1(TEXT.encode(), usedforsecurity=False).hexdigest()  # the name that Redis gives it

TRY_AGAIN_S: Final = 0.5  # while Redis is away, calls in between fail at once: an outage must not slow every turn


class Script:
    """Asks Redis. `client` may be any asyncio client of redis-py, such as one of a cluster."""

    def __init__(self, url: str, timeout_s: float, client: Any = None) -> None:
        self.trouble: Exception | None = None
        """Why Redis cannot be asked; None while all is well."""
        self.unasked = 0
        """Calls of this outage that went on unasked; counted by whoever lets them."""
        self._place = place(url) if client is None else "the given client"
        self._timeout_s = timeout_s
        self._ours = client is None
        self._client: Any = connect(url, timeout_s) if client is None else client
        self._turn = asyncio.Semaphore(CONNECTIONS_MAX)  # first come, first served; a pool that blocks starves some
        self._try_again = 0.0

    async def ping(self) -> None:
        """Raise `Unavailable` where Redis does not answer."""
        await self._ask(self._client.ping)

    async def run(
        self,
        operation: str,
        accounts: AdmissionAccounts,
        hold_id: str = "",
        cost: int | None = None,
        tokens: int | None = None,
        ttl_ms: int = 0,
    ) -> list[Any]:
        """The script's answer. Raises `Unavailable`, after `timeout_s` at the latest."""
        amounts = ("" if amount is None else amount for amount in (cost, tokens))
        keys = accounts.keys(hold_id)
        words = (operation, hold_id, *amounts, ttl_ms, REMEMBER_MS, *accounts.arguments)
        answer = await self._ask(self._evaluate, len(keys), *keys, *words)
        answer[0] = answer[0].decode() if isinstance(answer[0], bytes) else answer[0]
        return list(answer)

    async def close(self) -> None:
        """Close the connections; those of a given client stay open."""
        if self._ours:
            await self._client.aclose()

    async def _evaluate(self, *words: Any) -> Any:
        try:
            return await self._client.evalsha(SHA, *words)
        except NoScriptError:  # the first time, and after a restart of Redis
            return await self._client.eval(TEXT, *words)

    async def _ask(self, call: Any, *words: Any) -> Any:
        if self.trouble is not None and time.monotonic() < self._try_again:
            raise self._unavailable() from self.trouble
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                answer = await call(*words)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            self._failed(error)
            raise self._unavailable() from error
        if self.trouble is not None:
            self._recovered()
        return answer

    def _failed(self, error: Exception) -> None:
        self._try_again = time.monotonic() + TRY_AGAIN_S
        known, self.trouble = self.trouble, error
        if known is None:
            log.warning("admission: %s", self._unavailable())

    def _recovered(self) -> None:
        log.warning("admission: %s answers again; %d call(s) went on unasked meanwhile", self._place, self.unasked)
        self.trouble = None
        self.unasked = 0

    def _unavailable(self) -> Unavailable:
        why = str(self.trouble).rstrip(".") or f"no answer within {self._timeout_s:g} s"
        todo = remedy(self.trouble) if self.trouble is not None else ""
        return Unavailable(f"Redis ({self._place}) cannot be asked: {why}; {todo}")
