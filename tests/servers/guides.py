"""The guides are the configuration: what docs/*.md tells an admin to add is what the tests run.

A guide marks a fenced block with an HTML comment on the line before it, `<!-- run by the tests:
component -->`, and writes its examples with four values that stand for the admin's own. `fill`
puts the values of a test server in their places; nothing else of a block is ever changed.

| in the guide  | stands for                                                        |
|---------------|-------------------------------------------------------------------|
| `example.com` | the server's host name, also inside `agent.example.com`            |
| `127.0.0.1`   | the address the component listener binds to                        |
| its `PORTS`   | its port                                                           |
| `change-me`   | the component's secret                                             |
"""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
HOST, ADDRESS, SECRET = "example.com", "127.0.0.1", "change-me"
PORTS = {"ejabberd": "5275", "prosody": "5347"}
PORT = PORTS["ejabberd"]
"""The port in guides that are not about one server."""


class GuideError(Exception):
    """A guide does not hold what the tests take from it; the sentence says what to restore."""


def block(guide: Path, name: str) -> str:
    """Return the body of the fenced block that `guide` marks with `name`.

    Raises GuideError unless there is exactly one.
    """
    marked = rf"^<!-- run by the tests: {re.escape(name)} -->\n+```\w*\n(.*?)^```$"
    found = re.findall(marked, guide.read_text(), re.MULTILINE | re.DOTALL)
    if len(found) != 1:
        raise GuideError(
            f"{guide.name} holds {len(found)} blocks marked '{name}': write the comment"
            f" <!-- run by the tests: {name} --> before exactly one fenced block"
        )
    return str(found[0])


def fill(text: str, values: dict[str, str]) -> str:
    """Put `values` (placeholder to value) into a block of a guide.

    Raises GuideError when the block lacks one of them: the test server would then silently run
    with something the guide does not say.
    """
    for placeholder in values:
        if placeholder not in text:
            raise GuideError(f"the block lacks {placeholder}, which the tests replace: {text}")
    pattern = "|".join(rf"\b{re.escape(placeholder)}\b" for placeholder in values)
    return re.sub(pattern, lambda match: values[match[0]], text)
