"""The example of the guide to models can be read."""

import re
from pathlib import Path

from component.config.llm import LLM

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "models.md").read_text()


def test_the_example_can_be_read() -> None:
    import tomllib

    (example,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    llm = LLM.model_validate(tomllib.loads(example)["llm"])
    assert llm.reasoning_effort == "low"
    assert llm.extra_body == {"service_tier": "flex"}
    assert llm.headers["X-Team"].get_secret_value() == "agents"
