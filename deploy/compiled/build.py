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
FLAGS = ["-O2", "-g0"]  # -O3 takes a third longer to compile, and the core is no faster
# What GCC 14 and Clang 16 refuse, older compilers refuse as well: a build that works here works there.
REFUSED = ("incompatible-pointer-types", "int-conversion", "implicit-function-declaration")
FLAGS += [f"-Werror={what}" for what in REFUSED]


def say(line: str) -> None:
    print(f"compile: {line}", flush=True)


def missing_tool() -> str:
    """Return what is missing, with a remedy; empty: nothing."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this needs CPython with its global interpreter lock"
    for module, package in (("Cython", "cython"), ("setuptools", "setuptools")):
        try:
            import_module(module)
        except ImportError:
            return f"{package} is missing; run: pip install 'streamproc[compile]' (or make setup)"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if shutil.which(compiler) is None:
        return (
            f"found no C compiler ({compiler}); run: apt-get install gcc (Debian, Ubuntu) or xcode-select --install "
            "(macOS), or set CC"
        )
    if not header.exists():
        return f"{header} is missing; run: apt-get install python3-dev, or install your system's equivalent"
    return ""


@contextmanager
def work_folder(given: Path | None) -> Iterator[Path]:
    """Yield the folder for C sources and objects: the given one, which speeds up the next build, or a temporary one."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="streamproc-compile-") as made:
        yield Path(made)


def generate(package: Path, work: Path) -> None:
    """Write the sources of both modules."""
    from sources import of_module
    from tables import written

    work.mkdir(parents=True, exist_ok=True)
    write(work / "core.pyx", of_module())
    for file in (package / "fingerprint").glob("*.p[yx][xi]"):
        write(work / file.name, file.read_text(encoding="utf-8"))
    write(work / "tables.pxi", written())


def write(file: Path, text: str) -> None:
    """Write a file, unless it has this text already: what has not changed is not compiled again."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


def compile_all(work: Path, jobs: int) -> None:
    """Translate and compile; on failure, exit with the end of the compiler's output."""
    script = f"""
from Cython.Build import cythonize
from setuptools import Extension, setup
if __name__ == "__main__":
    extensions = [Extension(name, [name + ".pyx"], extra_compile_args={FLAGS!r}) for name in ("core", "scan")]
    extensions = cythonize(extensions, nthreads={jobs}, quiet=True)
    setup(name="streamproc-core", ext_modules=extensions,
          script_args=["--quiet", "build_ext", "--build-lib", "lib", "--parallel", "{jobs}"])
"""
    (work / "setup.py").write_text(script, encoding="utf-8")
    with (work / "log.txt").open("w", encoding="utf-8") as log:
        ended = subprocess.run([sys.executable, "setup.py"], cwd=work, stdout=log, stderr=log, check=False)
    if ended.returncode:
        lines = (work / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        sys.exit("\n".join([*lines[-40:], "compile: failed, see the output above. Nothing was installed."]))


def install(work: Path, folder: Path, sources: str) -> None:
    """Install the modules for `streamproc.core.compiled`; the manifest, which enables them, is written last."""
    from xxhash import xxh3_128_hexdigest

    from streamproc.core.compiled import MANIFEST, abi

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = {}
    for name in ("core", "scan"):
        file = Path(shutil.copy2(work / "lib" / f"{name}{abi()}", folder))
        files[file.name] = xxh3_128_hexdigest(file.read_bytes())
    made = {"abi": abi(), "sources": sources, "files": files}
    (folder / MANIFEST).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


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
    parser.add_argument("--if-possible", action="store_true", help="go on in pure Python if a tool is missing")
    options = parser.parse_args()
    os.environ["STREAMPROC_CORE"] = "python"
    if missing := missing_tool():
        say(f"{missing}. streamproc works without it, in pure Python.")
        sys.exit(0 if options.if_possible else 1)
    from streamproc.core.compiled import FOLDER, PACKAGE, is_built, sources_hash

    started, sources = time.monotonic(), sources_hash()
    if options.if_possible and is_built():
        return
    with work_folder(options.work) as work:
        say("compiling the core and the fingerprint (takes half a minute)")
        generate(PACKAGE, work)
        compile_all(work, options.jobs)
        install(work, FOLDER, sources)
    check(FOLDER)
    size = sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file())
    say(f"done in {time.monotonic() - started:.0f} s: {size / 1e6:.0f} MB in {FOLDER}")


if __name__ == "__main__":
    main()
