"""What a newcomer wants to know of a scan: which of their sessions was stuck, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamproc.model.formats import short
from tests.importers.reading import written
from tests.importers.test_claude_code import SESSION, Session, use

USAGE = {"input_tokens": 40_000, "output_tokens": 1_000}


def looping(turns: int = 6, *, prompt: Any = "Fix the login, please.") -> Session:
    session = Session(cwd="/home/me/shop").asks(prompt)
    for n in range(turns):
        session.says(f"m{n}", use(f"c{n}", "Bash", command="ls"), usage=USAGE).returns(f"c{n}", "a")
    return session


def scanned(run: Any, tmp_path: Path, session: Session, *options: str) -> str:
    folder = tmp_path / "shop"
    folder.mkdir(exist_ok=True)
    written(folder / f"{SESSION}.jsonl", session.rows)
    return str(run("scan", folder, "-q", *options).stdout)


def test_a_halted_session_is_named_by_its_prompt_and_project_with_what_it_cost(run, tmp_path: Path) -> None:
    first, name, costs, _ = scanned(run, tmp_path, looping()).splitlines()

    assert first == f"HALTED  {SESSION}  at turn 2 of 6, 3 more followed: 123 k tokens"
    assert name.strip() == '"Fix the login, please.", shop, 2026-01-01 00:00 UTC'
    assert costs == "In all: 246 k tokens; after halts: 123 k tokens."


def test_a_title_is_preferred_and_one_that_a_person_gave_most(run, tmp_path: Path) -> None:
    titled = looping().add("ai-title", aiTitle="Login repair")
    assert '"Login repair", shop' in scanned(run, tmp_path, titled)
    renamed = titled.add("custom-title", customTitle="My login").add("ai-title", aiTitle="Other")
    assert '"My login", shop' in scanned(run, tmp_path, renamed)


def test_a_name_has_no_secrets_and_no_words_of_the_harness(run, tmp_path: Path) -> None:
    secret = "sk-" + "a1B2" * 10
    prompt = [
        {"type": "text", "text": "<system-reminder>x</system-reminder>"},
        {"type": "text", "text": f"Use the key {secret} for all."},
    ]
    shown = scanned(run, tmp_path, looping(prompt=prompt))
    assert "Use the key" in shown
    assert secret not in shown
    assert "reminder" not in shown


def test_several_processes_know_the_same_names(run, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    written(tmp_path / "shop/a.jsonl", Session("0f000000-0000-4000-8000-00000000000a").asks("Hm.").rows)
    assert scanned(run, tmp_path, looping(), "-j", "2") == scanned(run, tmp_path, looping(), "-j", "1")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (9_999, "9999"), (10_000, "10 k"), (999_499, "999 k"), (999_600, "1.0 M"), (2_040_000, "2.0 M"),
     (310_000_000, "310 M"), (4_200_000_000, "4.2 G")],
)  # fmt: skip
def test_large_numbers_are_short(value: int, text: str) -> None:
    assert short(value) == text
