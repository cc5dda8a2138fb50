"""deploy/Dockerfile, parsed."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
PINNED = r"@sha256:[0-9a-f]{64}$"


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(instruction, arguments) in order, without comments and with continued lines joined."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    split = (line.split(maxsplit=1) for line in joined.splitlines())
    return [(word.upper(), arguments) for word, arguments in split]


def final_stage() -> dict[str, str]:
    """The last value of each instruction in the final stage."""
    stages: list[dict[str, str]] = []
    for word, arguments in instructions(DOCKERFILE):
        if word == "FROM":
            stages.append({})
        stages[-1][word] = arguments
    return stages[-1]
