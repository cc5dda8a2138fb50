"""``streamproc page-user``: a user is added, changed and removed; the file stays readable by its owner only."""

from __future__ import annotations

from pathlib import Path

from streamproc.web.access.password_file import read_users

PASSWORD = "correct horse battery"


def test_a_user_is_added_changed_and_removed(run, tmp_path: Path) -> None:
    file = tmp_path / "page-users"

    def change(*words: str, password: str = PASSWORD) -> str:
        result = run("page-user", *words, "--file", file, input=f"{password}\n")
        assert result.exit_code == 0, result.output
        assert password not in result.output
        return result.stdout

    assert "ada may log in with the right view" in change("ada")
    change("bob", "--right", "fleet")
    change("ada", "--right", "halt", password="another password")
    users = read_users(file)
    assert {user.name: user.right for user in users.values()} == {"ada": "halt", "bob": "fleet"}
    assert users["ada"].is_password("another password")
    assert not users["ada"].is_password(PASSWORD)
    assert users["bob"].is_password(PASSWORD)
    assert PASSWORD not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]

    assert "removed ada" in change("ada", "--remove")
    assert set(read_users(file)) == {"bob"}


def test_what_cannot_be_is_refused_and_changes_nothing(run, tmp_path: Path) -> None:
    file = tmp_path / "page-users"
    for words, password, problem in (
        (("ada",), "short", "password: expected 12 to 1024 characters"),
        (("ada", "--right", "root"), PASSWORD, "--right 'root': choose among view, halt, fleet"),
        (("a:b",), PASSWORD, "name 'a:b': expected 1 to 100 printable characters"),
        (("#ada",), PASSWORD, "name '#ada'"),
        (("ada\n",), PASSWORD, "name 'ada\\n'"),
        (("",), PASSWORD, "name ''"),
        (("eve", "--remove"), PASSWORD, "has no user eve"),
    ):
        result = run("page-user", *words, "--file", file, input=f"{password}\n")
        assert result.exit_code == 2, result.output
        assert problem in result.output
        assert not file.exists()
    nowhere = run("page-user", "ada", "--file", tmp_path / "no" / "users", input=f"{PASSWORD}\n")
    assert nowhere.exit_code == 2
    assert "cannot be written" in nowhere.output
