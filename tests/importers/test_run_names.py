"""Names of runs whose logs have none: by the paths of their files."""

from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given, strategies as st

from streamproc.importers import Import, LogFile

PARTS = st.sampled_from(["a", "b", "trajs", "run.1"])
PATHS = st.builds(
    lambda folders, stem: str(PurePosixPath("/logs/of/several/models", *folders, f"{stem}.traj")),
    st.lists(PARTS, max_size=3), st.sampled_from(["a", "b", "c"]),
)  # fmt: skip


@given(paths=st.lists(PATHS, max_size=12, unique=True), in_folder=st.booleans())
def test_no_two_files_share_a_name(paths: list[str], *, in_folder: bool) -> None:
    reading = Import()
    names = [reading.run_name(LogFile(path), in_folder=in_folder) for path in paths]
    assert len(set(names)) == len(paths)
    assert all(path.removesuffix(".traj").endswith((name, f"{name}/{name.rpartition('/')[2]}"))
               for path, name in zip(paths, names, strict=True))  # fmt: skip


def test_one_file_has_the_shortest_name() -> None:
    path = "/logs/one/a/a.traj"
    assert (Import().run_name(LogFile(path)), Import().run_name(LogFile(path), in_folder=True)) == ("a", "one/a")
