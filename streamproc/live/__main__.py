"""What a hook starts: `streamproc up` for a folder, without the command line's libraries and without OpenSSL, which
together take a fifth of its memory: it serves a unix socket."""

from __future__ import annotations

import sys

sys.modules["ssl"] = None  # type: ignore[assignment]  # asyncio and aiohttp do without, as in a Python built without it

import asyncio  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Final  # noqa: E402

from streamproc.live.places import LivePlaces  # noqa: E402
from streamproc.live.process import LiveOptions, serve  # noqa: E402
from streamproc.model.log_lines import log_to_stderr  # noqa: E402
from streamproc.policy import load_policy  # noqa: E402

IDLE_S: Final = 3_600.0  # it ends when no session was open for an hour

if __name__ == "__main__":
    log_to_stderr("info", "text")
    asyncio.run(serve(
        LivePlaces(Path(sys.argv[1])), load_policy(os.environ.get("STREAMPROC_POLICY") or "standard"),
        LiveOptions(idle_s=IDLE_S), print,
    ))  # fmt: skip
