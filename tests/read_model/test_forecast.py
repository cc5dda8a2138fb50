"""When the limit of an account comes, if its runs go on spending as in the last five minutes."""

from __future__ import annotations

import pytest

from streamproc.core.accounts import Account, AccountRef, Mark, Statement, dump_account, step_account, write_statement
from streamproc.core.spend_windows import SpendEntry, SpendWindow
from streamproc.read_model.model import ReadModel
from streamproc.read_model.rows import AccountRow
from tests.read_model.deployment import Deployment

MINUTE_MS = 60_000
NOON_MS = 1_700_006_400_000  # a whole hour
END_MS = NOON_MS + 120 * MINUTE_MS - 1


def forecast(name: str, mark: Mark, per_minute: int, now_ms: int = END_MS) -> AccountRow:
    """The row of an account that has spent so much in each minute of two hours."""
    ref = AccountRef(
        "r", 0, False, [mark] if mark.window != "total" else [], [mark], [80] * (3 if name[0] == "s" else 1)
    )
    entries = [SpendEntry(0, minute, NOON_MS + minute * MINUTE_MS, per_minute, 0, 0) for minute in range(120)]
    statement, account = Statement(1, name, 0, [ref], entries), Account()
    step_account(account, statement)
    made, model = Deployment(), ReadModel()
    model.apply("spend", [made.write("spend", name.encode(), write_statement(statement))])
    model.apply("accounts", [made.write("accounts", name.encode(), dump_account(account))])
    [row] = model.accounts(now_ms=now_ms)
    return row


@pytest.mark.parametrize(
    ("name", "mark", "minutes"),
    [
        ("session:s", Mark("total", "tokens", 13_500), 15),  # 12 000 are spent, 100 more each minute
        ("session:s", Mark("total", "tokens", 11_999), 0),
        ("session:s", Mark("total", "tokens", 400_000), None),  # not within a day
        ("tenant:t", Mark("day", "tokens", 72_000), 600),
        ("tenant:t", Mark("hour", "tokens", 7_000), None),  # at this rate, an hour has 6 000
        ("tenant:t", Mark("day", "tokens", 200_000), None),  # and a day 144 000
    ],
)
def test_the_limit_comes_when_a_steady_rate_reaches_it(name: str, mark: Mark, minutes: int | None) -> None:
    row = forecast(name, mark, 100)

    assert row.per_hour == 6_000
    if minutes is None:
        assert row.limit_at_ms is None
    else:
        assert row.limit_at_ms is not None
        assert abs((row.limit_at_ms - END_MS) / MINUTE_MS - minutes) <= 5  # it looks every five minutes


def test_an_account_that_has_stopped_spending_reaches_no_limit() -> None:
    row = forecast("session:s", Mark("total", "tokens", 13_500), 100, END_MS + 60 * MINUTE_MS)

    assert (row.per_hour, row.limit_at_ms, row.spent) == (0, None, 12_000)


def test_of_two_states_of_an_account_the_one_that_has_booked_more_is_shown() -> None:
    """A worker that has lost the account's partition may write an old state once more."""
    made, model = Deployment(), ReadModel()
    for offset, tokens in ((7, 500), (6, 400)):
        account = Account(offset=offset, at_ms=NOON_MS, started_ms=NOON_MS)
        account.windows["total"] = SpendWindow(tokens=tokens)
        model.apply("accounts", [made.write("accounts", b"session:s", dump_account(account))])

    assert [row.spent for row in model.accounts(now_ms=NOON_MS)] == [500]

    model.apply("accounts", [made.write("accounts", b"session:s", None)])
    assert model.accounts(now_ms=NOON_MS) == ()
