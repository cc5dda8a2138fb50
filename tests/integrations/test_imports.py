"""What an import brings with it: no framework before its adapter, and of other packages only those named here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ENGINE = {"annotated_types", "msgspec", "orjson", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
KAFKA = {"aiokafka", "async_timeout", "cramjam", "dotenv", "packaging", "pydantic_settings"}
# A package that is added here is paid for in the start of every program that uses streamproc: `python -X importtime`.
ALLOWED = {
    "import streamproc": {"xxhash"},
    "from streamproc import Halted": {"xxhash"},
    "from streamproc import Watch": {"msgspec", "typing_extensions", "xxhash"},
    "from streamproc import Monitor; Monitor()": {*ENGINE, "xxhash", "yaml"},
    "from streamproc import Watch; Watch()": {*ENGINE, "xxhash", "yaml"},
    "from streamproc import TurnPublisher, HaltListener": {*ENGINE, *KAFKA, "xxhash"},
}

FRAMEWORKS = ("agents", "openai", "pydantic_ai", "langchain_core", "langgraph", "anthropic", "litellm", "crewai")
FRAMEWORKS += ("agent_framework",)
FRAMEWORKS += ("ag2", "autogen_agentchat", "autogen_core")
FRAMEWORKS += ("claude_agent_sdk",)


@pytest.mark.parametrize("module", ["streamproc", "streamproc.integrations.watch", "streamproc.testing"])
def test_a_module_of_ours_imports_no_framework(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules.keys() & set({FRAMEWORKS!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


def test_an_adapter_imports_its_own() -> None:
    code = (
        "import sys, streamproc.integrations.pydantic_ai; print('pydantic_ai' in sys.modules, 'agents' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("program", ALLOWED)
def test_a_program_imports_no_more_packages_than_are_allowed(program: str) -> None:
    code = (
        f"import sys; before = set(sys.modules); {program}\n"
        "names = {name.partition('.')[0] for name in sys.modules.keys() - before} - sys.stdlib_module_names\n"
        "print(*sorted(name for name in names - {'streamproc', 'cython_runtime'} if not name.startswith('_')))"
    )
    pure = {name: value for name, value in os.environ.items() if not name.startswith("STREAMPROC_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
        env=pure | {"STREAMPROC_CORE": "python"},
    )  # fmt: skip
    assert set(done.stdout.split()) <= ALLOWED[program]
