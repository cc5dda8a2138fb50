"""What the tables of a read model hold, to compare two."""

from __future__ import annotations

from typing import Any

from streamproc.read_model.database import TABLES
from streamproc.read_model.model import ReadModel


def rows_of(model: ReadModel) -> dict[str, list[Any]]:
    """All rows of all tables, in an order of their own."""
    return {name: sorted(model._all(f"SELECT * FROM {name}"), key=repr) for name in TABLES if name != "meta"}
