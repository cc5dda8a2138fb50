"""The stuck example of every detector, as one log of many runs."""

from __future__ import annotations

from typing import Any, Final

import orjson

from streamproc.detectors import MODULES
from streamproc.detectors.base import Example
from streamproc.model.budgets import find_budget

START_MS: Final = 1_767_225_600_000
CODES: Final = tuple(sorted(module.DETECTOR.code for module in MODULES))


def stuck() -> dict[str, tuple[str, Example]]:
    """Return code and example of each run, by run id."""
    return {
        f"{module.DETECTOR.code}-{number}": (module.DETECTOR.code, example)
        for module in MODULES
        for number, example in enumerate(module.STUCK)
    }


def policy() -> dict[str, Any]:
    """Return a policy for all of the examples. Budgets that no run may declare hold for all; settings of detectors for
    the example's own workflow, because another example needs the usual ones."""
    settings: dict[str, Any] = {"presets": ["standard"], "budgets": {}, "workflows": {}}
    for run_id, (_code, example) in stuck().items():
        for section, values in (example.policy or {}).items():
            if section != "budgets" or all(find_budget(name).declarable for name in values):
                settings["workflows"].setdefault(run_id, {})[section] = values
            else:
                settings[section] |= values
    return settings


def lines(runs: dict[str, tuple[str, Example]]) -> list[bytes]:
    """Return all runs as raw JSONL, one after another. Without times, turns are a second apart."""
    return [
        orjson.dumps(timed(run_id, number, raw))
        for run_id, (_code, example) in runs.items()
        for number, raw in enumerate(example.turns)
    ]


def timed(run_id: str, number: int, raw: dict[str, Any]) -> dict[str, Any]:
    """Return a raw event with run id, event id, workflow and time. Other runs of the example have ids of their own."""
    event_id, at = f"{run_id}/{number}", START_MS + number * 1_000
    own = {name: f"{run_id}/{raw[name]}" for name in ("run_id", "parent_run_id", "session_id") if raw.get(name)}
    return {"run_id": run_id, "event_id": event_id, "workflow": run_id, "at": at, **raw, **own}


def example_of(run_id: str) -> str:
    """Return the example that a run belongs to."""
    return run_id.partition("/")[0]
