"""The topics of a small deployment in memory, written by the worker's own code, for a read model to read."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from aiokafka import ConsumerRecord
from aiokafka.partitioner import murmur2

from streamproc.core.accounts import load_account
from streamproc.fleet.record_signing import LogPlace, RecordSigner
from streamproc.model import wire
from streamproc.policy import load_policy
from streamproc.read_model.model import ReadModel
from streamproc.worker.accounts_table import AccountPartition
from streamproc.worker.publishing import BY_KEY
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.spend import AccountProcessor
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.worker.running import said

PARTITIONS = 2
NOON_MS = 1_700_000_000_000
PREFIX = "streamproc"
Log = dict[tuple[str, int], list[ConsumerRecord]]


class Deployment:
    """One worker and its topics. Every record that is written gets the next millisecond of the broker's clock."""

    def __init__(self, policy: str = "standard", signer: RecordSigner | None = None) -> None:
        self.log: Log = defaultdict(list)
        self.now_ms = NOON_MS
        self._signer = signer
        engine = load_policy(policy).engine()
        self._turns = TurnProcessor(
            engine, f"{PREFIX}.turns", event_bytes_max=9_000, dead_letter_bytes=999, version="1"
        )
        self._runs = [Runs(number, RunLimits()) for number in range(PARTITIONS)]
        self._spend = AccountProcessor(f"{PREFIX}.spend", version="1", dead_letter_bytes=999)
        self._accounts = [AccountPartition(number, lambda: self.now_ms) for number in range(PARTITIONS)]

    def write(
        self, role: str, key: bytes | None, value: bytes | None, *, partition: int | None = None, headers: Any = ()
    ) -> ConsumerRecord:
        """Append a record to a topic."""
        self.now_ms += 1
        number = (murmur2(key or b"") & 0x7FFFFFFF) % PARTITIONS if partition is None else partition
        place = self.log[role, number]
        record = ConsumerRecord(
            f"{PREFIX}.{role}", number, len(place), self.now_ms, 1, key, value, None, 0, 0, tuple(headers)
        )
        place.append(record)
        return record

    def send(self, event: wire.Event) -> None:
        """Publish an event, and let the worker have it."""
        self.turn(event.run_id.encode(), wire.encode(event))

    def turn(self, key: bytes | None, value: bytes | None) -> None:
        """Publish a record of the turns topic, and let the worker have it."""
        waiting = [self.write("turns", key, value)]
        while waiting:
            record = waiting.pop(0)
            for one in self._turns.accept(self._runs[record.partition], [record]):
                waiting += self._publish(one, record.partition)

    def _publish(self, one: Any, own: int) -> list[ConsumerRecord]:
        by_key = one.partition == BY_KEY or one.topic in ("spend", "dead-letter")
        headers = list(one.headers)
        if self._signer is not None and one.topic in ("control", "runs"):
            place = LogPlace(own, one.offset, self.now_ms + 1)
            headers.append(self._signer.sign(one.topic, one.key, one.value, place))
        partition = None if by_key else own if one.partition is None else one.partition
        record = self.write(one.topic, one.key, one.value, partition=partition, headers=headers)
        if one.topic == "turns":
            return [record]
        if one.topic != "spend":
            return []
        accounts = self._accounts[record.partition]
        outgoing = self._spend.accept(accounts, [record])
        for key, raw in accounts.take():
            self.write("accounts", key, raw, partition=record.partition)
        return [found for reached in outgoing for found in self._publish(reached, own)]

    def account(self, name: str) -> Any:
        """The state of an account, as its changelog has it."""
        found = [
            one for (role, _), log in self.log.items() if role == "accounts" for one in log if one.key == name.encode()
        ]
        return load_account(found[-1].value)

    def records(self, role: str) -> list[ConsumerRecord]:
        """All records of a topic."""
        return [one for (name, _), log in sorted(self.log.items()) if name == role for one in log]


def filled(model: ReadModel, deployment: Deployment) -> ReadModel:
    """Apply all records of the deployment to a model, and return it."""
    for (role, _), records in deployment.log.items():
        model.apply(role, records)
    return model


def turn(run_id: str, number: int, text: str = "", **fields: Any) -> wire.Turn:
    """A turn that says this, or something new."""
    output = said(text or f"{run_id} has come to step {number}.")
    return wire.Turn(w=1, run_id=run_id, node="coder", event_id=f"{run_id}/{number}", output=output, **fields)


def spend(tokens: int, cost: int | None = None) -> wire.Usage:
    """What a turn has used."""
    return wire.Usage(total_tokens=tokens, cost_usd_micro=cost)
