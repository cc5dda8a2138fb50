"""A deliberation that ends when its proposals mean the same, by an embedding function that needs no model.

    python examples/deliberation/meaning.py

In production, give `TurnPublisher(embed=...)` a function that asks your embedding model.
"""

from __future__ import annotations

import re
import zlib

from streamproc import Monitor

DIMENSIONS = 256
PROPOSALS = [
    "Open a second office in Lyon, because the rents are low and two customers are there.",
    "Wait a year: the team is too small to split, and no one wants to move.",
    "Hire three people in Lyon first, let them work from home, and open the office when they are five.",
    "Hire three people in Lyon first, let them work from home, and open an office once they are five.",
]


def embed(text: str) -> list[float]:
    """Return how often each word of a text occurs, in a vector of a fixed length."""
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1
    return vector


def main() -> None:
    """Feed the proposals, one a round."""
    monitor = Monitor(policy="deliberation", embed=embed)
    for number, proposal in enumerate(PROPOSALS, 1):
        print(f"round {number}: {proposal}")
        for control in monitor.feed(run_id="office", node="persona", output=proposal, round=number):
            print(f"  {control.severity} {control.code}: {control.message}")


if __name__ == "__main__":
    main()
