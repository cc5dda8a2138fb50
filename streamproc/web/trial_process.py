"""Tries a policy on recorded runs, in a process of its own: it takes a whole processor, and can be ended at any time.

    python -m streamproc.web.trial_process FOLDER

reads `FOLDER/trial.json` (a `Trial`) and prints a `TrialResult` as JSON.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from aiokafka import TopicPartition

from streamproc.errors import StreamprocError
from streamproc.kafka.reading import log_time, offsets_at, open_consumer, open_topic
from streamproc.model.wire import BudgetReached, Feedback, RunFinished, Turn
from streamproc.policy import load_policy
from streamproc.replay.backtest import Candidate, backtest
from streamproc.replay.comparison import compared
from streamproc.replay.log import LogEvents
from streamproc.replay.outcomes import RunLabel, with_feedback
from streamproc.replay.spool import Spool, in_time_order
from streamproc.settings import Settings, load_settings

TURNS_MAX: Final = 100_000
SUCCEEDED: Final = frozenset({"succeeded", "success", "solved"})  # what a run says of itself when it finishes
TRIAL_FILE: Final = "trial.json"


class Trial(msgspec.Struct, kw_only=True):
    """What to try: the runs, the policy in force, and the changed one, a file of the folder."""

    run_ids: list[str]
    since_ms: int = 0  # earlier records are not read
    in_force: str
    changed: str


class TrialResult(msgspec.Struct, kw_only=True):
    """How two policies compare, each as `ComparedPolicy.as_json`. `problem`: why they could not be compared."""

    policies: list[dict[str, Any]] = []
    limited: bool = False  # later turns were left out
    problem: str = ""


async def run_trial(settings: Settings, trial: Trial, folder: Path) -> TrialResult:
    """Read the runs from the turns topic, and step both policies over them. Raises `StreamprocError`."""
    spool, labels, limited = await _read(settings, trial, folder)
    if not spool.events:
        return TrialResult(problem="The turns topic holds no turn of these runs any more.")
    candidates = [Candidate(trial.in_force), Candidate(trial.changed)]
    results = backtest(spool.path, spool.runs, candidates, events=spool.events, processes=1)
    refs = [(candidate.load().ref, candidate.settings) for candidate in candidates]
    turns = {one.run_id: one.turns for one in spool.runs}
    return TrialResult(policies=[one.as_json() for one in compared(refs, results, turns, labels)], limited=limited)


async def _read(settings: Settings, trial: Trial, folder: Path) -> tuple[Spool, dict[str, RunLabel], bool]:
    """Write the events of the runs to the folder, in the order of their times: accounts are shared by partitions."""
    wanted, events = set(trial.run_ids), LogEvents.of(settings)
    feedback, labels, left = list[Feedback](), dict[str, RunLabel](), TURNS_MAX
    spools: dict[int, Spool] = {}
    begins = await _begins(settings, trial.since_ms)
    async with open_topic(settings, "turns") as reader:
        reader.extents = {
            number: extent._replace(begin=max(extent.begin, begins.get(number, 0)))
            for number, extent in reader.extents.items()
        }
        async for batch in reader.batches():
            spool = spools.get(batch[0].partition)
            if spool is None:
                spool = spools[batch[0].partition] = Spool(folder / f"partition-{batch[0].partition}").__enter__()
            for record in batch:
                event = events.read(record) if record.key is not None and _text(record.key) in wanted else None
                if event is None or type(event) is BudgetReached:  # of the policy then; accounts are booked again
                    continue
                if type(event) is Feedback:
                    feedback.append(event)
                    continue
                if type(event) is RunFinished and event.status.lower() in SUCCEEDED:
                    labels[event.run_id] = RunLabel("solved")
                left -= type(event) is Turn
                if left >= 0:
                    spool.add(event, log_time(record))
    for one in spools.values():
        one.__exit__(None, None, None)
    with Spool(folder / "events") as spool:
        for _, event, at_ms in in_time_order(one.path for _, one in sorted(spools.items())):
            spool.add(event, at_ms)
    return spool, with_feedback(labels, feedback), left < 0


async def _begins(settings: Settings, since_ms: int) -> dict[int, int]:
    """Return the offset of each partition of the turns topic at a time; nothing for the beginning."""
    if not since_ms:
        return {}
    async with open_topic(settings, "turns") as reader:
        places = [TopicPartition(settings.topic("turns"), number) for number in reader.extents]
    async with open_consumer(settings) as consumer:
        offsets = await offsets_at(consumer, places, since_ms)
    return {place.partition: offset for place, offset in offsets.items()}


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def main(folder: Path) -> None:
    """Run the trial of a folder, and print its result."""
    trial = msgspec.json.decode((folder / TRIAL_FILE).read_bytes(), type=Trial)
    try:
        load_policy(trial.changed)
        result = asyncio.run(run_trial(load_settings(), trial, folder))
    except StreamprocError as error:
        result = TrialResult(problem=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
