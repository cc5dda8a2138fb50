"""The oracle: after a schedule, everything is as if the engine had stepped the logs once, in order, without faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from streamproc.client.halt_records import read_status_news
from streamproc.client.halts import Halts
from streamproc.core.accounts import Account, BudgetReached, read_statement, step_account
from streamproc.core.charges import Charge, statements
from streamproc.core.decision import set_place
from streamproc.core.providers import Breaker
from streamproc.errors import InvalidEvent
from streamproc.fingerprint import read_event
from streamproc.model.wire import ModelCalled
from streamproc.worker.accounts_table import AccountPartition, _dump, _load
from streamproc.worker.codec import decode_run, encode_run, state_bytes
from streamproc.worker.limits import CRASHES_IN_HAND_MAX
from streamproc.worker.publishing import POISON
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.strays import FEW
from streamproc.worker.tables import Runs
from tests.feeding import Feed
from tests.simulation.calls import Booked, Call, call_of, call_violations, is_call
from tests.simulation.cluster import Cluster, Record
from tests.simulation.machine import (
    ACCOUNTS_LOG,
    CONTROL,
    CURSED,
    DEAD,
    DEADLY,
    RUNS_LOG,
    SETTINGS,
    SPEND,
    STATUS,
    TURNS,
    WorkerRun,
)  # fmt: skip
from tests.simulation.plan import at_home, policy
from tests.states import shown

SHOWN: Final = 3  # violations of one kind that are shown


@dataclass
class Truth:
    """What one engine makes of one partition of the turns topic."""

    decisions: dict[str, bytes] = field(default_factory=dict)  # by id
    made_at: dict[str, int] = field(default_factory=dict)
    runs: dict[bytes, Feed] = field(default_factory=dict)
    halts: dict[bytes, str] = field(default_factory=dict)
    applied: dict[bytes, list[int]] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    calls: dict[Call, int] = field(default_factory=dict)
    entries: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)


def truth_of(log: list[Record], partition: int, partitions: int) -> Truth:
    """Step a partition once."""
    truth, rules = Truth(), policy()
    for record in log:
        event = _read(record)
        if isinstance(event, ModelCalled):
            truth.calls |= call_of(event, record)
            continue  # it is booked for its provider, and is no event of a run's state
        astray = record.partition != at_home(record.key or b"", partitions)
        if event is None or astray or event.node in (CURSED, DEADLY):
            truth.refused.append(record.offset)
        if event is None or record.key is None or astray or event.node == DEADLY:
            continue
        run = truth.runs.get(record.key)
        if run is None:
            run = truth.runs[record.key] = Feed(rules)
            run.state.partition = partition
        truth.applied.setdefault(record.key, []).append(record.offset)
        if event.node == CURSED:
            run.state.offset = record.offset
            continue
        outcome = run.outcome(event, record.timestamp, record.offset)
        truth.charges += outcome.charges
        if outcome.refused is not None:
            truth.refused.append(record.offset)
        else:
            truth.calls |= call_of(event, record)
        for decision in outcome.decisions:
            set_place(decision, record.topic, record.partition, record.offset)
            truth.decisions[decision.id] = msgspec.json.encode(decision)
            truth.made_at[decision.id] = record.offset
        run.state.offset = record.offset
        _book(truth, partition)
    return truth


def _book(truth: Truth, partition: int) -> None:
    for statement in statements(truth.charges, partition):
        for entry in statement.entries:
            truth.entries[statement.account, partition, entry.offset] = (entry.tokens, entry.micro_usd)
    truth.charges.clear()


def _read(record: Record) -> Any:
    try:
        if record.value is None or len(record.value) > SETTINGS.event_bytes_max:
            return None
        event = read_event(record.value)
        return event if event.run_id.encode() == record.key else None
    except (InvalidEvent, ValueError, RecursionError):
        return None


def violations(cluster: Cluster, worker_runs: list[WorkerRun]) -> list[str]:
    """Return everything that is wrong."""
    if (unlucky := _twice_in_hand(cluster)) is not None:
        return unlucky
    truths = {n: truth_of(cluster.log(TURNS, n), n, cluster.partitions) for n in range(cluster.partitions)}
    accounts, reached = _accounts(cluster)
    booked = _booked(cluster)
    found: list[str] = []
    for check in (
        _controls(cluster, truths, booked), _dead_letters(cluster, truths), _states(cluster, truths, worker_runs),
        _beliefs(cluster, truths), () if cluster.late_records else _statuses(cluster, truths),
        _spend(cluster, truths), _reached(cluster, reached),
        _account_states(cluster, accounts, booked, worker_runs), _calls(truths, booked), _commits(cluster, truths),
        _spend_commits(cluster),
    ):  # fmt: skip
        several = list(check)
        found += several[:SHOWN] + ([f"… and {len(several) - SHOWN} more"] if len(several) > SHOWN else [])
    return found


def _twice_in_hand(cluster: Cluster) -> list[str] | None:
    """Check the records that were refused because two workers ended with them in hand; None if there are none.

    Kills may hit a worker twice while it has the same record in hand, which is refused then, though it may be applied
    already. Nothing else is checked in such a schedule.
    """
    refused = []
    for partition in range(cluster.partitions):
        for record in cluster.log(DEAD, partition):
            headers = dict(record.headers)
            if POISON.what.encode() in headers["reason"]:
                place = headers["source.topic"].decode(), int(headers["source.partition"])
                refused.append((place, int(headers["source.offset"])))
    found = [
        f"{place}@{offset} was refused as poison, and no two workers ended with it in hand"
        for place, offset in set(refused)
        if sum(hand == offset for (where, *_), hand in cluster.named.items() if where == place) < CRASHES_IN_HAND_MAX
    ]
    honest = [one for one in refused if not _is_deadly(cluster, *one)]
    return found if found or honest else None


def _is_deadly(cluster: Cluster, place: tuple[str, int], offset: int) -> bool:
    event = _read(cluster.logs[place][offset]) if place[0] == TURNS else None
    return event is not None and event.node == DEADLY


def _controls(cluster: Cluster, truths: dict[int, Truth], booked: dict[int, Booked]) -> Iterator[str]:
    expected = {i: raw for truth in truths.values() for i, raw in truth.decisions.items()}
    states = {i: raw for one in booked.values() for i, raw in one.states.items()}
    expected |= states
    seen: set[str] = set()
    for partition, truth in truths.items():
        for record in cluster.log(CONTROL, partition):
            decided = dict(record.headers)["ce_id"].decode()
            if record.key == b"*":
                yield from _cause_of_strays(cluster, record)
                continue
            seen.add(decided)
            if decided not in expected:
                yield f"control [{partition}]@{record.offset} was never decided: {record.value!r}"
            elif expected[decided] != record.value or decided not in (states if is_call(record) else truth.decisions):
                yield f"control [{partition}]@{record.offset} differs: {record.value!r}, not {expected[decided]!r}"
    yield from (f"control is missing: {expected[i]!r}" for i in expected.keys() - seen)


def _cause_of_strays(cluster: Cluster, record: Record) -> Iterator[str]:
    """Check the event that explains records outside of their home: some runs have strayed."""
    count = cluster.partitions
    strays = {
        one.key
        for n in range(count)
        for one in cluster.log(TURNS, n)
        if _read(one) and n != at_home(one.key or b"", count)
    }
    if b'"FLEET003"' not in (record.value or b"") or len(strays) < FEW:
        yield f"control [{record.partition}]@{record.offset} explains {len(strays)} strays: {record.value!r}"


def _dead_letters(cluster: Cluster, truths: dict[int, Truth]) -> Iterator[str]:
    for partition, truth in truths.items():
        found = {int(dict(record.headers)["source.offset"]) for record in cluster.log(DEAD, partition)}
        yield from (f"no dead letter for [{partition}]@{offset}" for offset in set(truth.refused) - found)
        yield from (f"a dead letter for [{partition}]@{offset}, which is fine" for offset in found - set(truth.refused))


def _states(cluster: Cluster, truths: dict[int, Truth], worker_runs: list[WorkerRun]) -> Iterator[str]:
    for partition, truth in truths.items():
        owners = [
            worker_run
            for worker_run in worker_runs
            if partition in worker_run.member.partitions and worker_run.member.generation >= 0
        ]
        if len(owners) != 1:
            yield f"partition {partition} has {len(owners)} owners"
        for number, gone in enumerate((frozenset(), cluster.compacted.get((RUNS_LOG, partition), frozenset()))):
            restored = _restored(cluster, partition, gone)
            yield from _compare(truth, restored, f"changelog [{partition}]{' compacted' * number}")
        for worker_run in owners:
            yield from _compare(
                truth, worker_run.store.partition_of(partition), f"memory of {worker_run.process.name} [{partition}]"
            )


def _restored(cluster: Cluster, partition: int, gone: Any) -> Runs:
    runs = Runs(partition, RunLimits())
    for record in cluster.log(RUNS_LOG, partition):
        if record.offset not in gone:
            runs.restore(record.key or b"", record.value, record.offset)
    return runs


def _compare(truth: Truth, runs: Runs, where: str) -> Iterator[str]:
    if set(runs.known()) != set(truth.runs):
        yield f"{where} knows {sorted(runs.known())}, not {sorted(truth.runs)}"
        return
    for key, run in truth.runs.items():
        raw = runs.raw(key)
        for kind, found in (("stored", raw and decode_run(raw)[0]), ("decoded", runs.decoded(key))):
            if found is not None and state_bytes(encode_run(found, None)) != run.stored:
                yield f"{where}, {kind} state of {key!r}: {_difference(found, run.state)}"


def _difference(found: Any, expected: Any) -> str:
    one, other = shown(found), shown(expected)
    return "; ".join(f"{name} is {one[name]}, not {other[name]}" for name in one if one[name] != other[name])


def _beliefs(cluster: Cluster, truths: dict[int, Truth]) -> Iterator[str]:
    """Check what a listener believes that has read all statuses: those that a worker has sent late change nothing."""
    for partition, truth in truths.items():
        halts = Halts()
        for record in cluster.log(STATUS, partition):
            halts.status(read_status_news(record.value, record.timestamp))
        halted = {key.decode() for key, run in truth.runs.items() if run.state.halted >= 0}
        if set(halts.runs) != halted:
            yield f"listeners to [{partition}] believe that {sorted(halts.runs)} are halted, not {sorted(halted)}"


def _statuses(cluster: Cluster, truths: dict[int, Truth]) -> Iterator[str]:
    """Check the last statuses. Skipped where a worker may have sent an older one late: nothing fences its producer."""
    for partition, truth in truths.items():
        last = {record.key: msgspec.json.decode(record.value) for record in cluster.log(STATUS, partition)}
        for key, run in truth.runs.items():
            state = run.state
            status = "halted" if state.halted >= 0 else "finished" if state.finished else "running"
            last_status = last.get(key, {"status": "none"})
            if last_status["status"] != status or (status == "halted") > ("halt" in last_status):
                yield f"the last status of {key!r} in [{partition}] is {last_status}; the run is {status}"


# AccountPartition.


def _accounts(cluster: Cluster) -> tuple[dict[int, dict[bytes, Account]], set[tuple[int, str]]]:
    """Book the spend topic once: the accounts of each partition, and the resulting events."""
    books: dict[int, dict[bytes, Account]] = {}
    reached: set[tuple[int, str]] = set()
    for partition in range(cluster.partitions):
        books[partition] = {}
        for record in cluster.log(SPEND, partition):
            if is_call(record):
                continue
            account = books[partition].setdefault(record.key or b"", Account())
            events = step_account(account, read_statement(record.value or b""))
            account.offset = max(account.offset, record.offset)
            reached |= {(number, event.event_id) for number, event in events}
    return books, reached


def _spend(cluster: Cluster, truths: dict[int, Truth]) -> Iterator[str]:
    """Every charge was sent on, with the right amount, and in the order of its log."""
    expected = {place: amounts for truth in truths.values() for place, amounts in truth.entries.items()}
    found: dict[tuple[str, int, int], tuple[int, int]] = {}
    last: dict[tuple[str, int], int] = {}
    for partition in range(cluster.partitions):
        for record in cluster.log(SPEND, partition):
            if is_call(record):
                continue
            statement = read_statement(record.value or b"")
            account, source = statement.account, statement.source
            for entry in statement.entries:
                place, amounts = (account, source, entry.offset), (entry.tokens, entry.micro_usd)
                if place not in found and entry.offset < last.get((account, source), -1):
                    yield f"{account} got [{source}]@{entry.offset} too late to book it"
                elif found.setdefault(place, amounts) != amounts:
                    yield f"{account} was charged {amounts} for [{source}]@{entry.offset}, and {found[place]} before"
                last[account, source] = max(entry.offset, last.get((account, source), -1))
    for place in found.keys() | expected.keys():
        if found.get(place) != expected.get(place):
            yield f"charge {place} is {found.get(place)}, not {expected.get(place)}"


def _booked(cluster: Cluster) -> dict[int, Booked]:
    """Book the calls of models once, by partition of the spend topic."""
    books = {partition: Booked() for partition in range(cluster.partitions)}
    for partition, book in books.items():
        for record in filter(is_call, cluster.log(SPEND, partition)):
            book.book(record)
    return books


def _calls(truths: dict[int, Truth], booked: dict[int, Booked]) -> Iterator[str]:
    expected = {call: outcome for truth in truths.values() for call, outcome in truth.calls.items()}
    for book in booked.values():
        own = {call: outcome for call, outcome in expected.items() if call.account in book.providers.known}
        yield from call_violations(own, book)
        expected = {call: outcome for call, outcome in expected.items() if call not in own}
    yield from (f"{call} was not sent on" for call in expected)


def _account_states(
    cluster: Cluster, books: dict[int, dict[bytes, Account]], booked: dict[int, Booked], worker_runs: list[WorkerRun]
) -> Iterator[str]:
    for partition, plain in books.items():
        accounts: dict[bytes, Account | Breaker] = {**plain, **booked[partition].breakers}
        places = [(f"changelog [{partition}]", _restored_accounts(cluster, partition))]
        places += [
            (f"memory of {worker_run.process.name} [{partition}]", worker_run.account_store.partition_of(partition))
            for worker_run in worker_runs
            if partition in worker_run.member.partitions
        ]
        for where, found in places:
            if set(found._stored) != set(accounts):
                yield f"{where} has accounts {sorted(found._stored)}, not {sorted(accounts)}"
            for key, account in accounts.items():
                if _dump(mine := found.load(key)) != _dump(account):
                    yield f"{where} remembers account {key!r} as {mine}, not {account}"


def _restored_accounts(cluster: Cluster, partition: int) -> AccountPartition:
    accounts = AccountPartition(partition, lambda: 0)
    for record in cluster.read((ACCOUNTS_LOG, partition), 0, 1 << 60):
        accounts.restore(record.key or b"", record.value, record.offset)
    return accounts


def _reached(cluster: Cluster, reached: set[tuple[int, str]]) -> Iterator[str]:
    found = {
        (record.partition, event.event_id)
        for partition in range(cluster.partitions)
        for record in cluster.log(TURNS, partition)
        if isinstance(event := _read(record), BudgetReached)
    }
    yield from (f"[{place}] got no event about the reached budget: {event_id}" for place, event_id in reached - found)
    yield from (
        f"[{place}] got an event about a budget that is not reached: {event_id}" for place, event_id in found - reached
    )


# Commits.


def _first(log: list[Record], key: Any) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for record in log:
        found.setdefault(key(record), record.offset)
    return found


def _commits(cluster: Cluster, truths: dict[int, Truth]) -> Iterator[str]:
    """Check that everything committed was published and stored before."""
    for partition, truth in truths.items():
        controls = _first(cluster.log(CONTROL, partition), lambda record: dict(record.headers)["ce_id"].decode())
        dead = _first(cluster.log(DEAD, partition), lambda record: int(dict(record.headers)["source.offset"]))
        stored: dict[bytes, list[tuple[int, int]]] = {}
        for record in cluster.log(RUNS_LOG, partition):
            if record.value is not None:
                stored.setdefault(record.key or b"", []).append((record.offset, decode_run(record.value)[0].offset))
        for place, offset, ends in cluster.commits:
            if place != (TURNS, partition):
                continue
            if offset > ends[place]:
                yield f"{offset} was committed in {place}, which ends at {ends[place]}"
            for i, made in truth.made_at.items():
                if made < offset and controls.get(i, 1 << 60) >= ends.get((CONTROL, partition), 0):
                    yield f"[{partition}] was committed up to {offset} before the decision on {made} was published"
            for refused in truth.refused:
                if refused < offset and dead.get(refused, 1 << 60) >= ends.get((DEAD, partition), 0):
                    yield f"[{partition}] was committed up to {offset} before the dead letter for {refused}"
            yield from _unstored(truth, stored, partition, offset, ends.get((RUNS_LOG, partition), 0))


def _unstored(
    truth: Truth, stored: dict[bytes, list[tuple[int, int]]], partition: int, offset: int, end: int
) -> Iterator[str]:
    for key, applied in truth.applied.items():
        last = max((number for number in applied if number < offset), default=-1)
        known = max((at for place, at in stored.get(key, ()) if place < end), default=-1)
        if known < last:
            yield f"[{partition}] was committed up to {offset} while {key!r} was stored as of {known}, not {last}"


def _spend_commits(cluster: Cluster) -> Iterator[str]:
    """Check that every committed statement was booked and stored before."""
    for place, offset, ends in cluster.commits:
        if place[0] != SPEND:
            continue
        booked: dict[bytes, int] = {}
        for record in cluster.log(ACCOUNTS_LOG, place[1])[: ends.get((ACCOUNTS_LOG, place[1]), 0)]:
            known = _load(record.key or b"", record.value or b"").offset
            booked[record.key or b""] = max(known, booked.get(record.key or b"", -1))
        for record in cluster.log(*place)[:offset]:
            if booked.get(record.key or b"", -1) < record.offset:
                yield f"{place} was committed up to {offset} before @{record.offset} was booked for {record.key!r}"
