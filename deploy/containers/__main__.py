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

from deploy.containers.debian import EngineUnavailableError
from deploy.containers.engine import machine_engine
from deploy.containers.private_engine import INSIDE, private_engine, run_inside
from deploy.containers.scenario import play

EXIT_NOTHING_RAN = 3
BEGAN = time.monotonic()


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"containers: {time.monotonic() - BEGAN:5.0f} s  {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--private", action="store_true", help="use an engine of its own even if this machine has one")
    parser.add_argument(INSIDE, dest="outside", type=int, metavar="FD", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        if arguments.outside is not None:
            with private_engine(arguments.outside, say) as engine:
                return play(engine, say)
        engine = None if arguments.private else machine_engine()
        if engine is not None:
            return play(engine, say)
        say(
            "no Docker engine with compose answers on this machine"
            if not arguments.private
            else "asked for a private engine"
        )
        return run_inside([], say)
    except EngineUnavailableError as problem:
        say(f"NOTHING RAN: there is no Docker engine, and none of its own: {problem}")
        return EXIT_NOTHING_RAN
    except KeyboardInterrupt:
        say("interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
