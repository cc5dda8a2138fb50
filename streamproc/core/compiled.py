"""The compiled core: extension modules that `deploy/compiled/build.py` makes of the sources of `core` and `detectors`.

They are used where they are there and were made of exactly these sources; else the sources are, and a warning says why.
Both decide alike, byte for byte. The environment's STREAMPROC_CORE says otherwise: `python` leaves them alone,
`compiled` accepts nothing else.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import warnings
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
SOURCES: Final = ("core/**/*.py", "detectors/*.py", "model/wire.py")
HEAD_BYTES: Final = 16  # of an object, before its first field
FIELD_BYTES: Final = 8


def sources_hash(package: Path = PACKAGE) -> str:
    """What a build was made of, and must be made of to be used."""
    digest = xxhash.xxh3_128()
    for pattern in SOURCES:
        for file in sorted(package.glob(pattern)):
            digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def abi() -> str:
    """Which Python an extension module is for, and on which machine."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


class CompiledModules:
    """Finds the modules of a build, once it is known to fit."""

    def __init__(self, folder: Path, *, required: bool) -> None:
        self._folder = folder
        self._required = required
        self._manifest: dict[str, Any] | None = None
        self._checked = False
        self.fault = ""
        """Why the build is not used; empty where it is."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Where a module of the core is; None where Python has to look for its source."""
        if not fullname.startswith(("streamproc.core.", "streamproc.detectors.")):
            return None
        if self._manifest is None:
            self._read()
        file = (self._manifest or {}).get("modules", {}).get(fullname)
        # The check imports what is not compiled: asked for that, it must not begin, or there were two of it.
        if file is not None and not self._checked:
            self._checked = True
            self._check()
        return None if file is None or self.fault else spec_from_file_location(fullname, self._folder / file)

    def _read(self) -> None:
        self._manifest = {}
        try:
            self._manifest = json.loads((self._folder / MANIFEST).read_bytes())
        except (OSError, ValueError) as error:
            self._refuse(f"it cannot be read ({error})")

    def _check(self) -> None:
        try:
            fault = self._mismatch(self._manifest or {})
        except (OSError, KeyError, ImportError) as error:
            fault = f"it cannot be read ({error})"
        if fault:
            self._refuse(fault)

    def _refuse(self, fault: str) -> None:
        self.fault = fault
        if self._required:
            raise ImportError(f"STREAMPROC_CORE=compiled, and the build in {self._folder} is of no use: {fault}")
        warnings.warn(
            f"streamproc decides in pure Python: there is a compiled core in {self._folder}, and {fault}. "
            "`make compile` makes it anew, and `make clean` takes it away.",
            RuntimeWarning,
            stacklevel=2,
        )

    def _mismatch(self, made: dict[str, Any]) -> str:
        if made["abi"] != abi():
            return f"it was made for another Python ({made['abi']}, and this is {abi()})"
        if made["sources"] != sources_hash():
            return "the sources have changed since it was made"
        slot_offsets = self._load("layouts", made["layouts"]).slot_offsets
        for place, fields in made["fields"].items():
            module, _, name = place.rpartition(".")
            kind = getattr(import_module(module), name)
            offsets = {field: HEAD_BYTES + FIELD_BYTES * number for number, field in enumerate(fields)}
            if slot_offsets(kind) != offsets or kind.__basicsize__ != HEAD_BYTES + FIELD_BYTES * len(fields):
                return f"the fields of {name} lie elsewhere in memory: another version of msgspec is installed"
        return ""

    def _load(self, name: str, file: str) -> ModuleType:
        path = str(self._folder / file)
        spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no extension module")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def activate(folder: Path = FOLDER) -> None:
    """Use the build in this folder, where there is one and nobody forbids it."""
    wanted = os.environ.get("STREAMPROC_CORE", "")
    if wanted != "python" and (folder.is_dir() or wanted == "compiled"):
        sys.meta_path.insert(0, CompiledModules(folder, required=wanted == "compiled"))


def core_kind() -> str:
    """What decides in this process: ``compiled`` or ``python``."""
    file = import_module("streamproc.core.engine").__file__ or ""
    return "python" if file.endswith(".py") else "compiled"


def why_not() -> str:
    """Why a build that is there is not used; empty where it is, or where there is none."""
    core_kind()
    return next((finder.fault for finder in sys.meta_path if isinstance(finder, CompiledModules)), "")
