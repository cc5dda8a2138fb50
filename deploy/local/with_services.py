"""Runs a command beside a real Apache Kafka and a real Redis, and stops what it started.

    python deploy/local/with_services.py [--without 'COMMAND'] -- COMMAND...

The command finds them in ``STREAMPROC_BROKERS`` and ``STREAMPROC_REDIS``. A service that these name already, or
that ``make kafka-start`` or ``make redis-start`` started before, is used as it is and left running. Otherwise this
starts one of its own, empty, and removes it afterwards.

Exits as the command did. Where a service cannot be had: says so before and after running the ``--without``
command, if there is one, and exits 3 even if that succeeded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import kafka
import redis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NO_SERVICE = 3
BRIEFLY = "run-"  # run-PID: the directory of a service that lives as long as process PID

UNAVAILABLE = (kafka.KafkaUnavailableError, redis.RedisUnavailableError)


@dataclass(frozen=True, slots=True)
class Service:
    """What Kafka and Redis have in common: `standing` may run already, `brief` makes one in a directory."""

    variable: str
    home: Path
    standing: Any
    brief: Callable[[Path], Any]
    address: Callable[[Any], str]
    say: Callable[[str], None]


SERVICES = (
    Service(
        "STREAMPROC_BROKERS",
        kafka.HOME,
        kafka.Broker(),
        kafka.Broker,
        lambda state: f"{kafka.HOST}:{state.port}",
        kafka.say,
    ),
    Service("STREAMPROC_REDIS", redis.HOME, redis.Server(), redis.Server, redis.url, redis.say),
)


@contextlib.contextmanager
def running(service: Service) -> Iterator[str]:
    """The address of one that is given, stands, or is started for as long as this lasts."""
    given = os.environ.get(service.variable)
    if given:
        service.say(f"using the one that {service.variable} names")
        yield given
        return
    standing = service.standing.running()
    if standing is not None:
        service.say(f"using the one on port {standing.port}, which was started before")
        yield service.address(standing)
        return
    sweep(service)
    brief = service.brief(service.home / f"{BRIEFLY}{os.getpid()}")
    try:
        yield service.address(brief.start())
    finally:
        if brief.stop():
            service.say("stopped")
            shutil.rmtree(brief.directory, ignore_errors=True)


def sweep(service: Service) -> None:
    """End those whose runs were killed before they could."""
    for directory in service.home.glob(f"{BRIEFLY}*"):
        try:
            os.kill(int(directory.name.removeprefix(BRIEFLY)), 0)
        except ProcessLookupError:
            service.brief(directory).kill()
            shutil.rmtree(directory, ignore_errors=True)


def run(command: list[str], environment: dict[str, str]) -> int:
    """The exit code of ``command``; it hears Ctrl-C itself, and we wait until it has tidied up."""
    print(f"$ {shlex.join(command)}", file=sys.stderr, flush=True)
    with subprocess.Popen(command, env=os.environ | environment) as process:
        while True:
            try:
                code = process.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:
                continue
            except SystemExit:  # we were told to terminate: so is the command
                process.terminate()


def shout(problem: Exception, consequence: str) -> None:
    missing = "REDIS" if isinstance(problem, redis.RedisUnavailableError) else "KAFKA"
    bar = "!" * 100
    print(f"\n{bar}\nNO REAL {missing}: {consequence}\n\n{problem}\n{bar}\n", file=sys.stderr, flush=True)


def main() -> int:
    verbatim = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=verbatim)
    parser.add_argument("--without", default="", help="what to run, before failing, if a service cannot be had")
    parser.add_argument("command", nargs="+", help="what to run")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with contextlib.ExitStack() as stack:
            found = {service.variable: stack.enter_context(running(service)) for service in SERVICES}
            return run(arguments.command, found)
    except UNAVAILABLE as problem:
        if arguments.without:
            shout(problem, "what needs no service runs now, and this fails all the same")
            run(shlex.split(arguments.without), {})
        shout(problem, f"not run: {shlex.join(arguments.command)}")
        return NO_SERVICE


if __name__ == "__main__":
    sys.exit(main())
