"""No framework is imported before its adapter is."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
