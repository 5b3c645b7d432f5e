"""Reads the description of a function and its parameters from its docstring.

The plain Google style: a description, then sections such as `Args:` with one `name: text` or `name
(type): text` per parameter, continued on lines that are indented further.
"""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Examples?|Notes?):\s*$"
)
_PARAM = re.compile(r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def read_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Return the description, and the text for each parameter named under `Args:`."""
    description: list[str] = []
    params: dict[str, list[str]] = {}
    section: str | None = None
    margin: int | None = None
    current: list[str] | None = None
    for line in inspect.cleandoc(docstring or "").splitlines():
        indent = len(line) - len(line.lstrip())
        if not indent and (found := _SECTION.match(line)):
            section, margin, current = found[1], None, None
        elif not indent and line and section is not None:
            section = None
            description.append(line)
        elif section is None:
            description.append(line)
        elif section in {"Args", "Arguments", "Parameters"} and line:
            margin = indent if margin is None else margin
            if indent <= margin and (param := _PARAM.match(line.strip())):
                current = params.setdefault(param[1], [])
                current.append(param[2])
            elif current is not None:
                current.append(line.strip())
    texts = {name: " ".join(filter(None, lines)) for name, lines in params.items()}
    return "\n".join(description).strip(), {name: text for name, text in texts.items() if text}
