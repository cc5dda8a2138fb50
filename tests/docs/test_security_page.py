"""SECURITY.md names the test of each attack."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
FILES = {path.name for path in (ROOT / "tests" / "security").glob("test_*.py")}


def test_each_attack_has_a_test_that_exists_and_each_test_has_an_attack() -> None:
    assert set(re.findall(r"`(test_\w+\.py)`", PAGE)) == FILES
