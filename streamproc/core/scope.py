"""The scope of a run: who it belongs to, its tier, and its budgets. `run_scope` sets it.

Few scopes serve very many runs, so a scope is never changed in place: runs share it, and a state stores it as a whole.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec
import xxhash

from streamproc.core.records import StateError
from streamproc.model.budgets import BUDGETS

SESSION_NAME_MAX: Final = 40  # characters of a session's name in a run's state: a UUID has 36
SCOPES_MAX: Final = 8_192  # decoded scopes kept, up to 2 KB each; past it, all are forgotten

# Positions in this table are stored in states: add budgets that a run may declare at its end.
BUDGET_BITS: Final = {budget.name: 1 << n for n, budget in enumerate(one for one in BUDGETS if one.declarable)}


class Scope(msgspec.Struct, array_like=True, frozen=True):
    """Who a run belongs to, and its budgets."""

    workflow: str = ""  # fixed, as all names here, by the first event that has it
    tenant: str = ""
    user: str = ""
    tier: str = ""  # assigned by the policy, or named by a run that is believed
    named_tier: str = ""  # tier that the run named, whether or not it counts
    unknown_tier: bool = False  # whether the run named a tier that the policy does not have, and is believed
    session: str = ""  # session that the run belongs to
    child: bool = False  # whether another run started it
    task: int = 0  # tag of the task that the run was started for; 0: none
    budgets: dict[str, int] = {}  # limits that the run declared, where the policy permits, with what was granted since
    declared: int = 0  # budgets in force that the run declared itself, as bits (`BUDGET_BITS`)
    granted: int = 0  # budgets that an operator raised, likewise
    capped: int = 0  # budgets that the run declared above the policy's limit, likewise
    parent: str = ""  # run that started it
    proof: int = 0  # hash of the token of its session; 0: it has shown none


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Scope).decode
_scopes: dict[bytes, Scope] = {}
NO_SCOPE: Final = Scope()
NO_SCOPE_RAW: Final = _encode(NO_SCOPE)


def read_scope(raw: bytes) -> Scope:
    """Return a stored scope. Raises `StateError`."""
    scope = _scopes.get(raw)
    if scope is None:
        try:
            scope = _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # msgspec lets Python's own through
            raise StateError(str(error)) from None
        if len(_scopes) >= SCOPES_MAX:
            _scopes.clear()
        _scopes[raw] = scope
    return scope


def write_scope(scope: Scope) -> bytes:
    """Return a scope as it is stored."""
    return _encode(scope)


def without_place(scope: Scope) -> Scope:
    """Return a scope without its user and its place in a session: what many runs have in common."""
    return Scope(
        workflow=scope.workflow, tenant=scope.tenant, tier=scope.tier, named_tier=scope.named_tier,
        unknown_tier=scope.unknown_tier, budgets=scope.budgets, declared=scope.declared, granted=scope.granted,
        capped=scope.capped,
    )  # fmt: skip


def kept_scope(scope: Scope) -> Scope:
    """Return what stays of a scope when the run id is used again."""
    return Scope(
        workflow=scope.workflow, tenant=scope.tenant, user=scope.user, named_tier=scope.named_tier,
        session=scope.session, child=scope.child, parent=scope.parent, proof=scope.proof,
    )  # fmt: skip


def capped_budgets(scope: Scope) -> list[str]:
    """Return the names of the budgets that a run declared above the policy's limit."""
    return [name for name, bit in BUDGET_BITS.items() if scope.capped & bit] if scope.capped else []


def user_name(tenant: str, user: str) -> str:
    """Return the name of a user, who is unique within a tenant: two customers may each have an "admin"."""
    name = user.replace("%", "%25").replace("/", "%2F")
    return f"{tenant.replace('%', '%25').replace('/', '%2F')}/{name}" if tenant else name


def short_name(name: str) -> str:
    """Return a session's name as a state holds it: long names as their hash."""
    return name if len(name) <= SESSION_NAME_MAX else xxhash.xxh3_64_hexdigest(name.encode("utf-8", "surrogatepass"))


def hash_token(token: str) -> int:
    """Return a token as states hold it: 63 bits of its SHA-256, so that a reader of states learns no token."""
    return int.from_bytes(sha256(token.encode("utf-8", "surrogatepass")).digest()[:8]) >> 1
