"""Builds the image, starts the containers of docker-compose.yml, and does to them what people do: `make containers`.

    python -m deploy.containers             # the Docker engine of this machine; where there is none, one of its own
    python -m deploy.containers --private   # an engine of its own in any case

Says which engine and which base images it uses, and prints each step with its time. Exits 0 if all of it works, 1 at
the first thing that does not, and 3 if nothing ran.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from deploy.containers.debian import EngineUnavailableError, Say
from deploy.containers.engine import machine_engine
from deploy.containers.private_engine import INSIDE, private_engine, run_inside
from deploy.containers.scenario import play

EXIT_NOTHING_RAN: Final = 3
EXIT_INTERRUPTED: Final = 130


def reporter(began: float) -> Say:
    """Return what prints a line with the seconds since then."""

    def say(text: str) -> None:
        print(f"containers: {time.monotonic() - began:5.0f} s  {text}", flush=True)

    return say


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--private", action="store_true", help="use an engine of its own even if this machine has one")
    parser.add_argument(INSIDE, nargs=2, metavar=("FD", "BEGAN"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    outside, began = arguments.inside or (0, time.monotonic())
    say = reporter(float(began))
    try:
        if arguments.inside:
            with private_engine(int(outside), say) as private:
                return play(private, say)
        if not arguments.private and (engine := machine_engine()) is not None:
            return play(engine, say)
        say("a private engine" if arguments.private else "no Docker engine with compose answers here: a private one")
        return run_inside(began, say)
    except EngineUnavailableError as problem:
        say(f"NOTHING RAN: {problem}")
        return EXIT_NOTHING_RAN
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
