"""Accounts of sessions, users and tenants: what all of their runs spend together, and when that is too much.

A run is in one partition, its user's runs are in many. So what runs spend is sent on as *statements*, one account
each, and `step_account` books them: pure, as `step` is, and called by the worker, `scan` and `Monitor` alike. What it
answers are events for the runs at work on the account; those go back into the runs' own log, where the engine
decides on them. So a run's memory and status, and a replay of the log, hold these halts as they hold all others.

Windows hop in log time: the last 60 minutes in steps of 5, the last 24 hours in steps of 1, the last 30 days in steps
of 1. Amounts are integers: tokens and micro-USD.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import xxhash

from streamproc.core.signals.spend import SPEND_MAX
from streamproc.model.wire import WIRE_VERSION, BudgetReached

ACCOUNT_VERSION: Final = 1
# Runs of an account that are told at once; any other is told with what it spends next.
RUNS_MAX: Final = 128
# Partitions of the turns topic whose last booked offset is known. More than most topics have.
SOURCES_MAX: Final = 512

MINUTE_MS: Final = 60_000
# Length of a hop in ms, and how many hops make the window.
WINDOWS: Final = {
    "hour": (5 * MINUTE_MS, 12),
    "day": (60 * MINUTE_MS, 24),
    "month": (24 * 60 * MINUTE_MS, 30),
    "burn": (MINUTE_MS, 5),  # how fast it goes now: not limited, only told
}
AMOUNT_MAX: Final = 2**53  # what an event can carry
TOTAL: Final = "total"  # the window of a session: all of it
UNITS: Final = ("tokens", "micro_usd")

EXCEEDED: Final = "exceeded"
REJECTED: Final = "rejected"
# The rungs below `exceeded` of each kind of account: name, and whether reaching the mark is enough.
RUNGS: Final = {
    "session": (("warning", False), ("restrict", False), ("wrap_up", True)),
    "user": (("warning", True),),
    "tenant": (("warning", True),),
}
CLOSED: Final = ("restrict", "wrap_up", EXCEEDED)  # a session on one of these takes no new work


# What an account can keep: whoever writes more into a statement must not make the account one that cannot be stored.
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """A limit in force: in which window, of which unit, how much."""

    window: str
    unit: str
    limit: Whole


class AccountRef(msgspec.Struct, array_like=True):
    """A run, as its account must know it: where its log is, what limits policy has for it (`marks`, judged at
    `percents`), and which of a session it declared itself."""

    run_id: str
    partition: Whole
    child: bool
    marks: list[Mark]
    declared: list[Mark]
    percents: list[int]


class SpendEntry(msgspec.Struct, array_like=True):
    """What one turn of a payer spent, and where the turn stands in the log. `first`: the run has just come;
    `left`: it is over."""

    payer: Whole
    offset: Whole
    at_ms: Whole
    tokens: Whole
    micro_usd: Whole
    unpriced: Annotated[int, msgspec.Meta(ge=0, le=1)]
    first: bool = False
    left: bool = False


class Statement(msgspec.Struct, array_like=True):
    """A record of the spend topic: entries of one account from one partition of the turns topic, in log order."""

    version: int
    account: str
    source: Whole
    payers: list[AccountRef]
    entries: list[SpendEntry]


class SpendWindow(msgspec.Struct, array_like=True):
    """What was spent in a window: its hops, oldest first, each with its number, tokens, micro-USD and unpriced turns;
    and their sums. The whole of a session has sums alone."""

    hops: list[list[int]] = []
    tokens: int = 0
    micro_usd: int = 0
    unpriced: int = 0


class Account(msgspec.Struct, array_like=True):
    """What is kept of an account. `applied` is the last offset booked of each source partition; `rungs` where each
    limit stands, and since which hop; `declared` what runs of a session declared; `runs` those at work, with their
    partitions. `offset` is where the carrier's own log of statements stands (-1: it has none)."""

    version: int = ACCOUNT_VERSION
    at_ms: int = 0
    started_ms: int = 0
    applied: dict[int, int] = {}
    windows: dict[str, SpendWindow] = {}
    rungs: dict[str, list[int]] = {}
    declared: dict[str, int] = {}
    runs: dict[str, int] = {}
    evicted: int = 0
    offset: int = -1


def step_account(account: Account, statement: Statement) -> list[tuple[int, BudgetReached]]:
    """Book a statement, and say which runs must hear of it: the partition of each one's log, and its event.

    Entries that were booked before are skipped exactly, so a statement may come twice, or cut in another way.
    """
    kind = statement.account.partition(":")[0]
    last = account.applied.get(statement.source, -1)
    told: list[tuple[int, BudgetReached]] = []
    for entry in statement.entries:
        if entry.offset <= last:
            continue
        last = entry.offset
        _book(account, kind, entry)
        told += _judge(account, statement, kind, statement.payers[entry.payer], entry)
    account.applied.pop(statement.source, None)
    account.applied[statement.source] = last
    if len(account.applied) > SOURCES_MAX:
        del account.applied[next(iter(account.applied))]
    return told


def _book(account: Account, kind: str, entry: SpendEntry) -> None:
    account.at_ms = now_ms = max(account.at_ms, entry.at_ms)
    account.started_ms = account.started_ms or entry.at_ms
    for name in _WINDOWS_OF[kind]:
        window = account.windows.get(name)
        if window is None:
            window = account.windows[name] = SpendWindow()
        if name == TOTAL:
            _add(window, None, entry)
            continue
        length, count = WINDOWS[name]
        hops, oldest = window.hops, now_ms // length - count
        if entry.tokens or entry.micro_usd or entry.unpriced:
            number = max(entry.at_ms // length, oldest + 1)  # what comes late still counts, at the window's old end
            _add(window, hops[-1] if hops and hops[-1][0] == number else _hop(hops, number), entry)
        while hops and hops[0][0] <= oldest:
            _, tokens, micro_usd, unpriced = hops.pop(0)
            window.tokens -= tokens
            window.micro_usd -= micro_usd
            window.unpriced -= unpriced


_WINDOWS_OF: Final = {"session": (TOTAL, "burn"), "user": tuple(WINDOWS), "tenant": tuple(WINDOWS)}


def _hop(hops: list[list[int]], number: int) -> list[int]:
    """The hop of this number; a new one in its place where there is none."""
    place = len(hops)
    while place and hops[place - 1][0] > number:
        place -= 1
    if not place or hops[place - 1][0] != number:
        hops.insert(place, [number, 0, 0, 0])
        place += 1
    return hops[place - 1]


def _add(window: SpendWindow, hop: list[int] | None, entry: SpendEntry) -> None:
    """Book an entry, as far as a stored integer can hold it."""
    tokens = min(entry.tokens, SPEND_MAX - window.tokens)
    micro_usd = min(entry.micro_usd, SPEND_MAX - window.micro_usd)
    window.tokens += tokens
    window.micro_usd += micro_usd
    window.unpriced += entry.unpriced
    if hop is not None:
        hop[1] += tokens
        hop[2] += micro_usd
        hop[3] += entry.unpriced


def _judge(
    account: Account, statement: Statement, kind: str, payer: AccountRef, entry: SpendEntry
) -> list[tuple[int, BudgetReached]]:
    """Whom the limits in force give something to hear, after this entry."""
    came = payer.run_id not in account.runs
    account.runs.pop(payer.run_id, None)
    if not entry.left:
        account.runs[payer.run_id] = payer.partition
        if len(account.runs) > RUNS_MAX:
            del account.runs[next(iter(account.runs))]
            account.evicted += 1
    found: list[tuple[int, BudgetReached]] = []
    for mark in _in_force(account, kind, payer):
        window = account.windows[mark.window]
        used = window.tokens if mark.unit == "tokens" else window.micro_usd
        rung = _rung(kind, used, mark.limit, payer.percents)
        own = entry.tokens if mark.unit == "tokens" else entry.micro_usd
        place = f"{mark.window}/{mark.unit}"
        known, since_ms = account.rungs.get(place, (0, 0))
        if not (rung or known):
            continue
        stood = min(known, _rung(kind, used - own, mark.limit, payer.percents))  # the window may have moved on
        if not rung == stood == known:
            since_ms = _since_ms(account, mark.window)
        account.rungs[place] = [rung, since_ms]
        if not rung:
            continue
        if rung > stood:
            hearers = list(account.runs.items())
        elif came and not entry.left:
            hearers = [(payer.run_id, payer.partition)]
        else:
            continue
        name = _name(kind, rung)
        for run_id, partition in hearers:
            fresh = run_id == payer.run_id and entry.first and payer.child and stood >= 2
            event = BudgetReached(
                w=WIRE_VERSION,
                run_id=run_id,
                at=account.at_ms or None,
                account=statement.account,
                window=mark.window,
                unit=mark.unit,
                used=min(used, AMOUNT_MAX),
                limit=mark.limit,
                rung=REJECTED if fresh and name in CLOSED and name != EXCEEDED else name,
                since_ms=since_ms,
                per_minute=_per_minute(account, mark.unit),
                unpriced=min(window.unpriced, AMOUNT_MAX),
            )
            event.event_id = _event_id(event)
            found.append((partition, event))
    return found


def _in_force(account: Account, kind: str, payer: AccountRef) -> list[Mark]:
    """The limits of this account. What the runs of a session declared holds for all of them, the least of it."""
    if kind != "session":
        return payer.marks
    for mark in payer.declared:
        account.declared[mark.unit] = min(mark.limit, account.declared.get(mark.unit, mark.limit))
    general = {mark.unit: mark.limit for mark in payer.marks}
    limits = general | account.declared
    return [Mark(TOTAL, unit, limits[unit]) for unit in UNITS if unit in limits]


def _rung(kind: str, used: int, limit: int, percents: list[int]) -> int:
    """How high a limit's use has come: 0 below all, then 1 for the first rung, …; a percentage of 0 is off."""
    if used > limit:
        return len(RUNGS[kind]) + 1
    if not used:
        return 0
    reached = 0
    for place, ((_, at_mark), percent) in enumerate(zip(RUNGS[kind], percents, strict=True), 1):
        if percent and (used * 100 > limit * percent or (at_mark and used * 100 == limit * percent)):
            reached = place
    return reached


def _name(kind: str, rung: int) -> str:
    rungs = RUNGS[kind]
    return rungs[rung - 1][0] if rung <= len(rungs) else EXCEEDED


def _since_ms(account: Account, window: str) -> int:
    """Where the window begins that is judged now: part of the identity of what is told."""
    if window == TOTAL:
        return 0
    length, count = WINDOWS[window]
    return max(0, account.at_ms // length - count + 1) * length


def _per_minute(account: Account, unit: str) -> int:
    """How fast it went over the last five minutes, or since the beginning."""
    window, (length, count) = account.windows["burn"], WINDOWS["burn"]
    minutes = min(count, (account.at_ms - account.started_ms) // length + 1)
    return min((window.tokens if unit == "tokens" else window.micro_usd) // max(1, minutes), AMOUNT_MAX)


def _event_id(event: BudgetReached) -> str:
    text = "\0".join(
        (event.run_id, event.account, event.window, event.unit, event.rung, str(event.since_ms), str(event.limit))
    )
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


_account_encoder = msgspec.msgpack.Encoder()
_account_decoder = msgspec.msgpack.Decoder(Account)
_statement_encoder = msgspec.json.Encoder()
_statement_decoder = msgspec.json.Decoder(Statement)


def dump_account(account: Account) -> bytes:
    """An account as MessagePack."""
    return _account_encoder.encode(account)


def load_account(raw: bytes) -> Account:
    """A stored account. Raises `msgspec.DecodeError` for anything that `dump_account` did not write."""
    try:
        return _account_decoder.decode(raw)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec lets Python's own errors through
        raise msgspec.DecodeError(str(error)) from None


def write_statement(statement: Statement) -> bytes:
    """A statement as one line of JSON."""
    return _statement_encoder.encode(statement)


def read_statement(raw: bytes) -> Statement:
    """A statement from the spend topic. Raises `msgspec.DecodeError` for anything else."""
    try:
        return _statement_decoder.decode(raw)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
