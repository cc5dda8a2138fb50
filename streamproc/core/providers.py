"""One circuit breaker for each provider and model, over the calls of all runs: closed → open → half-open → closed.

`step_provider` is pure: it has no clock, and its time is that of the log. The worker, `Monitor`, `up`, `replay` and
`backtest` call it with the same statements (`core.provider_calls`) and get the same states.

Closed: calls and those that failed for the provider's sake (429, 5xx, time-outs) are counted in a window that hops in
log time. If enough calls fail, in enough runs, the breaker opens: for as long as the provider asks (`Retry-After`), at
least for the cool-down, which doubles up to its limit. One run adds at most its share of the calls that are needed, so
that one broken run opens nothing. Half-open: the callers that asked first get a permit each, at most one a run and at
most `probes` in an *episode*. The first answer, of any call, closes the breaker; if all calls with permits fail, it
opens for longer. If they bring no outcome in time, others get permits in a new episode; if no one asks, the breaker
closes, as there is nothing to hold back.

The states are those of M. Nygard, "Release It!" (2007); the share over a minimum of calls is that of resilience4j; the
budget of retries is that of Finagle (A. Marius, "Retry Budgets").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from streamproc.core.accounts import AMOUNT_MAX, SOURCES_MAX, decoded
from streamproc.model.provider_state import ProviderState, StateName
from streamproc.model.wire_parts import Whole

BREAKER_VERSION: Final = 1
HOPS: Final = 12  # of a window
RUNS_MAX: Final = 64  # failing runs of a window that are told apart: four times what opens a breaker by default
ASKS_MAX: Final = 256  # callers that wait for a permit and are remembered; any other asks again
# Callers that wait ask again after ASK_AGAIN_MS. Who has not is gone, and gets no permit.
ASK_AGAIN_MS: Final = 20_000
ASK_KEEP_MS: Final = 45_000
LEVELS_MAX: Final = 20  # doublings of the cool-down

CLOSED: Final[StateName] = "closed"
OPEN: Final[StateName] = "open"
HALF_OPEN: Final[StateName] = "half_open"

OK: Final = 0  # outcomes: the provider answered, if only to say that the request is wrong
UNAVAILABLE: Final = 1  # it did not: 429, 5xx, a time-out
ASK: Final = 2  # a caller waits for a permit


# Stored integers, so bounded that no sum of them exceeds what can be stored.
Amount = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
AskId = Annotated[str, msgspec.Meta(max_length=128)]
Why = Annotated[str, msgspec.Meta(max_length=256)]


class ProviderRules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of all breakers, as the policy's section `providers` sets them."""

    enabled: bool = True
    window_ms: int = 60_000
    percent: int = 50  # of the calls in the window that must fail
    calls_min: int = 20
    runs_min: int = 3
    cool_down_ms: int = 15_000
    cool_down_max_ms: int = 300_000
    retry_after_max_ms: int = 900_000
    probes: int = 2
    probe_ms: int = 60_000  # for the outcome of a probe
    retries_percent: int = 20  # of the calls in the window; 0: no budget
    retries_min: int = 10
    spread_ms: int = 5_000  # over which callers come back

    @property
    def run_max(self) -> int:
        """How many failures of one run count in a window."""
        return -(-self.calls_min // self.runs_min)


class CallEntry(msgspec.Struct, array_like=True):
    """Calls of a run (or, if all were answered, of several) with one outcome, from one partition, in log order."""

    last: Whole  # offset of the last event
    at_ms: Moment
    outcome: Annotated[int, msgspec.Meta(ge=OK, le=ASK)]
    count: Amount = 1
    run: Whole = 0  # hash of the run that failed
    retry_after_ms: Amount = 0
    duration_ms: Amount = 0  # of all of them
    ask: AskId = ""  # id of a caller that waits
    why: Why = ""  # such as 429; of a failure


class CallStatement(msgspec.Struct, array_like=True):
    """A record of the spend topic: calls of one provider and model from one partition of the turns topic."""

    version: int
    account: str  # `provider:NAME`
    source: Whole  # the partition
    entries: list[CallEntry]
    tick_ms: Moment = 0  # no call, but the time has come: log time


class CallHop(msgspec.Struct, array_like=True):
    """The calls in one hop of the window."""

    number: Moment
    calls: Moment = 0
    failures: Moment = 0
    duration_ms: Moment = 0
    runs: dict[Whole, Moment] = {}  # failures by run


class Breaker(msgspec.Struct, array_like=True):
    """The state of a breaker, stored by position."""

    version: int = BREAKER_VERSION
    state: StateName = CLOSED
    at_ms: Moment = 0  # log time of the last entry
    since_ms: Moment = 0  # log time of the last change
    until_ms: Moment = 0
    # When an open breaker lets probes through, and when these must have brought an outcome; closed: 0.
    number: Moment = 0  # changes so far
    level: Annotated[int, msgspec.Meta(ge=0, le=LEVELS_MAX)] = 0  # openings in a row without a long time closed
    episode: Moment = 0  # half-open episodes so far
    permits: dict[AskId, Whole] = {}  # asks that got a permit in this episode, with their runs
    failed: list[AskId] = []  # those of them whose call failed
    asks: dict[AskId, Annotated[list[Whole], msgspec.Meta(min_length=2, max_length=2)]] = {}
    # Callers that wait, the oldest first: [log time at which they asked last, run].
    retries_left: bool = True
    hops: list[CallHop] = []  # oldest first
    retry_at_ms: dict[Whole, Moment] = {}  # by failing run: the log time until which the provider asks it to wait
    why: Why = ""  # what failed last, such as 429
    applied: dict[Whole, Whole] = {}  # by source partition: the last offset booked
    offset: int = -1  # of the last statement applied; -1: statements are not on Kafka

    @property
    def held_since_ms(self) -> int:
        """Since when it holds calls back (log time); 0: it holds none."""
        return 0 if self.state == CLOSED and self.retries_left else max(1, self.since_ms)


class _Window:
    """What the window of a breaker adds up to, under some rules."""

    def __init__(self, breaker: Breaker, rules: ProviderRules) -> None:
        self.calls = self.failures = self.duration_ms = rest = 0
        by_run: dict[int, int] = {}
        for hop in breaker.hops:
            self.calls += hop.calls
            self.failures += hop.failures
            self.duration_ms += hop.duration_ms
            rest += hop.failures
            for run, count in hop.runs.items():
                by_run[run] = by_run.get(run, 0) + count
                rest -= count
        self.runs = len(by_run)
        self.counted = rest + sum(min(count, rules.run_max) for count in by_run.values())
        """Failures, of each run only as many as count."""
        self.retries = sum(min(count, rules.run_max) - 1 for count in by_run.values())
        """Failures of runs that had failed before: retries that did not help. Of each run as many as count."""

    def opens(self, rules: ProviderRules) -> bool:
        """Whether they open a closed breaker."""
        calls = self.calls - self.failures + self.counted
        return self.runs >= rules.runs_min and calls >= rules.calls_min and self.counted * 100 >= rules.percent * calls

    def allows_retries(self, rules: ProviderRules) -> bool:
        """Whether the budget of retries has something left."""
        share = rules.retries_percent * self.calls // 100
        used_up = self.retries > max(rules.retries_min, share) and self.runs >= rules.runs_min
        return not (rules.retries_percent and used_up)


def step_provider(breaker: Breaker, rules: ProviderRules, statement: CallStatement) -> list[ProviderState]:
    """Book calls, and return each new state of the breaker, the latest last.

    Entries that were booked before are skipped, so statements may come twice or divided differently.
    """
    name, found = statement.account.partition(":")[2], list[ProviderState]()
    booked = last = breaker.applied.get(statement.source, -1)
    for entry in statement.entries:
        if entry.last <= last:
            continue
        count = min(entry.count, entry.last - last)  # of several, some may be booked
        if count < entry.count:
            entry.count, entry.duration_ms = count, entry.duration_ms * count // entry.count
        last = entry.last
        found += (state_of(breaker, rules, name) for _ in _apply(breaker, rules, entry))
    if statement.tick_ms:
        found += (state_of(breaker, rules, name) for _ in _pass_time(breaker, rules, statement.tick_ms))
    if last != booked:
        breaker.applied.pop(statement.source, None)
        breaker.applied[statement.source] = last
        if len(breaker.applied) > SOURCES_MAX:
            del breaker.applied[next(iter(breaker.applied))]
    return found


def due_ms(breaker: Breaker, rules: ProviderRules) -> int:
    """Return the log time at which the breaker changes without a call; 0: not before the next one."""
    if breaker.state != CLOSED:
        return breaker.until_ms
    return 0 if breaker.retries_left else breaker.at_ms + _hop_ms(rules)


def state_of(breaker: Breaker, rules: ProviderRules, name: str) -> ProviderState:
    """Return the state of a breaker as it is published."""
    window = _Window(breaker, rules)
    return ProviderState(
        provider=name,
        state=breaker.state,
        number=breaker.number,
        at_ms=breaker.at_ms,
        since_ms=breaker.since_ms,
        until_ms=breaker.until_ms,
        reason=_reason(breaker, window, rules),
        why=breaker.why,
        calls=window.calls,
        failures=window.failures,
        runs=window.runs,
        mean_ms=window.duration_ms // max(1, window.calls),
        level=breaker.level,
        episode=breaker.episode,
        permits=list(breaker.permits),
        waiting=len(breaker.asks),
        retries_left=breaker.retries_left,
        spread_ms=rules.spread_ms,
    )


# One entry. Each function yields once for each change, when the breaker has it.


def _apply(breaker: Breaker, rules: ProviderRules, entry: CallEntry) -> Iterator[None]:
    yield from _pass_time(breaker, rules, entry.at_ms)
    if entry.outcome == ASK:
        yield from _asked(breaker, rules, entry)
        return
    if breaker.number and entry.at_ms < breaker.since_ms:
        return  # of before the last change: it says nothing about now
    _count(breaker, rules, entry)
    if breaker.state == HALF_OPEN:
        if entry.outcome == OK:
            yield from _close(breaker, breaker.at_ms)
        elif entry.ask in breaker.permits and entry.ask not in breaker.failed:
            breaker.failed.append(entry.ask)
            if len(breaker.failed) == len(breaker.permits):
                yield from _open(breaker, rules)
    elif breaker.state == CLOSED and (entry.outcome == UNAVAILABLE or not breaker.retries_left):
        window = _Window(breaker, rules)
        if entry.outcome == UNAVAILABLE and window.opens(rules):
            yield from _open(breaker, rules)
        else:
            yield from _check_retries(breaker, window, rules)


def _pass_time(breaker: Breaker, rules: ProviderRules, at_ms: int) -> Iterator[None]:
    """Make the changes that time makes until `at_ms`, each at its own time."""
    while breaker.state != CLOSED and breaker.until_ms <= at_ms:
        now_ms = breaker.until_ms
        breaker.asks = {ask: asked for ask, asked in breaker.asks.items() if asked[0] + ASK_KEEP_MS > now_ms}
        if breaker.state == HALF_OPEN and not breaker.asks:
            yield from _close(breaker, now_ms)
            break
        _change(breaker, HALF_OPEN, now_ms, now_ms + rules.probe_ms)
        breaker.episode += 1
        breaker.permits, breaker.failed = {}, []
        _permit(breaker, rules)
        yield
    breaker.at_ms = max(breaker.at_ms, at_ms)
    oldest = breaker.at_ms // _hop_ms(rules) - HOPS
    while breaker.hops and breaker.hops[0].number <= oldest:
        del breaker.hops[0]
    if not breaker.hops:
        breaker.retry_at_ms.clear()
    if not breaker.retries_left and breaker.state == CLOSED:
        yield from _check_retries(breaker, _Window(breaker, rules), rules)


def _asked(breaker: Breaker, rules: ProviderRules, entry: CallEntry) -> Iterator[None]:
    """Remember who waits; in a half-open episode that has permits left, give one."""
    if breaker.state == CLOSED or entry.ask in breaker.permits:
        return
    known = breaker.asks.get(entry.ask, [0, 0])
    breaker.asks[entry.ask] = [max(entry.at_ms, known[0]), entry.run]  # one that asks again keeps its place
    if len(breaker.asks) > ASKS_MAX:
        del breaker.asks[next(iter(breaker.asks))]
    if breaker.state == HALF_OPEN and _permit(breaker, rules):
        breaker.number += 1
        yield


def _permit(breaker: Breaker, rules: ProviderRules) -> bool:
    """Give permits to who asked first, one a run; return whether there were any."""
    before = len(breaker.permits)
    for ask, (_, run) in list(breaker.asks.items()):
        if len(breaker.permits) >= rules.probes:
            break
        if run not in breaker.permits.values():
            breaker.permits[ask] = run
            del breaker.asks[ask]
    return len(breaker.permits) > before


def _count(breaker: Breaker, rules: ProviderRules, entry: CallEntry) -> None:
    number = max(entry.at_ms, breaker.at_ms - rules.window_ms + 1) // _hop_ms(rules)
    index = len(breaker.hops)
    while index and breaker.hops[index - 1].number > number:
        index -= 1
    if not index or breaker.hops[index - 1].number != number:
        breaker.hops.insert(index, CallHop(number, runs={}))
        index += 1
    hop = breaker.hops[index - 1]
    hop.calls = min(hop.calls + entry.count, AMOUNT_MAX)
    hop.duration_ms = min(hop.duration_ms + entry.duration_ms, AMOUNT_MAX)
    if entry.outcome != UNAVAILABLE:
        return
    hop.failures = min(hop.failures + entry.count, AMOUNT_MAX)
    breaker.why = entry.why or breaker.why
    if entry.run in hop.runs or len({run for one in breaker.hops for run in one.runs} | {entry.run}) <= RUNS_MAX:
        hop.runs[entry.run] = min(hop.runs.get(entry.run, 0) + entry.count, AMOUNT_MAX)
        if entry.retry_after_ms:
            until_ms = entry.at_ms + min(entry.retry_after_ms, rules.retry_after_max_ms)
            breaker.retry_at_ms[entry.run] = max(until_ms, breaker.retry_at_ms.pop(entry.run, 0))
            if len(breaker.retry_at_ms) > RUNS_MAX:
                del breaker.retry_at_ms[next(iter(breaker.retry_at_ms))]


def _open(breaker: Breaker, rules: ProviderRules) -> Iterator[None]:
    if breaker.state == CLOSED and breaker.at_ms - breaker.since_ms > rules.cool_down_max_ms:
        breaker.level = 0  # it was closed for long: this is another outage
    breaker.level = min(breaker.level + 1, LEVELS_MAX)
    cool_down_ms = min(rules.cool_down_ms << (breaker.level - 1), rules.cool_down_max_ms)
    _change(breaker, OPEN, breaker.at_ms, max(breaker.at_ms + cool_down_ms, _retry_at_ms(breaker, rules)))
    breaker.permits, breaker.failed = {}, []
    yield


def _retry_at_ms(breaker: Breaker, rules: ProviderRules) -> int:
    """Return until when the provider asks to wait: the probes, or as many runs as it takes to open. A run that is told
    to wait for longer than others may be told so for a reason of its own."""
    if breaker.permits:
        return max(breaker.retry_at_ms.get(run, 0) for run in breaker.permits.values())
    latest = sorted(breaker.retry_at_ms.values(), reverse=True)
    return latest[rules.runs_min - 1] if len(latest) >= rules.runs_min else 0


def _close(breaker: Breaker, now_ms: int) -> Iterator[None]:
    _change(breaker, CLOSED, now_ms, 0)
    breaker.permits, breaker.failed, breaker.asks, breaker.hops, breaker.retry_at_ms = {}, [], {}, [], {}
    breaker.retries_left = True
    yield


def _change(breaker: Breaker, state: StateName, now_ms: int, until_ms: int) -> None:
    breaker.state, breaker.until_ms = state, until_ms
    breaker.since_ms = max(breaker.since_ms, now_ms)
    breaker.at_ms = max(breaker.at_ms, now_ms)
    breaker.number += 1


def _check_retries(breaker: Breaker, window: _Window, rules: ProviderRules) -> Iterator[None]:
    allowed = window.allows_retries(rules)
    if allowed != breaker.retries_left:
        breaker.retries_left = allowed
        breaker.number += 1
        yield


def _hop_ms(rules: ProviderRules) -> int:
    return max(1, rules.window_ms // HOPS)


def _reason(breaker: Breaker, window: _Window, rules: ProviderRules) -> str:
    failed = f"{window.failures} of {window.calls} calls of {window.runs} runs failed in {rules.window_ms // 1000} s"
    if breaker.state == OPEN:
        return f"{failed}{f', the last with {breaker.why}' if breaker.why else ''}"
    if breaker.state == HALF_OPEN:
        return f"{len(breaker.permits)} of {rules.probes} probes are under way"
    return "calls are answered" if breaker.retries_left else f"{failed}: the fleet's budget of retries is used up"


write_calls: Final = msgspec.json.Encoder().encode
dump_breaker: Final = msgspec.msgpack.Encoder().encode
_read_calls: Final = msgspec.json.Decoder(CallStatement).decode
_load_breaker: Final = msgspec.msgpack.Decoder(Breaker).decode


def read_calls(raw: bytes) -> CallStatement:
    """Read a statement of calls from the spend topic. Raises `msgspec.DecodeError` for anything else."""
    return decoded(_read_calls, raw)


def load_breaker(raw: bytes) -> Breaker:
    """Read a stored breaker. Raises `msgspec.DecodeError` for anything that was not written for one."""
    return decoded(_load_breaker, raw)
