"""Accounts of sessions, users and tenants: the spend of all their runs, compared with shared budgets.

A run lives in one partition, while the runs of its user are in many. So spend is published as *statements*, one for
each account, and `step_account` books them. It is pure, as `step` is; the worker, `scan` and `Monitor` call it. It
returns events for the runs that are active on the account. These go into the runs' own log, where the engine decides on
them: state, status and replays of a run include these halts like all others.

Amounts are integers: tokens and micro-USD.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, TypeVar

import msgspec
import xxhash

from streamproc.core.account_names import TREE
from streamproc.core.session_tree import NO_RULES, SessionTree, TreeEntry, make_room, read_rules, tag_of
from streamproc.core.spend_windows import WINDOWS, SpendEntry, SpendWindow, add_to, hop_of
from streamproc.core.tree_step import step_tree
from streamproc.model.wire import WIRE_VERSION, BudgetReached
from streamproc.model.wire_parts import Whole

T = TypeVar("T")
ACCOUNT_VERSION: Final = 1
# Active runs of an account that are notified at once; any other is notified when it next spends.
RUNS_MAX: Final = 128
# Of a stored account, which is one record on Kafka, too: a broker takes 1,048,588 bytes by default.
STATE_BYTES_MAX: Final = 900_000
# Entries of a statement, which is one record on Kafka: with the longest names, 128 are two thirds of a mebibyte.
ENTRIES_MAX: Final = 128
# Limits with a known rung: all windows and units, for some workflows with limits of their own.
RUNGS_MAX: Final = 48
# Partitions of the turns topic with a known last booked offset: more than most topics have.
SOURCES_MAX: Final = 512

AMOUNT_MAX: Final = 2**53  # the largest amount in an event
TOTAL: Final = "total"  # the window of a session: its whole lifetime
UNITS: Final = ("tokens", "micro_usd")

EXCEEDED: Final = "exceeded"
REJECTED: Final = "rejected"
# The levels (rungs) below `exceeded` for each kind of account: name, and whether reaching the mark is enough.
RUNGS: Final = {
    "session": (("warning", False), ("restrict", False), ("wrap_up", True)),
    "user": (("warning", True),),
    "tenant": (("warning", True),),
}
CLOSED: Final = ("restrict", "wrap_up", EXCEEDED)  # on these rungs, a session takes no new work


class Mark(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A limit in force."""

    window: str  # `hour`, `day`, `month` or `total`
    unit: str  # one of `UNITS`
    limit: Whole


class AccountRef(msgspec.Struct, array_like=True, gc=False):
    """A run that pays from an account."""

    run_id: str
    partition: Whole  # of its log
    child: bool  # whether another run started it
    marks: list[Mark]  # limits of the policy
    declared: list[Mark]  # limits that the run declared for its session
    percents: list[int]  # marks of the rungs
    overridable: list[str] = []  # units of the policy's limits that a run of the session may raise


class Statement(msgspec.Struct, array_like=True, gc=False):
    """A record of the spend topic: entries of one account from one partition of the turns topic, in log order."""

    version: int
    account: str  # its name (`account_names`)
    source: Whole  # the partition
    payers: list[AccountRef]
    entries: list[SpendEntry]
    tree: list[TreeEntry] = []  # of a tree, which has no other entries
    rules: msgspec.Raw = NO_RULES  # of these runs, which are of one scope


class _EarlierEntry(TreeEntry, gc=False):
    """An entry of earlier versions, with the rules of its run."""

    rules: msgspec.Raw = NO_RULES


class _EarlierStatement(Statement, gc=False):
    """A statement of earlier versions, which names rules with each entry."""

    tree: list[_EarlierEntry] = []  # type: ignore[assignment]


class Account(msgspec.Struct, array_like=True, gc=False):
    """The state of an account, stored by position."""

    version: int = ACCOUNT_VERSION
    at_ms: int = 0  # log time of the last entry
    started_ms: int = 0  # log time of the first entry
    applied: dict[int, int] = {}  # by source partition: the last offset booked
    windows: dict[str, SpendWindow] = {}  # by name
    # By limit (`window/unit` in a session, else `window/unit/limit`): [rung, log time at which its window began].
    rungs: dict[str, Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)]] = {}
    declared: dict[str, int] = {}  # by unit: the lowest limit that a run of the session declared
    runs: dict[str, int] = {}  # active runs with their partitions, least recent first
    evicted: int = 0  # runs dropped for want of space
    offset: int = -1  # of the last statement applied; -1: statements are not on Kafka
    tree: SessionTree | None = None  # only of a `tree:` account
    # Of active runs of a user or tenant, by tag: a hash of their limits, which may differ between workflows.
    limits: dict[int, int] = {}


def step_account(account: Account, statement: Statement) -> list[tuple[int, BudgetReached]]:
    """Book a statement, and return the events for the runs that it concerns, each with the partition of its log.

    Entries that were booked before are skipped, so statements may come twice or divided differently. Raises
    `ValueError` or `LookupError`, after booking a part, for a statement that contradicts itself.
    """
    kind = statement.account.partition(":")[0]
    booked = last = account.applied.get(statement.source, -1)
    reached: list[tuple[int, BudgetReached]] = []
    members: list[TreeEntry] = []
    for member in statement.tree:
        if member.offset < 0 or member.offset > last:
            last = max(last, member.offset)
            members.append(member)
    if members:
        account.tree = account.tree or SessionTree()
        reached = step_tree(account.tree, statement.account, statement.source, members, statement.rules)
    for entry in statement.entries:
        if entry.offset <= last:
            continue
        last = entry.offset
        _book(account, kind, entry)
        try:
            payer = statement.payers[entry.payer]
        except IndexError:
            what = f"payers: the entry of offset {entry.offset} names payer {entry.payer} of {len(statement.payers)}"
            raise ValueError(what) from None
        reached += _check_limits(account, statement, kind, payer, entry)
    if last == booked:
        return reached  # read again: even the order of the sources stays
    account.applied.pop(statement.source, None)
    account.applied[statement.source] = last
    if len(account.applied) > SOURCES_MAX:
        del account.applied[next(iter(account.applied))]
    return reached


def _book(account: Account, kind: str, entry: SpendEntry) -> None:
    account.at_ms = now_ms = max(account.at_ms, entry.at_ms)
    account.started_ms = account.started_ms or entry.at_ms
    for name in _WINDOWS_OF[kind]:
        window = account.windows.get(name)
        if window is None:
            window = account.windows[name] = SpendWindow()
        if name == TOTAL:
            add_to(window, None, entry)
            continue
        length, count = WINDOWS[name]
        hops, oldest = window.hops, now_ms // length - count
        if entry.tokens or entry.micro_usd or entry.unpriced:
            number = max(entry.at_ms // length, oldest + 1)  # late entries count in the oldest hop
            add_to(window, hops[-1] if hops and hops[-1][0] == number else hop_of(hops, number), entry)
        while hops and hops[0][0] <= oldest:
            _, tokens, micro_usd, unpriced = hops.pop(0)
            window.tokens -= tokens
            window.micro_usd -= micro_usd
            window.unpriced -= unpriced


_WINDOWS_OF: Final = {"session": (TOTAL, "burn"), "user": tuple(WINDOWS), "tenant": tuple(WINDOWS), TREE: ()}


def _check_limits(
    account: Account, statement: Statement, kind: str, payer: AccountRef, entry: SpendEntry
) -> list[tuple[int, BudgetReached]]:
    """Return the events that an entry causes: for all active runs under a limit at a new rung, for a new run at the
    current one."""
    is_new, group = _note_active(account, kind, payer, left=entry.left)
    found: list[tuple[int, BudgetReached]] = []
    for mark in _in_force(account, kind, payer):
        window = account.windows[mark.window]
        used = window.tokens if mark.unit == "tokens" else window.micro_usd
        rung = _rung(kind, used, mark.limit, payer.percents)
        amount = entry.tokens if mark.unit == "tokens" else entry.micro_usd
        name = f"{mark.window}/{mark.unit}"
        if kind != "session":
            account.rungs.pop(name, None)  # of an earlier version
            name = f"{name}/{mark.limit}"
        known, since_ms = account.rungs.get(name, (0, 0))
        if not (rung or known):
            continue
        before = min(known, _rung(kind, used - amount, mark.limit, payer.percents))  # lower if the window has moved
        if not rung == before == known:
            since_ms = _since_ms(account, mark.window)
        account.rungs.pop(name, None)
        account.rungs[name] = [rung, since_ms]
        if len(account.rungs) > RUNGS_MAX:
            del account.rungs[next(iter(account.rungs))]  # of a limit that the policy had
        if not rung:
            continue
        if rung > before:
            known_limits = account.limits if kind != "session" else {}
            notified = [one for one in account.runs.items() if known_limits.get(tag_of(one[0]), group) == group]
        elif is_new and not entry.left:
            notified = [(payer.run_id, payer.partition)]
        else:
            continue
        rung_name = _name(kind, rung)
        for run_id, partition in notified:
            fresh = run_id == payer.run_id and entry.first and payer.child and before >= 2
            event = BudgetReached(
                w=WIRE_VERSION,
                run_id=run_id,
                at=account.at_ms or None,
                account=statement.account,
                window=mark.window,
                unit=mark.unit,
                used=min(used, AMOUNT_MAX),
                limit=mark.limit,
                rung=REJECTED if fresh and rung_name in CLOSED and rung_name != EXCEEDED else rung_name,
                since_ms=since_ms,
                per_minute=_per_minute(account, mark.unit),
                unpriced=min(window.unpriced, AMOUNT_MAX),
            )
            event.event_id = _event_id(event)
            found.append((partition, event))
    return found


def _note_active(account: Account, kind: str, payer: AccountRef, *, left: bool) -> tuple[bool, int]:
    """Note that a run is active, or has left. Return whether it is new under its limits, and a hash of these."""
    run_id, tag = payer.run_id, tag_of(payer.run_id)
    group = xxhash.xxh32_intdigest(_encode_marks(payer.marks)) if kind != "session" else 0
    is_new = run_id not in account.runs or (kind != "session" and account.limits.get(tag, group) != group)
    account.runs.pop(run_id, None)
    account.limits.pop(tag, None)
    if not left:
        account.runs[run_id] = payer.partition
        if kind != "session":
            account.limits[tag] = group
        if len(account.runs) > RUNS_MAX:
            oldest = next(iter(account.runs))
            del account.runs[oldest]
            account.limits.pop(tag_of(oldest), None)
            account.evicted += 1
    return is_new, group


def _in_force(account: Account, kind: str, payer: AccountRef) -> list[Mark]:
    """Return the limits of this account. In a session, the lowest limit that a run declared holds for all runs. It may
    exceed the policy's only where the policy says so."""
    if kind != "session":
        return payer.marks
    for mark in payer.declared:
        account.declared[mark.unit] = min(mark.limit, account.declared.get(mark.unit, mark.limit))
    general = {mark.unit: mark.limit for mark in payer.marks}
    allowed = payer.overridable
    lower = {unit: n for unit, n in account.declared.items() if unit in allowed or n <= general.get(unit, n)}
    limits = general | lower
    return [Mark(TOTAL, unit, limits[unit]) for unit in UNITS if unit in limits]


def _rung(kind: str, used: int, limit: int, percents: list[int]) -> int:
    """Return the number of the highest rung reached, from 1; 0: none. A percentage of 0 turns its rung off."""
    if used > limit:
        return len(RUNGS[kind]) + 1
    if not used:
        return 0
    reached = 0
    for number, ((_, at_mark), percent) in enumerate(zip(RUNGS[kind], percents, strict=True), 1):
        if percent and (used * 100 > limit * percent or (at_mark and used * 100 == limit * percent)):
            reached = number
    return reached


def closes_session(used: int, limit: int, percents: list[int]) -> bool:
    """Whether a session that has spent this much takes no new work."""
    rung = _rung("session", used, limit, percents)
    return rung > 0 and _name("session", rung) in CLOSED


def _name(kind: str, rung: int) -> str:
    rungs = RUNGS[kind]
    return rungs[rung - 1][0] if rung <= len(rungs) else EXCEEDED


def _since_ms(account: Account, window: str) -> int:
    """Return the log time at which the current window began: part of the identity of its events."""
    if window == TOTAL:
        return 0
    length, count = WINDOWS[window]
    return max(0, account.at_ms // length - count + 1) * length


def _per_minute(account: Account, unit: str) -> int:
    """Return the rate over the last five minutes, or since the first entry if that is later."""
    window, (length, count) = account.windows["burn"], WINDOWS["burn"]
    minutes = min(count, (account.at_ms - account.started_ms) // length + 1)
    return min((window.tokens if unit == "tokens" else window.micro_usd) // max(1, minutes), AMOUNT_MAX)


def _event_id(event: BudgetReached) -> str:
    text = "\0".join(
        (event.run_id, event.account, event.window, event.unit, event.rung, str(event.since_ms), str(event.limit))
    )
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


_dump_account = _encode_marks = msgspec.msgpack.Encoder().encode
write_statement: Final = msgspec.json.Encoder().encode
_load_account: Final = msgspec.msgpack.Decoder(Account).decode
_read_statement: Final = msgspec.json.Decoder(Statement).decode
_read_earlier: Final = msgspec.json.Decoder(_EarlierStatement).decode


def decoded(decode: Callable[[bytes], T], raw: bytes) -> T:
    """Return what msgspec decodes. Raises `msgspec.DecodeError` also where msgspec lets Python's own errors through."""
    try:
        return decode(raw)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def dump_account(account: Account) -> bytes:
    """Encode an account. A tree whose names are so long that no record holds it forgets its oldest runs."""
    raw = _dump_account(account)
    while len(raw) > STATE_BYTES_MAX and account.tree is not None and account.tree.runs:
        make_room(account.tree, len(account.tree.runs) * 3 // 4)
        raw = _dump_account(account)
    return raw


def load_account(raw: bytes) -> Account:
    """Read a stored account. Raises `msgspec.DecodeError` for anything that `dump_account` did not write."""
    return decoded(_load_account, raw)


def read_statement(raw: bytes) -> Statement:
    """Read a statement from the spend topic. Raises `msgspec.DecodeError` for anything else."""
    statement = decoded(_read_statement, raw)
    kind = statement.account.partition(":")[0]
    if kind not in _WINDOWS_OF:
        raise msgspec.ValidationError(f"account: {statement.account[:80]!r} is no {', '.join(_WINDOWS_OF)}")
    if (kind == TREE and statement.entries) or (kind != TREE and statement.tree):
        raise msgspec.ValidationError(f"account: {statement.account[:80]!r} has entries of another kind")
    if statement.tree and statement.rules == NO_RULES:
        statement.rules = _read_earlier(raw).tree[-1].rules
    decoded(read_rules, bytes(statement.rules))  # all of a statement can be booked, or nothing
    for entry in statement.tree:
        entry.check()
    return statement
