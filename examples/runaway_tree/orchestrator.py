"""A tree of agents that grows without end, and the one command that stops it.

    python examples/runaway_tree/orchestrator.py --with-worker     # over Kafka
    python examples/runaway_tree/orchestrator.py --with-up         # on this machine alone

It starts one agent, which starts others, each of them a process of its own. Once there are enough of them, it calls
`streamproc kill --session`, as you would in another terminal, and then reads the agents' own reports.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AGENT = Path(__file__).with_name("agent.py")
STREAMPROC = (sys.executable, "-m", "streamproc")
PATIENCE_S = 120.0
STOPPED = ("OPERATOR001", "FLEET001", "TREE008")  # by the command, or born of an agent that was stopped by it


async def run(agents: int, reports: Path) -> int:
    """Let the tree grow, stop it, and read its reports. Returns 0 if every agent has stopped by its own report."""
    session = f"session-{uuid.uuid4().hex[:8]}"
    root = await asyncio.create_subprocess_exec(sys.executable, AGENT, f"root-{session}", session, "", str(reports))
    print(f"session {session}: the first agent starts, and starts others")
    await until(lambda: len(born(reports)) >= agents)
    print(f"  {len(born(reports))} agents are at work; nothing in them will ever stop them")
    command = [*STREAMPROC, "kill", "--session", session, "--by", "ada", "--why", "it starts agents without end"]
    kill = await asyncio.create_subprocess_exec(*command, "--wait", "60s")
    await kill.wait()
    await until(lambda: born(reports).keys() == told(reports).keys() and not any(map(alive, born(reports).values())))
    for one in told(reports).values():
        print(f"  {one['run']}: {one['why']}")
    await root.wait()
    stopped = [one for one in told(reports).values() if one["code"] in STOPPED]
    print(f"{len(stopped)} of {len(born(reports))} agents have stopped by their own report; no process is left")
    return 0 if len(stopped) == len(born(reports)) else 1


def born(reports: Path) -> dict[str, int]:
    """Return the processes of the agents, by run."""
    return {path.stem: int(path.read_text()) for path in reports.glob("*.born")}


def told(reports: Path) -> dict[str, dict[str, str]]:
    """Return the agents' own reports, by run."""
    return {path.stem: json.loads(path.read_text()) for path in reports.glob("*.json")}


def alive(pid: int) -> bool:
    """Return whether a process works. One that has ended, and for which its parent did not wait, does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.1)


@contextlib.contextmanager
def own_worker(wanted: bool) -> Iterator[None]:
    """Start a worker process for the duration of the example, if wanted."""
    if not wanted:
        yield
        return
    subprocess.run([*STREAMPROC, "topics", "apply"], check=True, stdout=subprocess.DEVNULL)
    with subprocess.Popen([*STREAMPROC, "worker", "--log-level", "error"]) as worker:
        try:
            yield
        finally:
            worker.terminate()


@contextlib.contextmanager
def own_up(wanted: bool) -> Iterator[None]:
    """Start a `streamproc up` for the duration of the example, if wanted; agents and commands find it."""
    if not wanted:
        yield
        return
    os.environ.pop("STREAMPROC_BROKERS", None)
    with tempfile.TemporaryDirectory(prefix="tree-") as folder:
        os.environ["STREAMPROC_HOME"] = folder
        with subprocess.Popen([*STREAMPROC, "up"], stdout=subprocess.DEVNULL) as up:
            try:
                asyncio.run(until((Path(folder) / "up.sock").exists))
                yield
            finally:
                up.terminate()


def main() -> int:
    """Return the exit code: 0 if every agent has stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=6, help="how many are at work before the command (%(default)s)")
    parser.add_argument("--with-worker", action="store_true", help="create the topics, and run a worker for a while")
    parser.add_argument("--with-up", action="store_true", help="run `streamproc up` for a while, in place of a Kafka")
    options = parser.parse_args()
    os.environ["SPAWN_AT_MOST"] = str(options.agents + 2)
    with tempfile.TemporaryDirectory() as folder, own_worker(options.with_worker), own_up(options.with_up):
        try:
            return asyncio.run(run(options.agents, Path(folder)))
        finally:
            for pid in filter(alive, born(Path(folder)).values()):  # none, unless something went wrong
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
