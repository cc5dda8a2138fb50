"""The software bill of materials (SBOM) of streamproc: what `requirements-runtime.lock` installs, as CycloneDX JSON.

    .venv/bin/python deploy/local/sbom.py [FILE]

Versions and hashes come from the lock, licences and dependencies from the packages installed here. A package for
another platform is listed without its licence.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements-runtime.lock"
FILE = ROOT / "build" / "streamproc.cdx.json"
EXTRAS = ("otel", "page", "rocksdb")  # that the lock has: the image runs everything
ENTRY = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\\n]+))?")


def normalised(name: str) -> str:
    """Return a package name as the index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def component(entry: str) -> Component:
    """Return the component of one entry of the lock."""
    found = ENTRY.match(entry)
    assert found is not None, entry
    name, version = normalised(found["name"]), found["version"]
    marker = (found["marker"] or "").strip()
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        bom_ref=f"{name}@{version}",
        purl=PackageURL("pypi", name=name, version=version),
        hashes=[
            HashType(alg=HashAlgorithm.SHA_256, content=digest)
            for digest in re.findall(r"sha256:([0-9a-f]{64})", entry)
        ],
        licenses=licences(installed(name)),
        properties=[Property(name="streamproc:environment-marker", value=marker)] if marker else (),
    )


def installed(name: str) -> Distribution | None:
    """Return an installed package; None if it is for another platform."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licences(package: Distribution | None) -> list:
    """Return the licence that a package declares: an SPDX expression, a text, or its classifiers."""
    if package is None:
        return []
    make, about = LicenseFactory(), package.metadata
    if expression := about.get("License-Expression"):
        return [make.make_from_string(expression)]
    lines = about.get_all("Classifier") or ()
    named = sorted({line.split(" :: ")[-1] for line in lines if line.startswith("License :: OSI")})
    free = [line[:60] for line in (about.get("License") or "").strip().splitlines()[:1]]
    return [make.make_with_name(name) for name in named] or [make.make_from_string(name) for name in free]


def required(package: Distribution | None, extras: tuple[str, ...] = ()) -> set[str]:
    """Return the names of the packages that a package requires, with those of these extras only."""
    lines = (package.requires if package is not None else None) or ()
    extra_of = {line: re.search(r"extra == ['\"]([^'\"]+)", line) for line in lines}
    wanted = (line for line, extra in extra_of.items() if extra is None or extra[1] in extras)
    names = (re.match(r"[A-Za-z0-9._-]+", line) for line in wanted)
    return {normalised(name[0]) for name in names if name is not None}


def bill(lock: Path = LOCK) -> Bom:
    """Return the bill of materials of a lock."""
    ours = distribution("streamproc")
    root = Component(
        type=ComponentType.APPLICATION,
        name="streamproc",
        version=ours.version,
        bom_ref="streamproc",
        purl=PackageURL("pypi", name="streamproc", version=ours.version),
        licenses=licences(ours),
    )
    bom = Bom(components=[component(entry) for entry in re.split(r"\n(?=\S)", lock.read_text().strip())])
    bom.metadata.component = root
    by_name = {one.name: one for one in bom.components}
    for package in (root, *bom.components):
        needed = required(installed(package.name), EXTRAS if package is root else ())
        bom.register_dependency(package, [by_name[name] for name in sorted(needed & by_name.keys())])
    return bom


def write(file: Path = FILE) -> int:
    """Write the bill of materials; return the number of its components."""
    bom = bill()
    file.parent.mkdir(parents=True, exist_ok=True)
    JsonV1Dot6(bom).output_to_file(str(file), allow_overwrite=True, indent=2)
    return len(bom.components)


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)} components")
