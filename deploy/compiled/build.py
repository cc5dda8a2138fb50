"""Compile the core of the installed streamproc (or of this checkout, if that is installed) for this Python.

Cython compiles the same sources that pure Python runs. `make compile` calls this script. With an installed wheel, you
need ``pip install 'streamproc[compile]'`` and a C compiler: ``python deploy/compiled/build.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "binding": False,
    "nonecheck": True,
    "auto_pickle": False,
}
FLAGS = ["-O2", "-g0", "-w"]
SCAN_FLAGS = ["-O3", "-g0", "-w"]  # loops over characters


def say(line: str) -> None:
    print(f"compile: {line}", flush=True)


def need_tools() -> None:
    """Exit with a remedy if a tool is missing."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit(
            "compile: needs CPython with its global interpreter lock. streamproc works without it, in pure Python."
        )
    for module, package in (("Cython", "cython"), ("mypy", "mypy"), ("setuptools", "setuptools")):
        try:
            import_module(module)
        except ImportError:
            sys.exit(f"compile: {package} is missing. Run: pip install 'streamproc[compile]' (or make setup).")
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if shutil.which(compiler) is None:
        sys.exit(
            f"compile: found no C compiler ({compiler}). Run: apt-get install gcc (Debian, Ubuntu) or "
            "xcode-select --install (macOS), or set CC. streamproc works without it, in pure Python."
        )
    if not header.exists():
        sys.exit(
            f"compile: {header} is missing. Run: apt-get install python3-dev, or install your system's equivalent."
        )


@contextmanager
def work_folder(given: Path | None) -> Iterator[Path]:
    """Yield the folder for C sources and objects: the given one, which speeds up the next build, or a temporary one."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="streamproc-compile-") as made:
        yield Path(made)


def generate(package: Path, work: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Write sources and declarations. Return the modules, and the fields of each struct in memory order."""
    from declarations import Declarations, Types, of_structs, write
    from sources import constants, read, rewritten

    compiled, structs = read(package)
    types = Types(compiled, structs)
    known: dict[str, int] = {}
    for one in (*compiled, *structs):
        known |= constants(import_module(one.name), one)
    declarations = Declarations(compiled, types)
    for folder in {Path(*one.name.split(".")[:-1]) for one in (*compiled, *structs)} | {Path("streamproc")}:
        write(work / folder / "__init__.pxd", "")
        write(work / folder / "__init__.py", "")
    for one in structs:
        write(work / one.name.replace(".", "/") / ".." / f"{one.path.stem}.pxd", of_structs(one.name, types))
    for one in compiled:
        place = work / one.name.replace(".", "/")
        write(place.with_suffix(".py"), rewritten(one, known, declarations.of_others(one)))
        write(place.with_suffix(".pxd"), declarations.of(one))
    write(work / "layouts.pyx", (HERE / "layouts.pyx").read_text(encoding="utf-8"))
    write_scan(package / "fingerprint", work / "streamproc" / "fingerprint")
    return [one.name for one in compiled], types.structs


def write_scan(folder: Path, work: Path) -> None:
    """Write the source of the fingerprint, and its tables."""
    from declarations import write

    from streamproc.fingerprint.tables import written

    write(work / "__init__.py", "")
    for file in (*folder.glob("*.pyx"), *folder.glob("*.pxi")):
        write(work / file.name, file.read_text(encoding="utf-8"))
    write(work / "tables.pxi", written())


def compile_all(work: Path, modules: list[str], jobs: int) -> None:
    """Translate and compile; on failure, exit with the end of the compiler's output."""
    from streamproc.core.compiled import SCAN

    files = [f"{module.replace('.', '/')}.py" for module in modules]
    script = f"""
from Cython.Build import cythonize
from setuptools import Extension, setup
if __name__ == "__main__":
    names = {[*modules, "layouts"]!r}
    files = {[*files, "layouts.pyx"]!r}
    extensions = [Extension(name, [file], extra_compile_args={FLAGS!r}) for name, file in zip(names, files)]
    extensions = cythonize(extensions, compiler_directives={DIRECTIVES!r}, nthreads={jobs}, quiet=True)
    scan = Extension({SCAN!r}, [{SCAN.replace(".", "/") + ".pyx"!r}], extra_compile_args={SCAN_FLAGS!r})
    extensions += cythonize([scan], quiet=True)
    setup(name="streamproc-core", ext_modules=extensions,
          script_args=["--quiet", "build_ext", "--build-lib", "lib", "--parallel", "{jobs}"])
"""
    (work / "setup.py").write_text(script, encoding="utf-8")
    with (work / "log.txt").open("w", encoding="utf-8") as log:
        ended = subprocess.run([sys.executable, "setup.py"], cwd=work, stdout=log, stderr=log, check=False)
    if ended.returncode:
        lines = (work / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        sys.exit("\n".join([*lines[-40:], "compile: failed, see the output above. Nothing was installed."]))


def install(work: Path, folder: Path, modules: list[str], fields: dict[str, list[str]], sources: str) -> None:
    """Install the modules for `streamproc.core.compiled`; the manifest, which enables them, is written last."""
    from streamproc.core.compiled import MANIFEST, SCAN, abi

    shutil.rmtree(folder, ignore_errors=True)
    files = {}
    for module in [*modules, SCAN, "layouts"]:
        built = work / "lib" / (module.replace(".", "/") + abi())
        files[module] = str(built.relative_to(work / "lib")).removeprefix("streamproc/")
        (folder / files[module]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built, folder / files[module])
    layouts = files.pop("layouts")
    manifest = {"abi": abi(), "sources": sources, "layouts": layouts, "modules": files, "fields": fields}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def check(folder: Path) -> None:
    """Import every module of the build, in a Python that requires them."""
    code = (
        "import streamproc.detectors; from streamproc.core.compiled import core_kind;"
        "from streamproc.fingerprint.mask import scan; print(core_kind() if scan else 'no fingerprint')"
    )
    environment = os.environ | {"STREAMPROC_CORE": "compiled"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if ended.returncode or ended.stdout.strip() != "compiled":
        shutil.rmtree(folder)
        sys.exit(f"{ended.stdout}{ended.stderr}compile: the build cannot be imported and was removed.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder for C sources and objects (default: a temporary one)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of compilers to run in parallel")
    options = parser.parse_args()
    os.environ["STREAMPROC_CORE"] = "python"
    need_tools()
    from streamproc.core.compiled import FOLDER, PACKAGE, sources_hash

    started, sources = time.monotonic(), sources_hash()
    with work_folder(options.work) as work:
        say(f"reading {PACKAGE}")
        modules, fields = generate(PACKAGE, work)
        say(f"compiling {len(modules) + 1} modules, {options.jobs} in parallel (takes a few minutes)")
        compile_all(work, modules, options.jobs)
        install(work, FOLDER, modules, fields, sources)
    check(FOLDER)
    size = sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())
    say(f"done in {time.monotonic() - started:.0f} s: {size / 1e6:.0f} MB in {FOLDER}")
    say("every new process of this installation uses it; set STREAMPROC_CORE=python to run pure Python")


if __name__ == "__main__":
    main()
