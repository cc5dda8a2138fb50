"""The file of a read model: thrown away only if it is one, and used by one process."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from streamproc.errors import InvalidSettings
from streamproc.read_model import database
from streamproc.read_model.model import ReadModel
from streamproc.read_model.rows import DecisionFilter, RunFilter
from tests.read_model.tables import rows_of
from tests.read_model.test_model import busy, filled


def test_a_file_of_another_version_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "model.db")
    filled(ReadModel(path), busy()).close()
    same = ReadModel(path)
    assert same.run("halted") is not None
    same.close()

    monkeypatch.setattr(database, "VERSION", database.VERSION + 1)

    other = ReadModel(path)
    assert (other.run("halted"), other.next_offset("runs", 0)) == (None, None)
    other.close()


def test_a_damaged_file_is_built_again(tmp_path: Path) -> None:
    path = tmp_path / "model.db"
    filled(ReadModel(str(path)), busy()).close()
    raw = bytearray(path.read_bytes())
    raw[4096 * 2 : 4096 * 6] = b"\xff" * 4096 * 4
    path.write_bytes(raw)

    model = filled(ReadModel(str(path)), busy())

    assert rows_of(model)["runs"] == rows_of(filled(ReadModel(), busy()))["runs"]
    model.close()


def test_another_file_is_never_touched(tmp_path: Path) -> None:
    notes, other = tmp_path / "notes.txt", tmp_path / "other.db"
    notes.write_text("buy milk")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE kept (value)")
    before = other.read_bytes()

    for path in (notes, other, tmp_path, tmp_path / "nowhere" / "model.db"):
        with pytest.raises(InvalidSettings, match="name another file"):
            ReadModel(str(path))

    assert (notes.read_text(), other.read_bytes()) == ("buy milk", before)


def test_other_users_of_the_machine_cannot_read_it(tmp_path: Path) -> None:
    path = tmp_path / "model.db"
    model = filled(ReadModel(str(path)), busy())
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    model.close()
    assert set(modes) >= {"model.db", "model.db.lock"}
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("suffix", ["", ".lock"])
def test_a_link_in_its_place_leads_nowhere(tmp_path: Path, suffix: str) -> None:
    """A user who may write the directory could have another file emptied, or filled."""
    notes = tmp_path / "notes.txt"
    notes.write_text("" if not suffix else "buy milk")
    (tmp_path / f"model.db{suffix}").symlink_to(notes)

    with pytest.raises(InvalidSettings, match="it is a link"):
        ReadModel(str(tmp_path / "model.db"))

    assert notes.read_text() == ("" if not suffix else "buy milk")


def test_a_file_belongs_to_one_process(tmp_path: Path) -> None:
    path = str(tmp_path / "model.db")
    model = ReadModel(path)
    with pytest.raises(InvalidSettings, match="another process has it open"):
        ReadModel(path)
    model.close()
    ReadModel(path).close()


def test_what_another_deployment_has_left_is_thrown_away() -> None:
    model = ReadModel()
    model.bind("one")
    filled(model, busy())
    model.bind("one")
    assert model.run("halted") is not None

    model.bind("other")

    assert model.run("halted") is None
    assert rows_of(filled(model, busy())) == rows_of(filled(ReadModel(), busy()))


@pytest.mark.parametrize("in_file", [False, True])
def test_queries_of_other_threads_see_whole_transactions(tmp_path: Path, in_file: bool) -> None:
    model = ReadModel(str(tmp_path / "model.db") if in_file else None)
    records = busy().records("control")
    template, faults, done = records[0], [], threading.Event()
    decisions = [
        replace(template, offset=number, value=template.value.replace(b'"id":"', b'"id":"%d-' % number))
        for number in range(20_000)
    ]

    def ask() -> None:
        while not done.is_set():
            try:
                [(rows, counted)] = model._all(
                    "SELECT (SELECT count(*) FROM controls), (SELECT total(decisions) FROM policies)"
                )
                if rows != counted:
                    faults.append((rows, counted))
                model.decisions(DecisionFilter())
                model.runs("others", RunFilter(text="e"))
                model.counts(0)
            except Exception as problem:  # noqa: BLE001 (the thread reports it)
                faults.append(problem)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    model.apply("control", decisions)
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    model.close()
