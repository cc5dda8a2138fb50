"""A distribution with entry points, as an installer leaves it: a folder with its metadata beside its modules."""

from __future__ import annotations

import tomllib
from pathlib import Path


def install(project: str, folder: Path) -> None:
    """Install the project that a pyproject.toml describes, whose modules are in the folder."""
    about = tomllib.loads(project)["project"]
    made = folder / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
    lines = []
    for group, entries in about["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (made / "entry_points.txt").write_text("\n".join(lines) + "\n")
