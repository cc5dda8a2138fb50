"""The stuck example of every detector, as one log of many runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from streamproc.detectors import MODULES

if TYPE_CHECKING:
    from streamproc.detectors.base import Example

START_MS: Final = 1_767_225_600_000
CODES: Final = tuple(sorted(module.DETECTOR.code for module in MODULES))


def stuck() -> dict[str, tuple[str, Example]]:
    """Code and example of each run, by the run's name."""
    return {
        f"{module.DETECTOR.code}-{number}": (module.DETECTOR.code, example)
        for module in MODULES
        for number, example in enumerate(module.STUCK)
    }


def policy() -> dict[str, Any]:
    """What a policy must say for all of the examples: some are about budgets that no run may declare."""
    said: dict[str, Any] = {"presets": ["standard"]}
    for _code, example in stuck().values():
        for section, values in (example.policy or {}).items():
            said[section] = said.get(section, {}) | values
    return said


def lines(runs: dict[str, tuple[str, Example]]) -> list[bytes]:
    """All runs as raw JSONL, one run after the other. An example that gives no times is a second a turn."""
    return [
        orjson.dumps(timed(run_id, number, raw))
        for run_id, (_code, example) in runs.items()
        for number, raw in enumerate(example.turns)
    ]


def timed(run_id: str, number: int, raw: dict[str, Any]) -> dict[str, Any]:
    """A raw event as a file has it."""
    return {"run_id": run_id, "event_id": f"{run_id}/{number}", "at": START_MS + number * 1_000, **raw}
