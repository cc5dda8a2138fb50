"""The health check of the image: asks the process of the container whether it is ready. Only the standard library.

    healthcheck.py              # asks /readyz on the address of STREAMPROC_METRICS
    healthcheck.py /healthz     # whether its event loop answers: for what restarts unhealthy containers

Exit 0: yes; 1: no, it says what it waits for, or nothing answers. With `--processes`, the first worker is asked.
"""

from __future__ import annotations

import http.client
import os
import sys
from typing import Final

ANSWER_TIMEOUT_S: Final = 5
EVERYWHERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Where a process that listens on all addresses is asked."""


def main() -> int:
    address = os.environ.get("STREAMPROC_METRICS", "")
    host, _, port = address.rpartition(":")
    asked = sys.argv[1] if len(sys.argv) > 1 else "/readyz"
    try:
        connection = http.client.HTTPConnection(f"{EVERYWHERE.get(host, host)}:{port}", timeout=ANSWER_TIMEOUT_S)
        connection.request("GET", asked)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as problem:
        sys.stdout.write(f"nothing answers on {address or 'STREAMPROC_METRICS (empty)'}: {problem}\n")
        return 1
    sys.stdout.write(f"{text}\n")
    return int(answer.status != http.HTTPStatus.OK)


if __name__ == "__main__":
    sys.exit(main())
