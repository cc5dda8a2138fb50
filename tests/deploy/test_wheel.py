"""The wheel holds the package, with its data, and nothing else. (`make dist` installs it and uses it.)"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from streamproc import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [path] = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_it_holds_every_module_and_data_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "streamproc"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tracked.returncode:  # no checkout: an unpacked source distribution
        expected = {str(path.relative_to(ROOT)) for path in (ROOT / "streamproc").rglob("*.py")}
    else:
        expected = {line for line in tracked.stdout.splitlines() if (ROOT / line).exists()}

    assert expected <= set(wheel.namelist())
    assert len(expected) > 100


@pytest.mark.parametrize("name", [
    "py.typed", "client/admission/admission.lua", "policy/presets/standard.yaml", "samples/trajectories.jsonl.gz",
    "samples/outcomes.json", "samples/ATTRIBUTION.md",
])  # fmt: skip
def test_it_holds_the_data_that_the_package_reads(wheel: zipfile.ZipFile, name: str) -> None:
    assert wheel.read(f"streamproc/{name}") == (ROOT / "streamproc" / name).read_bytes()


def test_it_holds_nothing_besides_the_package(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}

    assert tops == {"streamproc", f"streamproc-{__version__}.dist-info"}
    assert not [name for name in wheel.namelist() if "test_" in name or "_compiled/" in name or name.endswith(".pyc")]


def test_its_metadata_names_the_extras_the_licence_and_the_readme(wheel: zipfile.ZipFile) -> None:
    found = HeaderParser().parsestr(wheel.read(f"streamproc-{__version__}.dist-info/METADATA").decode())

    assert found["Version"] == __version__
    assert found["License-Expression"] == "Apache-2.0"
    assert {"demo", "rocksdb"} <= set(found.get_all("Provides-Extra"))
    assert found.get_payload().lstrip().startswith("# streamproc")
    assert f"streamproc-{__version__}.dist-info/licenses/LICENSE" in wheel.namelist()
