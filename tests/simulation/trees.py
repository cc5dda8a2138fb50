"""Trees of agents that are stopped while they grow: `python -m tests.simulation.trees --schedules 10000 --seed 1`.

The real processors of a worker read logs of several partitions, each at its own pace, and crash: then a partition is
restored from what was stored, and reads again from what was committed. Agents give birth until they learn that they are
halted, also after the stop. In the end every run of the session is halted, and no run of the other one is.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from aiokafka.partitioner import murmur2

from streamproc.core.states import new_states
from streamproc.fleet.state import Fleet, new_command
from streamproc.kafka.partitioning import EVERYWHERE
from streamproc.model.controls import read_control
from streamproc.model.wire import Event, OperatorStop, RunStarted, Turn, encode
from streamproc.policy import Policy, load_policy
from streamproc.settings import load_settings
from streamproc.worker.accounts_table import AccountPartition
from streamproc.worker.fleet_commands import FleetCommands
from streamproc.worker.publishing import BY_KEY
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.spend import AccountProcessor
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.worker.records import NOON_MS, Record

PARTITIONS: Final = 3
BIRTHS_MAX: Final = 40  # of a session: then its agents only take turns
STEPS_MAX: Final = 20_000
OPTIONS: Final = {"dead_letter_bytes": 4_096, "version": "1"}
LIMITED: Final = {"budgets": {"maxSessionRuns": 8}, "detectors": {"TREE001": {"halt_refusals": 3}}}
POLICIES: Final = {
    "kill": load_policy("standard"),
    "stop": load_policy({"children": "stop"}),
    "limit": load_policy({"workflows": {"limited": LIMITED}}),
}  # fmt: skip
SETTINGS: Final = load_settings()


def run_to_end(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        while True:
            work.send(None)
    except StopIteration:
        return


@dataclass
class Part:
    """One partition of a topic: its log, who processes it, and what is stored of that."""

    topic: str
    number: int
    log: list[Record] = field(default_factory=list)
    position: int = 0
    committed: int = 0
    stored: dict[bytes, tuple[bytes | None, int]] = field(default_factory=dict)
    written: int = 0
    table: Any = None
    processor: Any = None
    commands: Any = None


class Schedule:
    """One schedule. Everything in it follows from its seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.kind = self.dice.choice(list(POLICIES))
        self.policy: Policy = POLICIES[self.kind]
        self.clock_ms = NOON_MS
        self.turns = [Part("turns", n) for n in range(PARTITIONS)]
        self.spend = [Part("spend", n) for n in range(PARTITIONS)]
        self.agents: dict[str, str] = {}  # that work, with their sessions
        self.born: dict[str, str] = {}
        self.parents: dict[str, str] = {}
        self.seen: list[str] = []  # runs whose halt is on the control topic
        self.ids = itertools.count()
        self.command: Any = None
        for part in (*self.turns, *self.spend):
            self.begin(part)

    # The worker of a partition.

    def begin(self, part: Part) -> None:
        """Start the worker of a partition, from what is stored."""
        part.position = part.committed
        if part.topic == "spend":
            part.table = AccountPartition(part.number, lambda: 0)
            part.processor = AccountProcessor("spend", **OPTIONS)
        else:
            publisher = SimpleNamespace(publish=lambda number, outgoing: self.publish(part, outgoing))
            part.commands = FleetCommands(SETTINGS, publisher, EVERYWHERE, **OPTIONS)
            part.commands.caught_up.set()
            limits = RunLimits()
            limits.states = new_states()
            part.table = Runs(part.number, limits)
            part.commands.runs_of = lambda _number: part.table
            engine = self.policy.engine()
            limits.states = engine.states
            part.table = Runs(part.number, limits)
            part.processor = TurnProcessor(
                engine, "turns", event_bytes_max=65_536, fleet_commands=part.commands, **OPTIONS
            )
        for key, (raw, offset) in part.stored.items():
            part.table.restore(key, raw, offset)
        if self.command is not None and self.dice.random() < 0.5:
            self.hear(part)

    async def publish(self, part: Part, outgoing: list[Any]) -> None:
        self.send(part, outgoing)

    def send(self, part: Part, outgoing: list[Any]) -> None:
        for one in outgoing:
            if one.topic == "control":
                control = read_control(one.value)
                if control.severity == "halt":
                    self.seen.append(control.run_id)
            elif one.topic in ("turns", "spend"):
                number = part.number if one.partition is None or one.partition < 0 else one.partition
                if one.partition == BY_KEY:
                    number = home(one.key)
                self.append((self.turns if one.topic == "turns" else self.spend)[number], one.key, one.value)

    def append(self, part: Part, key: bytes, value: bytes) -> None:
        self.clock_ms += self.dice.randrange(50)
        part.log.append(Record(len(part.log), key, value, self.clock_ms, part.number))

    def work(self, part: Part) -> None:
        """Process some records, and store, now and then."""
        records = part.log[part.position : part.position + self.dice.choice((1, 2, 5, 50))]
        if records:
            self.send(part, part.processor.accept(part.table, records))
            part.position = records[-1].offset + 1
        if self.dice.random() < 0.3:
            changes = part.table.take()
            for key, raw in changes:
                part.written += 1
                part.stored[key] = raw, part.written
            part.table.stored(changes, part.written)
            part.committed = part.position

    def hear(self, part: Part) -> None:
        """The worker of a partition of the turns topic learns of the kill."""
        if part.commands is not None and self.command is not None and not part.commands.fleet.sessions:
            part.commands.fleet.apply(self.command)
            run_to_end(part.commands._stop_known(part.number))

    # The agents.

    def publish_event(self, event: Event) -> None:
        event.event_id = f"e{next(self.ids)}"
        key = event.run_id.encode()
        self.append(self.turns[home(key)], key, encode(event))

    def give_birth(self, session: str, parent: str) -> None:
        run_id = f"{session}-{next(self.ids)}"
        self.born[run_id] = self.agents[run_id] = session
        self.parents[run_id] = parent
        workflow = "limited" if session == "s" else ""
        self.publish_event(RunStarted(w=1, run_id=run_id, session_id=session, parent_run_id=parent, workflow=workflow))

    def act(self, run_id: str) -> None:
        """An agent gives birth, or takes a turn."""
        session = self.agents[run_id]
        count = sum(1 for one in self.born.values() if one == session)
        if count < BIRTHS_MAX and self.dice.random() < 0.5:
            self.give_birth(session, run_id)
        else:
            self.publish_event(Turn(w=1, run_id=run_id, node="agent"))

    # The schedule.

    def play(self) -> str:
        """Play it; return what is wrong, or nothing."""
        for session in ("s", "honest"):
            self.give_birth(session, "")
        root = next(iter(self.agents))
        stop_after = self.dice.randrange(10, 150)
        for step in range(STEPS_MAX):
            if step == stop_after and self.kind == "kill":
                self.command = new_command(Fleet(), "STOP", "session:s", "ada", "", now_ms=self.clock_ms)
            elif step == stop_after and self.kind == "stop":
                self.publish_event(OperatorStop(w=1, run_id=root))
            self.one_step()
            if step > stop_after + 20 and "s" not in self.agents.values() and self.drained():
                return self.verdict()
        return f"{sum(one == 's' for one in self.agents.values())} agents still work after {STEPS_MAX} steps"

    def one_step(self) -> None:
        dice, draw = self.dice, self.dice.random()
        parts = (*self.turns, *self.spend)
        working = [run_id for run_id, session in self.agents.items() if session == "s"]
        if draw < 0.3 and self.agents:
            self.act(dice.choice(working if working and dice.random() < 0.8 else list(self.agents)))
        elif draw < 0.8:
            self.work(dice.choice(parts))
        elif draw < 0.88 and self.seen:
            self.agents.pop(self.seen.pop(dice.randrange(len(self.seen))), None)  # its guard stops it
        elif draw < 0.95:
            self.hear(dice.choice(parts))
        elif draw < 0.97:
            self.begin(dice.choice(parts))

    def drained(self) -> bool:
        return all(part.position == len(part.log) for part in (*self.turns, *self.spend))

    def verdict(self) -> str:
        halted = {
            key.decode()
            for part in self.turns for key in part.table.known()
            if (state := part.table.peek(key)) is not None and state.halted >= 0
        }  # fmt: skip
        survivors = [run_id for run_id, session in self.born.items() if session == "s" and run_id not in halted]
        touched = [run_id for run_id in halted if self.born.get(run_id) != "s"]
        if survivors or touched:
            return f"survivors {survivors}, honest runs that were halted {touched}"
        return ""


def home(key: bytes) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % PARTITIONS


def main() -> int:
    """Return 0 if no schedule fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.trees", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedules", type=int, default=10_000)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    births = 0
    for seed in range(options.seed, options.seed + options.schedules):
        schedule = Schedule(seed)
        wrong = schedule.play()
        births += len(schedule.born)
        if wrong:
            sys.stdout.write(f"seed {seed} ({schedule.kind}): {wrong}\n")
            return 1
    sys.stdout.write(f"{options.schedules} schedules, {births} births: 0 survivors, 0 honest runs halted\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
