"""The headers of every answer: nothing is loaded from elsewhere, framed, sniffed or stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp import web

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    # One policy of page.js turns the server's fragments, which are escaped, into markup.
    "require-trusted-types-for 'script'; trusted-types streamproc"
)

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers would send `Origin: null` with our own forms, and the check of it would refuse them.
    # No other site gets anything either way.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
TRANSPORT: Final = "max-age=31536000"


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers to an answer, also to errors and streams. A signal of aiohttp: `on_response_prepare`."""
    response.headers.update(SECURITY_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
