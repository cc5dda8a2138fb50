"""deploy/grafana: the dashboard is what the script makes, fits Grafana's schema, and asks for what programs show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.grafana.dashboard import COLUMNS, FILE, ROWS, dashboard, text
from streamproc.metrics.definitions import BY_NAME
from tests.deploy.conftest import Promtool
from tests.deploy.expressions import expressions, faults, metrics, panels

ALL = dashboard()["panels"]


def test_the_file_is_what_the_script_makes() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: .venv/bin/python deploy/grafana/dashboard.py"


def test_every_panel_and_row_has_a_number_of_its_own() -> None:
    numbers = [panel["id"] for panel in ALL]
    assert len(set(numbers)) == len(numbers)
    assert [row["title"] for row in ALL if row["type"] == "row"] == list(ROWS)
    assert list(ROWS) == ["Fleet", "Decisions", "Delay and lag", "Workers", "Clients", "Money"]


def test_panels_fill_the_grid_without_overlapping() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in ALL:
        place = panel["gridPos"]
        assert 0 <= place["x"] <= place["x"] + place["w"] <= COLUMNS
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len(taken) == COLUMNS * max(y + 1 for _, y in taken), "a gap between panels"


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_explains_itself_and_takes_its_datasource_from_the_variable(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["type"] in ("timeseries", "stat")
    assert panel["targets"]
    for source in (panel, *panel["targets"]):
        assert source["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    references = [target["refId"] for target in panel["targets"]]
    assert references == sorted(set(references))
    assert all(target["legendFormat"] for target in panel["targets"])
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert steps[0]["value"] is None  # Grafana's word for "from minus infinity"
    assert [step["value"] for step in steps[1:]] == sorted(step["value"] for step in steps[1:])


def test_no_address_or_id_of_a_datasource_is_fixed() -> None:
    [variable] = dashboard()["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")
    assert "http" not in json.dumps(dashboard())


def test_promtool_parses_every_expression(promtool: Promtool, tmp_path: Path) -> None:
    rules = [{"record": f"panel:{index}", "expr": expr} for index, expr in enumerate(expressions().values())]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", "panels.yaml", folder=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


@pytest.mark.parametrize(("place", "expression"), expressions().items(), ids=list(expressions()))
def test_an_expression_names_only_metrics_labels_and_values_that_exist(place: str, expression: str) -> None:
    assert not [f"{place}: {fault}" for fault in faults(expression)]


def test_the_dashboard_shows_every_metric() -> None:
    shown = set().union(*(metrics(target["expr"]) for panel in panels() for target in panel["targets"]))
    assert BY_NAME.keys() <= shown


@pytest.mark.parametrize(("expression", "fault"), [
    ("sum(rate(streamproc_turns_total[5m]))", "no metric streamproc_turns_total"),
    ("sum by (run) (streamproc_runs)", "no label run"),
    ('streamproc_fleet_status{status="STOPPED"}', "streamproc_fleet_status has no status=STOPPED"),
])  # fmt: skip
def test_an_expression_with_another_name_is_reported(expression: str, fault: str) -> None:
    assert list(faults(expression)) == [fault]
