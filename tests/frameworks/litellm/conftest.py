"""What all tests of LiteLLM need, before it is imported."""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices
os.environ["LITELLM_LOG"] = "ERROR"
