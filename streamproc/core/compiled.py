"""The compiled core: two extension modules that `deploy/compiled/build.py` makes of the core's parts and of the
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
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import xxhash

PACKAGE: Final = Path(__file__).parents[1]
FOLDER: Final = PACKAGE / "_compiled"
MANIFEST: Final = "build.json"
CORE: Final = "streamproc._compiled.core"
SCAN: Final = "streamproc.fingerprint.scan"
PARTS: Final = (
    *(f"streamproc.core.{name}" for name in ("records", "names", "marks")),
    *(f"streamproc.core.signals.{name}" for name in ("streaks", "periods", "novelty", "nodes", "evidence")),
    "streamproc.core.now", *(f"streamproc.core.signals.{name}" for name in (
        "calls", "tools", "failing_tests", "artifacts", "node_errors", "similarity", "queries", "monologues",
        "text_streaks", "replies", "own_turns", "statements", "handovers", "cycles", "cycle_memory", "metrics",
        "spend", "pace", "reruns", "callers",
    )), *(f"streamproc.core.{name}" for name in (
        "escalation", "run_state", "episodes", "size_budget", "packed_states", "outcome", "view", "observe_results",
        "observe_spend", "observe_texts", "observe_handovers", "observer", "status", "decide", "membership", "engine",
        "slice_steps",
    )),
)  # fmt: skip
"""The modules that become one C module, each after those it imports from."""

SOURCES: Final = (
    *(f"{part.removeprefix('streamproc.').replace('.', '/')}.py" for part in PARTS), "core/kind.py", "core/graph.py",
    "core/session_tree.py", "core/*.pxi", "model/wire.py", "model/wire_parts.py", "model/log_time.py",
    "fingerprint/mask.py", "fingerprint/*.pyx", "fingerprint/*.pxi",
)  # fmt: skip
"""The files that the modules are made of, and those whose constants are numbers in them."""


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
        self._usable: bool | None = None
        self.fault = ""
        """Why the build is not used; empty if it is."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Return where to load a module of the core from; None leaves it to Python, which loads the source.

        The C module is loaded before any other module of the core: it contains parts that import those, and parts that
        those import.
        """
        if not fullname.startswith("streamproc.core.") and fullname != SCAN:
            return None
        if self._usable is None:
            self._usable = False
            self._check()
        if self.fault and self._required:
            self._refuse(self.fault)  # each time: an import that failed may be tried again
        if not self._usable:
            return None
        if fullname == SCAN:
            return spec_from_file_location(SCAN, self._folder / f"scan{abi()}")
        if CORE not in sys.modules and not self._load():
            return None
        module = sys.modules.get(fullname)
        if module is None:
            return None
        spec = ModuleSpec(fullname, _Loaded(module))
        module.__spec__ = spec  # Python takes this one, and would load the module a second time by its own
        return spec

    def _load(self) -> bool:
        """Load the C module, under the names of all parts, so that what it imports finds them."""
        file = str(self._folder / f"core{abi()}")
        loader = ExtensionFileLoader(CORE, file)
        spec = ModuleSpec(CORE, loader, origin=file)
        spec.has_location = True
        try:
            core = module_from_spec(spec)  # links it; nothing of it has run yet
        except ImportError as error:
            self._usable = False
            self._refuse(f"it cannot be loaded ({error})")
            return False
        sys.modules.update(dict.fromkeys((CORE, *PARTS), core))
        try:
            loader.exec_module(core)
        except BaseException as error:
            for name in (CORE, *PARTS):
                sys.modules.pop(name, None)
            if isinstance(error, ImportError) and error.name == CORE:  # `check_places`: nothing of it has run yet
                self._usable = False
                self._refuse(f"it does not fit what is installed ({error})")
                return False
            raise
        for name in PARTS:
            package, _, part = name.rpartition(".")
            setattr(import_module(package), part, core)  # as an import of it would, once
        return True

    def _check(self) -> None:
        try:
            made: dict[str, Any] = json.loads((self._folder / MANIFEST).read_bytes())
            fault = _outdated(made) or _damaged(made, self._folder)
        except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
            fault = f"the build cannot be read ({error})"
        self._usable = not fault
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


class _Loaded(Loader):
    """A loader for a module that is loaded already, perhaps under another name."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, _: ModuleSpec) -> ModuleType:
        """Return the module."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but restore its name and place: the module has run."""
        module.__spec__ = self._spec


def is_built(folder: Path = FOLDER) -> bool:
    """Return whether a folder holds a build of these sources for this Python."""
    try:
        return not _outdated(json.loads((folder / MANIFEST).read_bytes()))
    except (OSError, KeyError, ValueError):
        return False


def _outdated(made: dict[str, Any]) -> str:
    if made["abi"] != abi():
        return f"it was built for another Python ({made['abi']}; this is {abi()})"
    if made["sources"] != sources_hash():
        return "the sources have changed since it was built"
    return ""


def _damaged(made: dict[str, Any], folder: Path) -> str:
    """Say which file of a build is not as it was written: the linker does not check that, and crashes."""
    for name, hashed in made["files"].items():
        if xxhash.xxh3_128_hexdigest((folder / name).read_bytes()) != hashed:
            return f"{name} has changed since it was built"
    return ""


def activate(folder: Path = FOLDER) -> None:
    """Use the build in this folder, if it exists and STREAMPROC_CORE does not forbid it."""
    wanted = os.environ.get("STREAMPROC_CORE", "")
    if wanted != "python" and (folder.is_dir() or wanted == "compiled"):
        sys.meta_path.insert(0, CompiledModules(folder, required=wanted == "compiled"))


def core_kind() -> str:
    """Return which core this process runs: ``compiled`` or ``python``."""
    file = import_module("streamproc.core.run_state").__file__ or ""
    return "python" if file.endswith(".py") else "compiled"


def build_fault() -> str:
    """Return why an existing build is not used; empty if it is used, or if there is none."""
    core_kind()
    return next((finder.fault for finder in sys.meta_path if isinstance(finder, CompiledModules)), "")
