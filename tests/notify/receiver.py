"""A real web server that receives notifications: it can be down, be slow, and reject them."""

from __future__ import annotations

import json
import threading
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """Closes its connections at the end, and ignores clients that disconnect early."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnected."""


class Receiver:
    """Receives posts. `statuses` are its next answers; while `open` is not set, callers wait."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.refused = 0
        self.calls = 0
        self.statuses: deque[int] = deque()
        self.open = threading.Event()
        self.open.set()
        self.port = 0
        self._server: Server | None = None

    def start(self) -> Receiver:
        """Start to listen, on the same port as before."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                receiver.calls += 1
                receiver.open.wait(30)
                status = receiver.statuses.popleft() if receiver.statuses else 200
                if status == 200:
                    receiver.posts.append((self.path, json.loads(body)))
                else:
                    receiver.refused += 1
                with suppress(OSError):
                    self.send_response(status)
                    self.end_headers()
                    self.wfile.write(b"{}")

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop to listen: connections are refused."""
        self.open.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def json_url(self) -> str:
        """The Apprise URL of a webhook."""
        return f"json://127.0.0.1:{self.port}/hook"

    @property
    def ntfy_url(self) -> str:
        """The Apprise URL of a self-hosted ntfy."""
        return f"ntfy://127.0.0.1:{self.port}/agents"

    def notices(self) -> list[dict[str, Any]]:
        """Return the notifications in the posts of webhooks, including those in summaries."""
        found = []
        for _, post in self.posts:
            message = json.loads(post["message"])
            found += message.get("notifications", [message])
        return found
