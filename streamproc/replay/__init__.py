"""Replay: run recorded turns, from files or from Kafka, through the same engine as the workers."""

from __future__ import annotations

from streamproc.replay.scan import Scan
from streamproc.replay.source import Source

__all__ = ["Scan", "Source"]
