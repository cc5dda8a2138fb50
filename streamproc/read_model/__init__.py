"""What the topics say now, for people: runs, decisions, commands, budgets, refused records, in SQLite.

The topics are the truth; the model is rebuilt from them at any time. `streamproc page` and `watch --tui` ask it.
"""

from __future__ import annotations

from streamproc.read_model.model import ReadModel
from streamproc.read_model.one_run import read_run
from streamproc.read_model.reader import ChangeSubscription, ModelReader
from streamproc.read_model.rows import (
    AccountRow,
    Changes,
    CommandRow,
    DecisionFilter,
    DecisionRow,
    FleetCounts,
    FleetPage,
    LiveRun,
    PartitionHealth,
    PolicyRow,
    RefusedRow,
    RunFilter,
)
from streamproc.read_model.series import WINDOWS, SeriesBucket, SeriesWindow, SpendShare

__all__ = (
    "WINDOWS",
    "AccountRow",
    "ChangeSubscription",
    "Changes",
    "CommandRow",
    "DecisionFilter",
    "DecisionRow",
    "FleetCounts",
    "FleetPage",
    "LiveRun",
    "ModelReader",
    "PartitionHealth",
    "PolicyRow",
    "ReadModel",
    "RefusedRow",
    "RunFilter",
    "SeriesBucket",
    "SeriesWindow",
    "SpendShare",
    "read_run",
)
