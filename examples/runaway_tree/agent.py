"""One agent of the tree: it works, and starts another agent whenever it likes. It knows no limit.

    python agent.py RUN SESSION PARENT REPORTS

It runs until it is stopped: by its guard where there is a Kafka (STREAMPROC_BROKERS), else by the answer of the
`streamproc up` in STREAMPROC_HOME. Then it writes its own report: why it has stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Any

from streamproc import Halted, HaltListener, TurnPublisher

EVERY_S = 1.0
AT_MOST = int(os.environ.get("SPAWN_AT_MOST", "12"))  # processes, and for how long, so that your machine survives
LIVES_S = 240.0


async def work_here(run_id: str, session: str, parent: str, reports: Path, up: Path) -> None:
    """Do the same with the `streamproc up` that listens at a socket, by HTTP, as an agent in any language can."""
    who = {"run_id": run_id, "session_id": session}
    post(up, "/v1/turns", {"type": "run.started", **who, "parent_run_id": parent, "prompt": f"Look into {run_id}."})
    note(reports, f"{run_id}.born", str(os.getpid()))
    for step in range(1, int(LIVES_S / EVERY_S)):
        post(up, "/v1/turns", {**who, "node": "agent", "output": f"{run_id} looks at source {step}."})
        if (halt := post(up, "/v1/decide", {"run_id": run_id})["halt"]) is not None:
            report = {"run": run_id, "pid": os.getpid(), "code": halt["code"], "why": halt["message"]}
            note(reports, f"{run_id}.json", json.dumps(report))
            return
        await asyncio.sleep(EVERY_S)
        await start(session, run_id, reports)


def post(up: Path, path: str, body: object) -> Any:
    """Return the answer to a request at a unix socket."""
    connection = http.client.HTTPConnection("up")
    connection.sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(connection):
        connection.sock.connect(str(up))
        connection.request("POST", path, json.dumps(body))
        return json.loads(connection.getresponse().read())


async def work(run_id: str, session: str, parent: str, reports: Path) -> None:
    """Take turns, and start agents without end."""
    async with TurnPublisher() as turns, HaltListener() as halts:
        await turns.run_started(run_id=run_id, session_id=session, parent_run_id=parent, prompt=f"Look into {run_id}.")
        note(reports, f"{run_id}.born", str(os.getpid()))
        try:
            async with asyncio.timeout(LIVES_S), halts.guard(run_id, session=session):
                step = 0
                while True:
                    step += 1
                    await turns.turn(run_id=run_id, node="agent", output=f"{run_id} looks at source {step}.")
                    await asyncio.sleep(EVERY_S)
                    await start(session, run_id, reports)
        except Halted as halted:
            code = halted.control.code if halted.control is not None else ""
            report = {"run": run_id, "pid": os.getpid(), "code": code, "why": str(halted)}
            note(reports, f"{run_id}.json", json.dumps(report))


async def start(session: str, parent: str, reports: Path) -> None:
    """Start an agent as a process of its own, if the machine has a place for it, and do not wait for it."""
    if any(claimed(reports / f"place-{number}") for number in range(1, AT_MOST)):
        run_id = f"agent-{uuid.uuid4().hex[:8]}"
        await asyncio.create_subprocess_exec(sys.executable, __file__, run_id, session, parent, str(reports))


def claimed(place: Path) -> bool:
    """Take a place; return False if another agent has it."""
    try:
        place.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def note(reports: Path, name: str, text: str) -> None:
    """Write a file that others see as a whole."""
    draft = reports / f".{name}"
    draft.write_text(text)
    draft.rename(reports / name)


if __name__ == "__main__":
    _, run, session_name, parent_run, folder = sys.argv
    if "STREAMPROC_BROKERS" in os.environ:
        asyncio.run(work(run, session_name, parent_run, Path(folder)))
    else:
        socket_path = Path(os.environ["STREAMPROC_HOME"]) / "up.sock"
        asyncio.run(work_here(run, session_name, parent_run, Path(folder), socket_path))
