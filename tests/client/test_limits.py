"""Validation of declared limits: every mistake is reported at once."""

from __future__ import annotations

import pytest

from streamproc.client.admission.limits import SpendingLimit, read_limits
from streamproc.errors import InvalidPolicy


def test_money_becomes_micro_usd_and_missing_amounts_are_unlimited() -> None:
    limits = read_limits(
        {"run": {"cost_usd": "2.50"}, "user": {"hour": {"tokens": 5}, "day": {"cost_usd": 0.1, "tokens": 0}}}
    )
    assert limits == {
        "run": {"total": SpendingLimit(2_500_000)},
        "user": {"hour": SpendingLimit(None, 5), "day": SpendingLimit(100_000, 0)},
    }


def test_empty_limits_limit_nothing() -> None:
    assert read_limits(None) == read_limits({}) == {}
    assert read_limits({"run": {"cost_usd": None, "tokens": None}}) == {"run": {"total": SpendingLimit()}}


def test_all_mistakes_are_reported_at_once_with_their_places() -> None:
    with pytest.raises(InvalidPolicy) as invalid:
        read_limits(
            {
                "fleet": {"cost_usd": 1},
                "run": {"cost_usd": "-1", "tokens": 1.5},
                "session": {"day": {"cost_usd": 1}},
                "user": {"week": {"cost_usd": 1}},
                "tenant": {"day": {"usd": 1}, "hour": 5},
            }
        )
    assert [problem.field for problem in invalid.value.problems] == [
        "limits.fleet",
        "limits.run.cost_usd",
        "limits.run.tokens",
        "limits.session",
        "limits.user",
        "limits.tenant.day",
        "limits.tenant.hour",
    ]
    assert "choose from: hour, day, month" in str(invalid.value)
