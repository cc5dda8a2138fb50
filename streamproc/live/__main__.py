"""What a hook starts: `streamproc up` for a folder, without the command line's libraries, which take a sixth of its
memory."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from streamproc.live.places import LivePlaces
from streamproc.live.process import LiveOptions, serve
from streamproc.model.log_lines import log_to_stderr
from streamproc.policy import load_policy

IDLE_S: Final = 3_600.0  # it ends when no session was open for an hour

if __name__ == "__main__":
    log_to_stderr("info", "text")
    asyncio.run(serve(
        LivePlaces(Path(sys.argv[1])), load_policy(os.environ.get("STREAMPROC_POLICY") or "standard"),
        LiveOptions(idle_s=IDLE_S), print,
    ))  # fmt: skip
