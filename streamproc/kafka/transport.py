"""Finds out whether a server speaks TLS, for the error of a client that cannot connect. Sends no credentials."""

from __future__ import annotations

import asyncio
import contextlib
import ssl


async def speaks_tls(host: str, port: int) -> bool:
    """Return whether a server answers a TLS handshake, whatever its certificate and whether or not it wants one.

    OpenSSL is used only for a server that is there: a process that is forked while another thread makes a context waits
    for OpenSSL's lock for ever, and clients look again and again for a broker that is away.
    """
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent over this connection
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
