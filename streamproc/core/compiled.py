"""The compiled core: extension modules that `deploy/compiled/build.py` builds from `core`, `detectors` and the
fingerprint's `scan.pyx`.

They are used if they exist and were built from exactly these sources. Otherwise the sources are used, and a warning
says why. Both decide alike, byte for byte. STREAMPROC_CORE in the environment overrides this: with `python` the build
is ignored, with `compiled` it is required.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import xxhash

PACKAGE: Final = Path(__file__).parents[1]
FOLDER: Final = PACKAGE / "_compiled"
MANIFEST: Final = "build.json"
SOURCES: Final = (
    "core/**/*.py", "detectors/*.py", "model/wire.py", "fingerprint/hash.py", "fingerprint/mask.py",
    "fingerprint/similarity.py", "fingerprint/tables.py", "fingerprint/*.pyx", "fingerprint/*.pxi",
)  # fmt: skip
SCAN: Final = "streamproc.fingerprint.scan"  # uses no structs of ours: publishers need not import the core for a check
HEAD_BYTES: Final = 16  # of an object's header, before its first field
FIELD_BYTES: Final = 8


def sources_hash(package: Path = PACKAGE) -> str:
    """Return the hash of the sources; a build is used only if it was made from the same ones."""
    digest = xxhash.xxh3_128()
    for pattern in SOURCES:
        for file in sorted(package.glob(pattern)):
            digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def abi() -> str:
    """Return the Python version and platform that extension modules are built for."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


class CompiledModules:
    """An import finder for the modules of a build that matches the sources and this Python."""

    def __init__(self, folder: Path, *, required: bool) -> None:
        self._folder = folder
        self._required = required
        self._manifest: dict[str, Any] | None = None
        self._checked: set[Callable[[dict[str, Any]], str]] = set()
        self.fault = ""
        """Why the build is not used; empty if it is."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Return where to load a module of the core from; None leaves it to Python, which loads the source."""
        if not fullname.startswith(("streamproc.core.", "streamproc.detectors.", SCAN)):
            return None
        if self._manifest is None:
            self._read()
        file = (self._manifest or {}).get("modules", {}).get(fullname)
        # The check imports modules that are not compiled. Starting it for one of those would import that module twice.
        if file is not None:
            for check in (_outdated,) if fullname == SCAN else (_outdated, self._differently_laid_out):
                if check not in self._checked and not self.fault:
                    self._checked.add(check)
                    self._check(check)
        return None if file is None or self.fault else spec_from_file_location(fullname, self._folder / file)

    def _read(self) -> None:
        self._manifest = {}
        try:
            self._manifest = json.loads((self._folder / MANIFEST).read_bytes())
        except (OSError, ValueError) as error:
            self._refuse(f"the build cannot be read ({error})")

    def _check(self, mismatch: Callable[[dict[str, Any]], str]) -> None:
        try:
            fault = mismatch(self._manifest or {})
        except (OSError, KeyError, ImportError) as error:
            fault = f"the build cannot be read ({error})"
        if fault:
            self._refuse(fault)

    def _refuse(self, fault: str) -> None:
        self.fault = fault
        if self._required:
            raise ImportError(
                f"STREAMPROC_CORE=compiled requires the compiled core, but the build in {self._folder} cannot be used: "
                f"{fault}. To rebuild it, run `make compile`."
            )
        warnings.warn(
            f"streamproc runs in pure Python: the compiled core in {self._folder} is not used, because {fault}. "
            "Run `make compile` to rebuild it, or `make clean` to remove it.",
            RuntimeWarning,
            stacklevel=2,
        )

    def _differently_laid_out(self, made: dict[str, Any]) -> str:
        slot_offsets = self._load("layouts", made["layouts"]).slot_offsets
        for path, fields in made["fields"].items():
            module, _, name = path.rpartition(".")
            kind = getattr(import_module(module), name)
            offsets = {field: HEAD_BYTES + FIELD_BYTES * number for number, field in enumerate(fields)}
            if slot_offsets(kind) != offsets or kind.__basicsize__ != HEAD_BYTES + FIELD_BYTES * len(fields):
                return f"the memory layout of {name} differs: another version of msgspec is installed"
        return ""

    def _load(self, name: str, file: str) -> ModuleType:
        path = str(self._folder / file)
        spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is not an extension module")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def _outdated(made: dict[str, Any]) -> str:
    if made["abi"] != abi():
        return f"it was built for another Python ({made['abi']}; this is {abi()})"
    if made["sources"] != sources_hash():
        return "the sources have changed since it was built"
    return ""


def activate(folder: Path = FOLDER) -> None:
    """Use the build in this folder, if it exists and STREAMPROC_CORE does not forbid it."""
    wanted = os.environ.get("STREAMPROC_CORE", "")
    if wanted != "python" and (folder.is_dir() or wanted == "compiled"):
        sys.meta_path.insert(0, CompiledModules(folder, required=wanted == "compiled"))


def core_kind() -> str:
    """Return which core this process runs: ``compiled`` or ``python``."""
    file = import_module("streamproc.core.engine").__file__ or ""
    return "python" if file.endswith(".py") else "compiled"


def build_fault() -> str:
    """Return why an existing build is not used; empty if it is used, or if there is none."""
    core_kind()
    return next((finder.fault for finder in sys.meta_path if isinstance(finder, CompiledModules)), "")
