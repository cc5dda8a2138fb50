"""An OAuth 2.0 token endpoint on this machine, which issues tokens for a client's credentials."""

from __future__ import annotations

import base64
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from tests.secured.broker import Issuer

CLIENT = "agents & co"
SECRET = f"secret-{secrets.token_hex(8)}+/:%"


class TokenEndpoint:
    """Returns `answer`, if set, or else a token; records its requests."""

    def __init__(self, issuer: Issuer) -> None:
        self.user = "admin"
        self.lives_s = 300
        self.answer: tuple[int, bytes] | None = None
        self.headers: dict[str, str] = {}
        self.asked: list[dict[str, list[str]]] = []
        self.given: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, body = endpoint.answer or endpoint._answer(issuer, self.headers["Authorization"], form)
                self.send_response(status)
                for name, value in endpoint.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> TokenEndpoint:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def options(self) -> dict[str, str]:
        """The settings of a client of this endpoint."""
        return {
            "sasl_oauth_token_url": self.url,
            "sasl_oauth_client_id": CLIENT,
            "sasl_oauth_client_secret": SECRET,
            "sasl_oauth_scope": "kafka",
        }

    def _answer(self, issuer: Issuer, authorization: str, form: str) -> tuple[int, bytes]:
        self.asked.append(parse_qs(form))
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if (unquote_plus(name), unquote_plus(secret)) != (CLIENT, SECRET):
            return 401, json.dumps({"error": "invalid_client", "error_description": f"not {secret}"}).encode()
        self.given.append(issuer.token(self.user, lives_s=self.lives_s))
        answer = {"access_token": self.given[-1], "token_type": "Bearer", "expires_in": self.lives_s}
        return 200, json.dumps(answer).encode()
