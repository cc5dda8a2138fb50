"""The headers of every answer: nothing is loaded from elsewhere, framed, sniffed or stored."""

from __future__ import annotations

from typing import Final

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


def the_only(request: web.Request, name: str) -> str | None:
    """Return the value of a header that says who sends a request, or from where; None if it is missing or comes twice.

    One that comes twice was sent by two: by a client, and by a proxy that appends instead of replacing.
    """
    values = request.headers.getall(name, ())
    return values[0] if len(values) == 1 else None


def cookie_values(request: web.Request, name: str) -> list[str]:
    """Return each value of a cookie once. It has several if another page of this host or domain sets it, too."""
    pairs = (pair.partition("=") for line in request.headers.getall("Cookie", ()) for pair in line.split(";"))
    return list(dict.fromkeys(value.strip() for key, _, value in pairs if key.strip() == name))


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers to an answer, also to errors and streams. A signal of aiohttp: `on_response_prepare`."""
    response.headers.update(SECURITY_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
