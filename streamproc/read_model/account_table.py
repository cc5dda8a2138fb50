"""The table `accounts`: what sessions, users and tenants have spent, and when their limits come.

The amounts are those of the workers, from the changelog of their accounts; the limits are those that the workers
applied, which each statement on the spend topic carries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from streamproc.core.account_names import TREE
from streamproc.core.accounts import TOTAL, UNITS, Account, AccountRef, Mark, load_account
from streamproc.core.spend_windows import WINDOWS, SpendWindow
from streamproc.model.provider_state import PREFIX
from streamproc.read_model.rows import AccountRow
from streamproc.read_model.run_facts import amount

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from streamproc.kafka.reading import Record

ACCOUNTS_MAX: Final = 100_000
STATE_BYTES_MAX: Final = 65_536  # 128 active runs and 512 partitions take less
TRIMMED_AT_ONCE: Final = 2_000
MINUTE_MS: Final = 60_000
FORECAST_MS: Final = 86_400_000
FORECAST_STEP_MS: Final = 5 * MINUTE_MS
WINDOW_S: Final = {TOTAL: 0} | {name: length * count // 1000 for name, (length, count) in WINDOWS.items()}
SHOWN_UNIT: Final = {"tokens": "tokens", "micro_usd": "USD"}


class AccountNews(NamedTuple):
    """A record of the changelog: the state of an account, None if the workers have forgotten it; or of the spend topic:
    its limits."""

    account: str
    offset: int
    at_ms: int
    state: bytes | None = None
    marks: tuple[Mark, ...] | None = None


class _Statement(msgspec.Struct, array_like=True):
    """A statement without its entries."""

    version: int
    account: str
    source: int
    payers: list[AccountRef]


_read_statement = msgspec.json.Decoder(_Statement).decode
_pack = msgspec.msgpack.Encoder().encode
_unpack_marks = msgspec.msgpack.Decoder(tuple[Mark, ...]).decode


def account_news(record: Record) -> AccountNews | None:
    """Read a record of the changelog of accounts; None for what spends nothing: the breaker of a provider, and the tree
    of a session. Raises `ValueError`."""
    name, value = (record.key or b"").decode(), record.value
    if name.startswith((PREFIX, f"{TREE}:")):
        return None
    if value is None:
        return AccountNews(name, record.offset, record.timestamp)
    if len(value) > STATE_BYTES_MAX:
        raise ValueError("too large for an account")
    account = load_account(value)
    return AccountNews(name, account.offset, account.at_ms, value)


def limit_news(record: Record) -> AccountNews | None:
    """Read the limits of an account from a statement; None if it has none. Raises `ValueError`."""
    if (record.key or b"").startswith(PREFIX.encode()):
        return None  # calls of a provider
    statement = _read_statement(record.value or b"")
    if statement.account.encode() != record.key:
        raise ValueError("the key is not the account")
    if not statement.payers:
        return None
    payer = statement.payers[-1]
    marks = {(mark.window, mark.unit): mark for mark in payer.marks}
    for mark in payer.declared:
        known = marks.get((mark.window, mark.unit))
        if known is None or mark.limit <= known.limit or mark.unit in payer.overridable:
            marks[mark.window, mark.unit] = mark
    kept = tuple(mark for mark in marks.values() if mark.window in WINDOW_S and mark.unit in UNITS)
    return AccountNews(statement.account, record.offset, record.timestamp, marks=kept) if kept else None


class AccountTable:
    """Writes the table `accounts`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def add(self, news: Iterable[AccountNews]) -> None:
        """Use states and limits, oldest first; of two states, the one that has booked more wins."""
        latest: dict[str, list[Any]] = {}
        for one in news:
            known = latest.get(one.account)
            if known is None:
                row = self._db.execute(
                    "SELECT at_ms, position, state, marks FROM accounts WHERE account = ?", (one.account,)
                ).fetchone()
                known = latest[one.account] = list(row or (0, -1, None, None))
            if one.marks is not None:
                known[3] = _pack(one.marks)
            elif one.state is None:
                known[:3] = 0, -1, None
            elif one.offset >= known[1]:
                known[:3] = amount(one.at_ms), amount(one.offset), one.state
        self._db.executemany(
            "INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?, ?, ?)",
            [(account, _share(known[2], known[3]), *known) for account, known in latest.items()],
        )

    def trim(self) -> None:
        """Delete the accounts beyond the limit that have used the least of theirs."""
        self._db.execute(
            "DELETE FROM accounts WHERE account IN "
            "(SELECT account FROM accounts ORDER BY share DESC, at_ms DESC LIMIT ? OFFSET ?)",
            (TRIMMED_AT_ONCE, ACCOUNTS_MAX),
        )


def account_rows(name: str, state: bytes, marks: bytes | None, now_ms: int) -> Iterator[AccountRow]:
    """Yield a row for each limit of an account; without any, one for what it has spent."""
    account = load_account(state)
    limits = _limits(account, marks)
    if not limits:
        window = TOTAL if TOTAL in account.windows else "day"
        unit = "micro_usd" if _spent(account, window, "micro_usd", now_ms) else "tokens"
        limits = [Mark(window, unit, 0)]
    for mark in limits:
        yield _row(name, account, mark, now_ms)


def _row(name: str, account: Account, mark: Mark, now_ms: int) -> AccountRow:
    scale = 1_000_000 if mark.unit == "micro_usd" else 1
    spent = _spent(account, mark.window, mark.unit, now_ms)
    per_minute = _per_minute(account, mark.unit, now_ms)
    limit_at_ms = _forecast(account, mark, per_minute, now_ms) if mark.limit else None
    return AccountRow(
        scope=name, budget=f"{mark.window} {SHOWN_UNIT[mark.unit]}", spent=spent / scale, limit=mark.limit / scale,
        unit=SHOWN_UNIT[mark.unit], window_s=WINDOW_S[mark.window], per_hour=per_minute * 60 / scale,
        limit_at_ms=limit_at_ms, runs=len(account.runs) + account.evicted,
    )  # fmt: skip


def _limits(account: Account, marks: bytes | None) -> list[Mark]:
    """Return the limits in force: of a session, the lowest that one of its runs has declared."""
    known = list(_unpack_marks(marks)) if marks is not None else []
    found = {(mark.window, mark.unit): mark.limit for mark in known if mark.window in account.windows}
    for unit, limit in account.declared.items():
        if unit in UNITS and TOTAL in account.windows:
            found[TOTAL, unit] = min(limit, found.get((TOTAL, unit), limit))
    return [Mark(window, unit, limit) for (window, unit), limit in found.items()]


def _share(state: bytes | None, marks: bytes | None) -> float:
    """Return the largest share of a limit that is used; -1 if the account has no state."""
    if state is None:
        return -1.0
    account = load_account(state)
    return max(
        (
            _spent(account, mark.window, mark.unit, account.at_ms) / max(1, mark.limit)
            for mark in _limits(account, marks)
        ),
        default=0.0,
    )


def _hops(window: SpendWindow, unit: str) -> list[tuple[int, int]]:
    place = 1 if unit == "tokens" else 2
    return [(hop[0], hop[place]) for hop in window.hops]


def _spent(account: Account, name: str, unit: str, now_ms: int) -> int:
    """Return what stands in a window at a time. Hops that have left it since the last entry do not count."""
    window = account.windows.get(name)
    if window is None:
        return 0
    if name == TOTAL:
        return window.tokens if unit == "tokens" else window.micro_usd
    length, count = WINDOWS[name]
    oldest = now_ms // length - count
    return sum(spent for number, spent in _hops(window, unit) if number > oldest)


def _per_minute(account: Account, unit: str, now_ms: int) -> float:
    """Return the rate of the last five minutes, or since the first entry if that is later."""
    length, count = WINDOWS["burn"]
    minutes = max(1, min(count, (now_ms - account.started_ms) // length + 1))
    return _spent(account, "burn", unit, now_ms) / minutes


def _forecast(account: Account, mark: Mark, per_minute: float, now_ms: int) -> int | None:
    """Return when a limit is exceeded at the current rate, in steps of five minutes; None: not within a day.

    What was spent earlier leaves the window meanwhile, so a steady rate may never reach the limit.
    """
    left = mark.limit - _spent(account, mark.window, mark.unit, now_ms)
    if left < 0:
        return now_ms
    if not per_minute:
        return None
    length, count = WINDOWS.get(mark.window, (FORECAST_MS, 1))
    if per_minute * length * count / MINUTE_MS <= left and mark.window != TOTAL:
        return None  # what comes leaves the window again before the limit is reached
    soonest_ms = int(left / per_minute * MINUTE_MS)  # if nothing left the window meanwhile
    for ahead_ms in range(soonest_ms - soonest_ms % FORECAST_STEP_MS, FORECAST_MS + 1, FORECAST_STEP_MS):
        counted_ms = ahead_ms if mark.window == TOTAL else min(ahead_ms, length * count)
        spent = _spent(account, mark.window, mark.unit, now_ms + ahead_ms)
        if spent + per_minute * counted_ms / MINUTE_MS > mark.limit:
            return now_ms + ahead_ms
    return None
