"""BUDGET011 for runaway spend, and BUDGET007 for missing prices."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from streamproc.errors import InvalidPolicy
from streamproc.policy import Policy, load_policy
from streamproc.policy.files import Layer
from tests.feeding import STANDARD, Feed, Raw, decisions, reported

if TYPE_CHECKING:
    from pathlib import Path


def costs(*amounts: str | float) -> list[Raw]:
    return [{"node": "a", "output": f"{n}", "usage": {"cost_usd": amount}} for n, amount in enumerate(amounts)]


def tokens(*amounts: int, **scope: str) -> list[Raw]:
    usage = [{"total_tokens": amount} for amount in amounts]
    return [{"node": "a", "output": f"unpriced {n}", "usage": one, **scope} for n, one in enumerate(usage)]


def with_limits(**limits: int) -> Policy:
    return Policy([*STANDARD.layers, Layer(name="mine", detectors={"BUDGET011": dict(limits)})])


@pytest.mark.parametrize("seed", range(20))
def test_healthy_spend_is_not_an_anomaly(seed: int) -> None:
    """Growing and compacted contexts, long documents and cached prompts: costs differ by a factor of a hundred."""
    dice = random.Random(seed)
    context, amounts = 2_000, []
    for _ in range(400):
        context = 4_000 if context > 150_000 else context + dice.randrange(200, 4_000)
        amounts.append(round(context * dice.choice([0.1, 1.0, 1.0]) * 3e-6 + dice.expovariate(50), 6))
    assert reported(costs(*amounts)) == []


def test_expensive_turns_are_reported_when_they_are_four_of_seven() -> None:
    cheap = ["0.01"] * 30
    assert reported(costs(*cheap, *["0.50"] * 3, "0.01", *["0.50"] * 2)) == [("BUDGET011", "warn", 34)]
    assert reported(costs(*cheap, *["0.50"] * 3, *["0.01"] * 10)) == []


def test_the_first_turns_of_a_run_are_not_compared_with_each_other() -> None:
    assert reported(costs(*["0.01"] * 6, *["3.00"] * 40)) == []


def test_a_workflow_s_usual_cost_needs_no_history() -> None:
    [warning] = decisions(costs(*["0.10"] * 9), with_limits(usual_micro_usd_per_turn=10_000))
    assert (warning.code, warning.type, warning.severity) == ("BUDGET011", "budget.level", "warn")
    assert warning.evidence is not None
    assert (warning.evidence.used, warning.evidence.limit, warning.evidence.unit) == (100_000, 10_000, "micro_usd")
    assert reported(costs(*["0.09"] * 50), with_limits(usual_micro_usd_per_turn=10_000)) == []


def test_the_anomaly_warning_can_be_turned_off() -> None:
    assert reported(costs(*["0.01"] * 30, *["5.00"] * 9), with_limits(warn_multiple=0)) == []


def test_an_occasional_missing_price_changes_nothing() -> None:
    mixed = [raw for pair in zip(costs(*["0.01"] * 60), tokens(*[90_000] * 60), strict=True) for raw in pair]
    assert reported(mixed) == []


def test_the_pace_survives_a_restart_at_every_turn() -> None:
    feed, found = Feed(), []
    for raw in costs(*["0.01"] * 30, *["0.50"] * 7):
        found += feed.raw(raw)
        feed.restart()
    assert [decision.code for decision in found] == ["BUDGET011"]


def test_tokens_without_a_price_are_reported_once_if_cost_is_limited() -> None:
    free = {"type": "run.started", "tier": "free"}
    [warning] = decisions([free, *tokens(900, 900, 900, model="new-model")])
    assert (warning.code, warning.severity, warning.type) == ("BUDGET007", "warn", "budget.level")
    assert "new-model" in warning.message
    assert warning.evidence is not None
    assert warning.evidence.kind == "unpriced_usage"
    assert reported(tokens(900, 900)) == [], "a missing price does not matter without a limit"


def test_turns_with_a_price_are_still_limited() -> None:
    free = {"type": "run.started", "tier": "free"}
    found = reported([free, *tokens(900), *costs("0.60")])
    assert [(code, severity) for code, severity, _ in found] == [("BUDGET007", "warn"), ("BUDGET007", "halt")]


def test_a_policy_can_ignore_missing_prices() -> None:
    mine = Policy([*load_policy("deliberation").layers, Layer(name="m", detectors={"BUDGET007": {"warn_unpriced": 0}})])
    assert reported(tokens(900, 900), mine) == []


PRICES = {
    "small": {
        "input_per_million_usd": "1", "output_per_million_usd": 5, "cached_per_million_usd": "0.1",
        "cache_write_per_million_usd": 2,
    },
}  # fmt: skip


def priced(**more: object) -> Policy:
    return Policy([*STANDARD.layers, Layer.model_validate({"name": "mine", "prices": PRICES} | more)])


@pytest.mark.parametrize(
    ("usage", "micro_usd"),
    [
        ({"input_tokens": 1_000, "output_tokens": 100}, 1_500),
        ({"input_tokens": 1_000, "cached_tokens": 900, "output_tokens": 100}, 690),
        ({"input_tokens": 100, "cached_tokens": 9_000}, 1_000),
        ({"input_tokens": 1_000, "cached_tokens": 500, "cache_write_tokens": 400}, 950),
        ({"input_tokens": 100, "cached_tokens": 60, "cache_write_tokens": 60}, 226),
        ({"input_tokens": 100, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 400}, 950),
        ({"total_tokens": 1_000}, 5_000),
        ({"input_tokens": 1}, 1),
        ({"input_tokens": 1_000, "cost_usd": "0.25"}, 250_000),
        ({"duration_ms": 5}, 0),
    ],
)
def test_a_turn_of_a_known_model_has_a_price(usage: dict[str, object], micro_usd: int) -> None:
    feed = Feed(priced())
    feed.raw({"node": "a", "model": "small", "usage": usage})
    assert (feed.state.ledger.cost_usd_micro, feed.state.ledger.unpriced) == (micro_usd, 0)


def test_prices_limit_the_cost_of_a_run_and_unpriced_models_are_reported() -> None:
    free = {"type": "run.started", "tier": "free"}
    dear = {"node": "a", "usage": {"output_tokens": 200_000}}
    assert reported([free, dear | {"model": "small"}], priced()) == [("BUDGET007", "halt", 0)]
    assert reported([free, dear | {"model": "large"}], priced()) == [("BUDGET007", "warn", 0)]


@pytest.mark.parametrize(
    "model",
    ["small", "openai/small", "azure/eu/small", "small-2026-01-31", "small-20260131", "small@20260131",
     "bedrock/small-20260131-v1:0", "small-latest", "other", ""],
)  # fmt: skip
def test_a_price_is_found_by_the_names_that_providers_report(model: str) -> None:
    default = {"input_per_million_usd": "2", "output_per_million_usd": "2"}
    feed = Feed(priced(prices=PRICES | {"default": default}))
    feed.raw({"node": "a", "model": model, "usage": {"input_tokens": 1_000}})
    assert feed.state.ledger.cost_usd_micro == (2_000 if model in ("other", "") else 1_000)


def test_a_model_with_a_price_of_its_own_is_not_its_family() -> None:
    own = {"input_per_million_usd": "9", "output_per_million_usd": "9"}
    feed = Feed(priced(prices=PRICES | {"small-2026-01-31": own}))
    for model in ("small-2026-01-31", "openai/small-2026-01-31", "smaller", "small-pro"):
        feed.raw({"node": "a", "model": model, "usage": {"input_tokens": 1_000}})
    assert (feed.state.ledger.cost_usd_micro, feed.state.ledger.unpriced) == (18_000, 2)


def test_the_prices_of_a_workflow_override_the_general_ones() -> None:
    own = {"small": {"input_per_million_usd": 0, "output_per_million_usd": 0}}
    mine = priced(workflows={"free": {"prices": own}})
    assert mine.effective()["prices"]["small"].output == 5_000_000
    assert mine.effective("free")["prices"]["small"].output == 0


def test_mistakes_in_prices_are_reported_with_their_place(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("prices:\n  small:\n    input_per_million_usd: cheap\n    per_token: 1\n")
    with pytest.raises(InvalidPolicy) as refusal:
        load_policy(file)
    assert [(problem.field, problem.place.rpartition(":")[2]) for problem in refusal.value.problems] == [
        ("prices.small", "2"), ("prices.small.input_per_million_usd", "3"), ("prices.small.per_token", "4"),
    ]  # fmt: skip
