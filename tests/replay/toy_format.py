"""A log format for tests: a record with an `id` is taken once in all logs; `agent` records name nodes of others."""

from __future__ import annotations

from collections.abc import Iterator

from streamproc.importers import Format, Import, Imported, LogFile, Sample


def matches(sample: Sample) -> bool:
    return any(isinstance(row, dict) and "toy" in row for row in sample.rows)


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn once its result or the next turn is there, as real formats do."""
    waiting: Imported | None = None
    for number, row in log.rows():
        if "agent" in row:
            reading.agents.setdefault(row["agent"], row["name"])
        elif "result" in row and waiting is not None:
            waiting.event["tool_calls"][0]["result"] = row["result"]
            yield waiting
            waiting = None
        elif "call" in row and (("id" not in row) or reading.is_new(row["id"])):
            if waiting is not None:
                yield waiting
            node = reading.agents.get(row.get("by", ""), "main")
            call = {"name": "Bash", "args": {"command": row["call"]}}
            waiting = Imported({"run_id": row["toy"], "node": node, "tool_calls": [call]}, number)
        else:
            reading.tally("toy").repeated += 1
    if waiting is not None:
        yield waiting


TOY = Format("toy", "Toy", matches, read)
