"""Run the benchmarks and print one table."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Final

import uvloop

from benchmarks import (
    core_compiled,
    core_speed,
    failover,
    fingerprint_speed,
    graph_speed,
    latency,
    live_speed,
    page,
    publisher_speed,
    recovery,
    replay_speed,
    scaling,
    scan_speed,
    signing,
    state_size,
    throughput,
    tree_stop,
    wire_speed,
)
from benchmarks.machine import ROOT, busy_note, header
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.table import BenchmarkDefect, Row, markdown
from docs import generate
from docs.tables import write_between_marks
from streamproc.settings import Settings, load_settings

IN_PROCESS: Final[dict[str, Callable[[Sizes], Iterator[Row]]]] = {
    "core": core_speed.rows, "compiled": core_compiled.rows, "state": state_size.rows, "wire": wire_speed.rows,
    "fingerprint": fingerprint_speed.rows, "scan": scan_speed.rows, "publisher": publisher_speed.rows,
    "graph": graph_speed.rows, "signing": signing.rows, "live": live_speed.rows,
}  # fmt: skip
ON_KAFKA: Final[dict[str, Callable[[Sizes, Settings], Awaitable[list[Row]]]]] = {
    "worker": throughput.rows, "recovery": recovery.rows, "latency": latency.rows,
    "failover": failover.rows, "replay": replay_speed.rows, "page": page.rows, "scaling": scaling.rows,
    "tree": tree_stop.rows,
}  # fmt: skip
PARTS: Final = [*IN_PROCESS, *ON_KAFKA]

EXIT_OK: Final = 0  # even if an aim is missed: that is a result, not a failure
EXIT_DEFECT: Final = 1
EXIT_UNUSABLE: Final = 2
EXIT_TERMINATED: Final = 128 + signal.SIGTERM


def main() -> int:
    """Measure, print, write; return the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # exiting stops workers and deletes topics
    chosen = list(dict.fromkeys(chain.from_iterable(options.only))) if options.only else PARTS
    brokers = os.environ.get("STREAMPROC_BROKERS")
    if not brokers and any(name in ON_KAFKA for name in chosen):
        without = " ".join(IN_PROCESS)
        print(f"No Kafka: set STREAMPROC_BROKERS, or run `make bench`; without it: --only {without}", file=sys.stderr)
        return EXIT_UNUSABLE
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs errors that it then retries
    sizes = QUICK if options.quick else FULL
    began, busy = time.monotonic(), busy_note()
    try:
        rows = [row for name in chosen for row in _measure(name, sizes, brokers)]
    except BenchmarkDefect as defect:
        print(f"\nDEFECT: the benchmark did not do the work that it claims to measure.\n{defect}", file=sys.stderr)
        return EXIT_DEFECT
    how = (
        f"Measured in {time.monotonic() - began:.0f} s by `make bench{' ARGS=--quick' if options.quick else ''}`.{busy}"
    )
    head = header(brokers if any(name in ON_KAFKA for name in chosen) else None, how)
    print(markdown(rows, head))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) | {"met": row.met} for row in rows], indent=1), "utf-8")
    if options.readme:
        write_between_marks(ROOT / "benchmarks" / "README.md", "bench", markdown(rows, head))
        aimed = [row for row in rows if row.aim is not None]
        write_between_marks(ROOT / "docs" / "performance.md", "bench", markdown(aimed, head))
        generate.main()  # the README shows figures of this table
    return EXIT_OK


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure less: under a minute, less precise")
    parser.add_argument(
        "--only", nargs="+", type=_parts, metavar="PART",
        help=f"measure only these parts, apart by spaces or commas: {', '.join(PARTS)}",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the unrounded figures")
    parser.add_argument(
        "--readme",
        action="store_true",
        help="write the tables of benchmarks/README.md and docs/performance.md, and the README's figures",
    )
    options = parser.parse_args()
    if options.readme and options.only:
        parser.error("--readme needs the whole table: remove --only")
    return options


def _parts(text: str) -> list[str]:
    """Return the parts of an argument. Raises `ArgumentTypeError` for an unknown one."""
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return names


def _measure(name: str, sizes: Sizes, brokers: str | None) -> list[Row]:
    print(f"measuring {name} … ", end="", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        return list(IN_PROCESS[name](sizes)) if name in IN_PROCESS else _on_kafka(name, sizes, brokers)
    finally:
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _on_kafka(name: str, sizes: Sizes, brokers: str | None) -> list[Row]:
    settings = load_settings(
        brokers=brokers,
        topic_prefix=f"bench-{os.getpid()}-{name}",
        # The prepared log of `worker` carries its own times, which the expected decisions depend on.
        timestamp_type="CreateTime" if name == "worker" else "LogAppendTime",
    )

    async def measure() -> list[Row]:
        return await ON_KAFKA[name](sizes, settings)

    return uvloop.run(measure())


if __name__ == "__main__":
    sys.exit(main())
