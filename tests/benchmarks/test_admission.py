"""The benchmark of admission does the work that it claims to measure. Tiny sizes; times are not checked."""

from __future__ import annotations

import pytest

from benchmarks import admission
from benchmarks.table import markdown


async def test_the_rows_can_be_shown(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROC_REDIS", redis_url)

    rows = await admission.rows(rounds=5, callers=3)

    assert len({row.name for row in rows}) == len(rows) == 6
    assert all(row.figure > 0 for row in rows)
    assert markdown(rows, []).count("\n") == len(rows) + 2


def test_without_redis_the_message_says_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STREAMPROC_REDIS", raising=False)
    assert admission.main() == 2
    assert "make redis-start" in capsys.readouterr().err
