"""`Birth`: a child run that a session takes before it is started, and counts for as long as it is alive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, TypedDict
from urllib.parse import quote

from streamproc.core.session_tree import BUDGETS
from streamproc.errors import InvalidPolicy, Problem, SpawnRefused
from streamproc.fingerprint.hash import content
from streamproc.model.budgets import budget_value, find_budget

KEEP_MS: Final = 7 * 86_400_000  # after the last birth, as the account of a session
UNITS: Final = tuple(BUDGETS)  # in the order of the script's limits

BirthLimits = Mapping[str, int]
"""Limits on births, by the names of their budgets, such as ``maxSessionRuns``."""


class BirthFields(TypedDict, total=False):
    """Who starts the run, in which session, and what it asks. `limits` replace those of the admission."""

    session: str
    parent: str
    prompt: str
    tenant: str
    limits: BirthLimits | None


class BirthBackend(Protocol):
    """Takes births and ends them: implemented by `Admission`."""

    async def take_birth(self, birth: Birth) -> None: ...

    async def end_birth(self, birth: Birth) -> None: ...


class Birth:
    """The ``async with`` around a child run; usable once. The run counts as alive until it is left."""

    def __init__(
        self, backend: BirthBackend, run_id: str, limits: BirthLimits, prefix: str, fields: BirthFields,
        check: Callable[[], Awaitable[None] | None],
    ) -> None:  # fmt: skip
        self.run_id = run_id
        self.parent = fields.get("parent") or ""
        self.session = fields.get("session") or self.parent or run_id
        self.limits = limits
        self.extend_at = 0.0
        prompt = fields.get("prompt") or ""
        self._prompt = f"{content(prompt).norm:x}" if prompt else ""
        stem = f"{prefix}:admission:{{{quote(fields.get('tenant') or '', safe='') or '@'}}}"
        self.keys = [
            f"{stem}:births:{quote(self.session, safe='')}:{part}" for part in ("alive", "runs", "same", "minute")
        ]
        self._backend = backend
        self._check = check
        self._entered = False

    def words(self, operation: str, ttl_ms: int) -> list[str | int]:
        """Return the arguments of the script."""
        limits = [self.limits.get(BUDGETS[unit], "") for unit in UNITS]
        return [operation, self.run_id, self.parent, self._prompt, ttl_ms, KEEP_MS, *limits]

    def refused(self, answer: list[Any]) -> SpawnRefused:
        """Return the script's refusal as an error."""
        _, number, used, limit = answer
        return SpawnRefused(self.session, self.run_id, BUDGETS[UNITS[number - 1]], used, limit)

    async def __aenter__(self) -> Birth:
        if self._entered:
            raise RuntimeError("a birth can be used only once: call birth() again")
        self._entered = True
        if (waiting := self._check()) is not None:
            await waiting
        await self._backend.take_birth(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._backend.end_birth(self)


def read_births(given: Mapping[str, Any] | None) -> BirthLimits:
    """Validate limits on births. Raises `InvalidPolicy` with every mistake."""
    found: dict[str, int] = {}
    problems: list[Problem] = []
    for name, value in (given or {}).items():
        try:
            budget = find_budget(name)
            if budget.name not in BUDGETS.values():
                raise ValueError(f"is no limit on births; there are: {', '.join(BUDGETS.values())}")
            found[budget.name] = budget_value(budget, value)
        except (KeyError, ValueError) as error:
            problems.append(Problem(f"births.{name}", str(error.args[0])))
    if problems:
        raise InvalidPolicy(problems)
    return found
