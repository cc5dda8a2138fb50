"""What a topic must be, and how those of a cluster differ from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

UNKNOWN: Final = "unknown"  # settings that a broker does not show to a user without DescribeConfigs
CLOCK: Final = "message.timestamp.type"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it must be: full name, partitions, replicas, and the relevant settings in Kafka's spelling."""

    name: str
    purpose: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Drift:
    """A setting of a topic that differs from its specification: the value found and the value wanted."""

    topic: str
    setting: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.found}, should be {self.wanted}"

    @property
    def danger(self) -> str:
        """What an attacker can do because of it; empty if nothing.

        With `CreateTime` a sender chooses the time of its record, so the age of recorded records cannot be checked.
        """
        if self.setting != CLOCK or self.wanted != "LogAppendTime" or self.found == UNKNOWN:
            return ""
        role = self.topic.rpartition(".")[2]
        return {
            "turns": "signed stops and resumes of operators are refused",
            "commands": "every command is refused",
            "workers": "recorded heartbeats can be sent again, which hide that no worker lives",
        }.get(role, "recorded decisions and statuses can be sent again")


@dataclass(frozen=True, slots=True)
class Report:
    """The state of the cluster: topics just created, already present, missing, settings that differ, and topics that
    this client is not allowed to describe, which may exist or not."""

    created: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    drift: tuple[Drift, ...] = field(default=())
    denied: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every topic exists and matches its specification."""
        return not self.missing and not self.drift and not self.denied


def differences(spec: TopicSpec, partitions: list[dict[str, Any]], config: Mapping[str, str]) -> list[Drift]:
    """Return the settings of a topic that differ, from its partitions and configuration as the cluster shows them."""
    replicas = min((len(one["replicas"]) for one in partitions), default=0)
    found = {"partitions": str(len(partitions)), "replication.factor": str(replicas)} | dict(config)
    wanted = {"partitions": str(spec.partitions), "replication.factor": str(spec.replication_factor)} | dict(
        spec.config
    )
    return [
        Drift(spec.name, setting, found.get(setting, UNKNOWN), value)
        for setting, value in wanted.items()
        if not _same(found.get(setting, UNKNOWN), value)
    ]


def _same(found: str, wanted: str) -> bool:
    """Compare lists as sets and numbers as numbers: Kafka's spelling of ``delete,compact`` and ``0.1`` varies."""
    if sorted(found.split(",")) == sorted(wanted.split(",")):
        return True
    try:
        return float(found) == float(wanted)
    except ValueError:
        return False
