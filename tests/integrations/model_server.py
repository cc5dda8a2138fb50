"""An API of models, such as `ModelAPI`, behind a port of this machine, for frameworks with clients of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Protocol

import httpx2


class API(Protocol):
    """Answers a request to a model."""

    def _answer(self, request: httpx2.Request) -> httpx2.Response: ...


@contextmanager
def serving(api: API) -> Iterator[str]:
    """Serve an API until the end; yield its address."""

    class Handler(_Handler):
        served = api

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    served: ClassVar[API]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = self.served._answer(httpx2.Request("POST", f"http://model{self.path}", content=body))
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *what: object) -> None:
        pass
