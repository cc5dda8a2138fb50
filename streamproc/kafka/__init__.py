"""Kafka plumbing shared by client, worker, replay and CLI: topics, access, ACLs, tokens, sessions, reading a topic.

It exports no names: import from the modules.
"""

from __future__ import annotations

__all__: list[str] = []
