"""Who may see the page, and who may command from it: logins, sessions, rights, and the checks of every request."""

from __future__ import annotations

from streamproc.web.access.gate import Access, session_of
from streamproc.web.access.login import AccessOptions
from streamproc.web.access.options import build_access
from streamproc.web.access.session import Session

__all__ = ("Access", "AccessOptions", "Session", "build_access", "session_of")
