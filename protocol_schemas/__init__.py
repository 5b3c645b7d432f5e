"""What is on the wire, as data: one XML Schema for each namespace of urn:fluux:agent:0.

The schemas describe what the specification defines and nothing beside it. What others add, in
namespaces of their own, is ignored by receivers and has no place in here. They refer to each other
by file name, so a validator is given their folder.
"""

from importlib.resources import files
from typing import Final

NAMESPACES: Final = {
    f"urn:fluux:agent:0#{name}": f"{name}.xsd"
    for name in (
        *("skills", "execute", "confirm", "task", "plan", "delegation", "grant", "keys"),
        *("memory", "provenance", "errors"),
    )
}
"""The file of each namespace."""


def xsd(namespace: str) -> str:
    """The XML Schema of ``namespace``.

    Raises:
        KeyError: there is none.
    """
    return files(__name__).joinpath(NAMESPACES[namespace]).read_text("utf-8")
