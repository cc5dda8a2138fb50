"""The build hook of the wheel: with STREAMPROC_BUILD_NATIVE=1 it adds the compiled core, and tags the wheel for this
Python and platform. Without it the wheel is pure, and needs hatchling only.

    STREAMPROC_BUILD_NATIVE=1 pip wheel --no-deps .

An editable install never gets the compiled core from here: `make compile` builds it in the checkout.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE: Final = "STREAMPROC_BUILD_NATIVE"
IMPORTED: Final = {"msgspec", "orjson", "pydantic", "xxhash"}
"""What the build imports of the dependencies: constants and tables come from the modules of the package."""

COMPILE: Final = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from build import compile_all, generate, install, missing_tool
if missing := missing_tool():
    sys.exit(f"compile: {missing}.")
from streamproc.core.compiled import PACKAGE, sources_hash
work, folder = Path(sys.argv[1]), Path(sys.argv[2])
sources = sources_hash()
generate(PACKAGE, work)
compile_all(work, int(sys.argv[3]))
install(work, folder, sources)
"""


def wanted() -> bool:
    """Return whether the wheel is to contain the compiled core; exit if the variable is neither 0, 1 nor empty."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        sys.exit(f"{VARIABLE} is {value!r}. Set it to 1 for a wheel with the compiled core, or to 0 for a pure one.")
    return value == "1"


class CompiledCoreHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the core for a wheel."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling: nothing for a pure wheel."""
        if not wanted():
            return []
        core = self.metadata.core
        imported = [line for line in core.dependencies if re.split(r"[^\w-]", line, maxsplit=1)[0] in IMPORTED]
        return [*core.optional_dependencies["compile"], *imported]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the sources of this tree in a temporary folder; the checkout stays as it is."""
        if version != "standard" or not wanted():
            return
        self._folder = tempfile.TemporaryDirectory(prefix="streamproc-wheel-")
        work, built = Path(self._folder.name, "work"), Path(self._folder.name, "_compiled")
        compile_core(Path(self.root), work, built)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {str(file): f"streamproc/_compiled/{file.name}" for file in built.iterdir()}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the temporary folder."""
        if self._folder is not None:
            self._folder.cleanup()


def compile_core(root: Path, work: Path, built: Path) -> None:
    """Compile the core of the tree `root` into the folder `built`, in a process that imports that tree and no other."""
    # Not in PYTHONPATH: pip removes folders from there that the environment around an isolated build has as editable.
    paths = [str(root), str(root / "deploy" / "compiled")]
    command = [sys.executable, "-P", "-c", COMPILE, str(work), str(built), str(os.cpu_count() or 1), *paths]
    environment = os.environ | {"STREAMPROC_CORE": "python"}
    if subprocess.run(command, env=environment, check=False).returncode:
        sys.exit(f"The compiled core could not be built, see above. Without {VARIABLE} the wheel is pure.")
