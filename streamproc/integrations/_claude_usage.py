"""What the messages of the Claude Agent SDK tell about tokens and USD, each counted once."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from claude_agent_sdk import AssistantMessage, ResultMessage

from streamproc.integrations._history import usage_of
from streamproc.model.newest import Newest

SESSIONS_MAX: Final = 10_000  # sessions whose total is remembered
TOKENS: Final = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")

Totals = Newest[str, dict[str, Decimal]]  # tokens and USD of each session at its last result


class Spending:
    """What a connection has spent and no turn has reported yet.

    Responses tell their input as they come, each block in a message of its own. Output, the requests of sub-agents and
    USD are known at the result, whose totals are those of the session: of other queries and processes, too.
    """

    def __init__(self, totals: Totals) -> None:
        self.is_resumed = False
        """Whether the session may have spent something before `totals` knows of it."""
        self._totals = totals
        self._unsent: dict[str, Any] = {}
        self._counted = dict.fromkeys(TOKENS, 0)  # since the last result
        self._responses: set[str | None] = set()

    def heard(self, message: AssistantMessage) -> None:
        """Count a response once."""
        if message.message_id in self._responses:
            return
        self._responses.add(message.message_id)
        for name, amount in usage_of(message.usage).items():
            self._counted[name] += amount
            self._add(name, amount)

    def ended(self, message: ResultMessage) -> None:
        """Count what the responses before a result did not tell."""
        before, total = self._totals.pop(message.session_id, None), total_of(message)
        if before is None and self.is_resumed:  # what another process has spent in it is not known
            spent = {name: Decimal(amount) for name, amount in usage_of(message.usage).items()}
        else:
            before = before or {}
            spent = {name: amount - before.get(name, 0) for name, amount in total.items()}
            total = {name: max(amount, before.get(name, amount)) for name, amount in total.items()}
        self._totals[message.session_id] = total
        for name in TOKENS:
            self._add(name, max(0, int(spent.get(name, 0)) - self._counted[name]))
        if (cost := spent.get("cost_usd", Decimal())) > 0:
            self._unsent["cost_usd"] = f"{cost:.6f}"
        self._counted = dict.fromkeys(TOKENS, 0)
        self._responses.clear()
        self.is_resumed = True  # after `/clear` the same connection has another session, with the totals so far

    def take(self) -> dict[str, Any]:
        """Return what was not taken before, as the fields of ``usage``."""
        unsent, self._unsent = self._unsent, {}
        return unsent

    def _add(self, name: str, amount: int) -> None:
        if amount:
            self._unsent[name] = self._unsent.get(name, 0) + amount


def total_of(message: ResultMessage) -> dict[str, Decimal]:
    """Return the tokens and USD of a session so far."""
    total = {"cost_usd": Decimal(str(message.total_cost_usd or 0)), **dict.fromkeys(TOKENS, Decimal())}
    for used in (message.model_usage or {}).values():
        cached, written = used.get("cacheReadInputTokens", 0), used.get("cacheCreationInputTokens", 0)
        total["input_tokens"] += used.get("inputTokens", 0) + cached + written
        total["output_tokens"] += used.get("outputTokens", 0)
        total["cached_tokens"] += cached
        total["cache_write_tokens"] += written
    return total
