"""The bounds in the documentation are those of the code."""

from __future__ import annotations

import inspect
import math
import re

import pytest
import yaml

from benchmarks.scaling import WORKERS
from streamproc.cli import capacity
from streamproc.client import HaltListener, TurnPublisher
from streamproc.core import run_state
from streamproc.core.signals.novelty import SEEN_MAX
from streamproc.core.signals.periods import PERIOD_MAX
from streamproc.detectors.repeated_call import RepeatedCall
from streamproc.settings import Settings
from streamproc.worker import limits
from tests.docs.pages import ROOT

HOUR_MS, DAY_MS, MIB = 3_600_000, 86_400_000, 1_048_576
POLLS = RepeatedCall.Limits()


def of(function: type, argument: str) -> float:
    default: float = inspect.signature(function).parameters[argument].default
    return default


def spaced(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


STATED = [
    ("architecture", f"slices of at most {spaced(limits.SLICE_RECORDS_MAX)}"),
    ("architecture", f"within {limits.STORE_LINGER_S * 1000:g} ms"),
    ("architecture", f"rested for {limits.STORE_LINGER_S * 1000:g} ms"),
    ("architecture", f"the last {run_state.IDS_MAX} of a run"),
    ("architecture", f"Every period from 2 to {PERIOD_MAX}"),
    ("architecture", f"holds {SEEN_MAX} tags"),
    ("architecture", f"states of {spaced(limits.RUNS_MAX)} runs"),
    ("publishing", f"within the last {run_state.IDS_MAX} events of a run"),
    ("publishing", f"keeps its last {run_state.IDS_MAX} event ids"),
    ("publishing", f"`buffer_max` ({spaced(of(TurnPublisher, 'buffer_max'))}) events"),
    ("publishing", f"`buffer_bytes_max` ({of(TurnPublisher, 'buffer_bytes_max') / MIB:g} MiB)"),
    ("publishing", f"`block_ms_max` ({of(TurnPublisher, 'block_ms_max'):g} ms)"),
    ("publishing", f"`close_timeout_s` ({of(TurnPublisher, 'close_timeout_s'):g} s)"),
    ("publishing", f"at most {Settings.model_fields['event_bytes_max'].default / MIB:g} MiB"),
    ("operations", f"up to {spaced(limits.RUNS_MAX)} runs a worker, the last {spaced(limits.ACTIVE_RUNS_MAX)} of them"),
    ("operations", f"up to {spaced(limits.STUBS_A_RUN * limits.RUNS_MAX)} a worker"),
    ("operations", f"up to {spaced(of(TurnPublisher, 'buffer_max'))} events or"),
    ("scaling", f"`start_timeout_s` ({of(HaltListener, 'start_timeout_s'):g} s)"),
    (
        "operations",
        f"{Settings.model_fields['status_finished_hours'].default:g} hours (`STREAMPROC_STATUS_FINISHED_HOURS`)",
    ),
    ("operations", f"{Settings.model_fields['status_days'].default:g} days (`STREAMPROC_STATUS_DAYS`)"),
    ("scaling", f"at most {spaced(int(limits.STATUS_SWEEP_RECORDS / limits.STATUS_SWEEP_PAUSE_S))} records a second"),
    ("scaling", f"notes {spaced(limits.STATUSES_DUE_MAX)} old statuses"),
    ("scaling", f"several times within {limits.STORE_LINGER_S * 1000:g} ms"),
    ("scaling", f"holds {spaced(capacity.PAGE_RUNS_MAX)} runs"),
    ("scaling", f"built for {spaced(capacity.PAGE_DECISIONS_PER_S)} decisions a second"),
    ("scaling", f"about {capacity.FETCH_PARTITION_BYTES} bytes for request and answer"),
    ("scaling", f"{capacity.CLUSTER_BROKERS_MAX} brokers in a cluster"),
    ("scaling", f"{spaced(capacity.CLUSTER_PARTITIONS_MAX)} in a cluster"),
    ("operations", f"`STREAMPROC_SESSION_TIMEOUT_S` ({Settings.model_fields['session_timeout_s'].default:g} s)"),
    ("kubernetes", f"(`settings.session_timeout_s`, {Settings.model_fields['session_timeout_s'].default:g} s)"),
    ("kubernetes", f"holds up to {spaced(limits.RUNS_MAX)} runs"),
    ("kubernetes", f"stops within {limits.END_TIMEOUT_S:g} s"),
]
IN_WORDS = [
    ("scaling", "stays in memory for an hour", limits.FINISHED_KEEP_MS == HOUR_MS),
    ("scaling", "twenty times as many runs", limits.RUNS_ON_DISK_MAX == 20 * limits.RUNS_MAX),
    ("scaling", "counts twenty minutes of written states", capacity.UNCOMPACTED_S == 20 * 60),
    ("scaling", "Turns are kept for seven days", capacity.retention_days("turns") == 7),
    ("scaling", "Decisions are kept for 30 days", capacity.retention_days("control") == 30),
    ("scaling", "There are nine topics", len(capacity.TOPICS) == 9),
    ("scaling", "four for each leave room", capacity.PARTITIONS_A_WORKER == 4),
    ("scaling", "sends two fetches a second", capacity.FETCHES_PER_S == 2),
    ("scaling", "more than four workers were not measured", max(WORKERS) == capacity.WORKERS_MEASURED),
    ("architecture", "one hour", limits.FINISHED_KEEP_MS == HOUR_MS),
    ("architecture", "an idle or halted one for seven days", limits.IDLE_KEEP_MS == 7 * DAY_MS),
    ("architecture", "ten repeats, and three times", (POLLS.live_repeats_min, POLLS.live_standstills) == (10, 3)),
    ("operations", "leaves after an hour, an idle one after seven days", limits.FINISHED_KEEP_MS == HOUR_MS),
    ("architecture", "new ones (at most three turns) beyond a quarter", limits.NEW_TURNS_MAX == 3),
    ("architecture", "halted ones beyond a quarter", limits.SPARED_PART == 4),
    ("operations", "about once an hour", limits.STATUS_SWEEP_INTERVAL_S == 3_600),
    ("scaling", "cost a listener half as much", capacity.TOMBSTONE == 0.5),
    ("architecture", "kept for a year", limits.STUB_KEEP_MS == 366 * DAY_MS),
    ("architecture", "four times as many stubs as runs", limits.STUBS_A_RUN == 4),
    ("operations", "after the first hundred of a minute", limits.PUBLISHERS_MAX == 100),
    ("operations", "five crashes within five minutes", (limits.CRASHES_MAX, limits.CRASHES_WINDOW_S) == (5, 300)),
    ("operations", "after ten seconds", of(HaltListener, "start_timeout_s") == 10),
    ("operations", "about a second of work back", limits.COMMIT_INTERVAL_S == 1),
    ("kubernetes", "a million stubs of halted runs", limits.STUBS_A_RUN * limits.RUNS_MAX == 1_000_000),
    ("operations", "changed since, every eight seconds", limits.ACTIVITY_INTERVAL_S == 8),
    ("operations", "a line of counts each minute", limits.REPORT_INTERVAL_S == 60),
]


@pytest.mark.parametrize(("page", "stated"), STATED)
def test_a_stated_bound_is_that_of_the_code(page: str, stated: str) -> None:
    assert stated in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def test_the_memory_of_a_pod_follows_from_what_was_measured() -> None:
    figures = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    [peak_mib] = re.findall(r"^\| peak resident memory of that worker +\| ([\d ]+) MiB", figures, re.MULTILINE)
    assert f"200 000 runs took {peak_mib} MiB" in (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    stubs_mib = limits.STUBS_A_RUN * limits.RUNS_MAX * 400 / MIB
    needed_mib = int(peak_mib.replace(" ", "")) * limits.RUNS_MAX / 200_000 * 1.3 + stubs_mib
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "streamproc" / "values.yaml").read_text(encoding="utf-8"))
    assert values["worker"]["resources"]["limits"]["memory"] == f"{math.ceil(needed_mib / 1024)}Gi"


@pytest.mark.parametrize(("page", "words", "so"), IN_WORDS)
def test_a_bound_in_words_is_that_of_the_code(page: str, words: str, so: bool) -> None:
    assert words in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert so
