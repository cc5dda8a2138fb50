"""The tests that tests/catalogue/README.md names exist."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT


def test_every_named_file_exists() -> None:
    text = (ROOT / "tests" / "catalogue" / "README.md").read_text("utf-8")
    named = set(re.findall(r"`(tests/[\w/.]+)`", text))
    assert len(named) > 20
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]


def test_every_test_of_a_detector_exists() -> None:
    text = (ROOT / "tests" / "catalogue" / "README.md").read_text("utf-8")
    named = set(re.findall(r"`tests/catalogue/(\w+\.py)::(\w+)\[", text))
    assert len(named) == 2
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / "catalogue" / file).read_text("utf-8")
