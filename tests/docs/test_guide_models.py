"""Each row of the tables of dialects names a test, and the example can be read."""

import re
from pathlib import Path

import pytest

from component.config.llm import LLM

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "models.md").read_text()


@pytest.mark.parametrize(
    ("title", "least"),
    [("Dialects and providers", 13), ("What compatible servers do differently", 20)],
)
def test_each_row_of_the_tables_names_a_test(title: str, least: int) -> None:
    section = GUIDE.partition(f"## {title}")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if re.match(r"\| (?!\|)", line)]
    rows = [row for row in rows if not row.startswith(("| provider", "| |", "| what servers"))]
    assert len(rows) >= least
    for row in rows:
        (file, name) = re.search(r"`(tests/[\w/]+\.py)::(\w+)` \|$", row).groups()
        assert f"def {name}(" in (ROOT / file).read_text(), row


def test_the_example_can_be_read() -> None:
    import tomllib

    (example,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    llm = LLM.model_validate(tomllib.loads(example)["llm"])
    assert llm.reasoning_effort == "low"
    assert llm.extra_body == {"service_tier": "flex"}
    assert llm.headers["X-Team"].get_secret_value() == "agents"
