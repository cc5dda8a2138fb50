"""What a hook starts: `streamproc up` for a folder, without the command line's libraries and, unless something is sent
elsewhere, without OpenSSL, which together take a fifth of its memory: it serves a unix socket.

Projects choose the environment of a CLI and so of its hooks. The policy, and where turns and notifications are sent,
are read from the file `settings.env` in the folder alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from streamproc.live.places import LivePlaces

PLACES: Final = LivePlaces(Path(sys.argv[1]))
OWN: Final = ("STREAMPROC_CORE", "STREAMPROC_HOME")

for name in [name for name in os.environ if name.startswith("STREAMPROC_") and name not in OWN]:
    del os.environ[name]
if not PLACES.settings.exists():
    # asyncio, aiohttp and hashlib do without, as in a Python that was built without it.
    sys.modules["ssl"] = sys.modules["_hashlib"] = None  # type: ignore[assignment]

import asyncio  # noqa: E402

from streamproc.errors import StreamprocError  # noqa: E402
from streamproc.live.process import LiveOptions, serve, settings_of  # noqa: E402
from streamproc.model.log_lines import log_to_stderr  # noqa: E402
from streamproc.policy import load_policy  # noqa: E402

IDLE_S: Final = 3_600.0  # it ends when no session was open for an hour

if __name__ == "__main__":
    log_to_stderr("info", "text")
    try:
        settings = settings_of(PLACES, os.environ)
        policy = settings.policy if settings is not None else None
        asyncio.run(
            serve(PLACES, load_policy(policy or "standard"), LiveOptions(idle_s=IDLE_S), print, settings)
        )  # fmt: skip
    except StreamprocError as error:  # for instance because two hooks have started one
        sys.exit(f"streamproc: {error}")
