"""Runs a command beside a real Apache Kafka, with ``STREAMPROC_BROKERS`` set, and stops what it started.

    python deploy/local/with_kafka.py [--without-kafka 'COMMAND'] -- COMMAND...

A broker named by ``STREAMPROC_BROKERS``, or started before by ``make kafka-start``, is used as it is and
left running. Otherwise this starts one of its own, with an empty log, and removes it afterwards.

Exits as the command did. Where no Kafka can be had: says so before and after running the
``--without-kafka`` command, if there is one, and exits 3 even if that succeeded.
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
from typing import TYPE_CHECKING

import kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_KAFKA = 3
BRIEFLY = "run-"  # run-PID: the directory of a broker that lives as long as process PID


@contextlib.contextmanager
def brokers() -> Iterator[str]:
    given = os.environ.get("STREAMPROC_BROKERS")
    if given:
        kafka.say(f"using the one at {given} (STREAMPROC_BROKERS)")
        yield given
        return
    standing = kafka.Broker().running()
    if standing is not None:
        kafka.say(f"using the one on port {standing.port} (make kafka-start)")
        yield f"{kafka.HOST}:{standing.port}"
        return
    sweep(kafka.HOME)
    broker = kafka.Broker(kafka.HOME / f"{BRIEFLY}{os.getpid()}")
    try:
        yield f"{kafka.HOST}:{broker.start().port}"
    finally:
        if broker.stop():
            kafka.say("stopped")
            shutil.rmtree(broker.directory, ignore_errors=True)


def sweep(home: Path) -> None:
    """End the brokers whose runs were killed before they could."""
    for directory in home.glob(f"{BRIEFLY}*"):
        try:
            os.kill(int(directory.name.removeprefix(BRIEFLY)), 0)
        except ProcessLookupError:
            kafka.Broker(directory).kill()
            shutil.rmtree(directory, ignore_errors=True)


def run(command: list[str], **environment: str) -> int:
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


def shout(problem: kafka.KafkaUnavailableError, consequence: str) -> None:
    bar = "!" * 100
    print(f"\n{bar}\nNO REAL KAFKA: {consequence}\n\n{problem}\n{bar}\n", file=sys.stderr, flush=True)


def main() -> int:
    verbatim = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=verbatim)
    parser.add_argument("--without-kafka", default="", help="what to run, before failing, if there is none")
    parser.add_argument("command", nargs="+", help="what to run")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with brokers() as addresses:
            return run(arguments.command, STREAMPROC_BROKERS=addresses)
    except kafka.KafkaUnavailableError as problem:
        if arguments.without_kafka:
            shout(problem, "what needs none runs now, and this fails all the same")
            run(shlex.split(arguments.without_kafka))
        shout(problem, f"not run: {shlex.join(arguments.command)}")
        return NO_KAFKA


if __name__ == "__main__":
    sys.exit(main())
