"""Runs a command beside a real Apache Kafka and a real Redis, and stops what it started.

    python deploy/local/with_services.py [--without 'COMMAND'] -- COMMAND...

The command finds their addresses in ``STREAMPROC_BROKERS`` and ``STREAMPROC_REDIS``. If one of these is set, or
``make kafka-start`` or ``make redis-start`` started a server, that server is used and left running. Otherwise an empty
one is started, and removed afterwards.

Exits with the command's exit code. If a service cannot run here, says so, runs the ``--without`` command if there is
one, says so again, and exits 3 even if that command succeeded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for `deploy`

from deploy.local.kafka import Broker
from deploy.local.redis import Server
from deploy.local.service import Service, UnavailableError, temporary

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_NO_SERVICE = 3
SERVICES: tuple[type[Service], ...] = (Broker, Server)


@contextlib.contextmanager
def running(kind: type[Service]) -> Iterator[str]:
    """Give the address of the configured server, else of the standing one, else of a temporary one."""
    given = os.environ.get(kind.variable)
    if given:
        kind.say(f"using the one that {kind.variable} names")
        yield given
        return
    standing = kind().running()
    if standing is not None:
        kind.say(f"using the one on port {standing.port}, which was started before")
        yield kind.address(standing)
        return
    with temporary(kind) as state:
        yield kind.address(state)


def run(command: list[str], environment: dict[str, str]) -> int:
    """Return the exit code of ``command``. Ctrl-C reaches it directly; this process waits until it has cleaned up."""
    print(f"$ {shlex.join(command)}", file=sys.stderr, flush=True)
    with subprocess.Popen(command, env=os.environ | environment) as process:
        while True:
            try:
                code = process.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:
                continue
            except SystemExit:  # SIGTERM: pass it to the command
                process.terminate()


def warn(problem: UnavailableError, consequence: str) -> None:
    """Print a warning that stands out."""
    bar = "!" * 100
    print(f"\n{bar}\n{problem.missing}: {consequence}\n\n{problem}\n{bar}\n", file=sys.stderr, flush=True)


def main() -> int:
    verbatim = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=verbatim)
    parser.add_argument("--without", default="", help="command to run before failing, if a service cannot run here")
    parser.add_argument("command", nargs="+", help="command to run")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with contextlib.ExitStack() as stack:
            found = {kind.variable: stack.enter_context(running(kind)) for kind in SERVICES}
            return run(arguments.command, found)
    except UnavailableError as problem:
        if arguments.without:
            warn(problem, "running what needs no service, and failing afterwards")
            run(shlex.split(arguments.without), {})
        warn(problem, f"not run: {shlex.join(arguments.command)}")
        return EXIT_NO_SERVICE


if __name__ == "__main__":
    sys.exit(main())
