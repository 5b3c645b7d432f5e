"""The types that are checked are those of `skill.wit`."""

from __future__ import annotations

import re
from pathlib import Path

import protocol_schemas
from component.sandbox.wasm_component import EXECUTE, INTERFACES, WIT_VERSION, interface_of

WIT = re.sub(r"//.*", "", (Path(protocol_schemas.__file__).parent / "skill.wit").read_text())


def functions(block: str) -> dict[str, str]:
    """The functions of an interface, with the types that it defines written in place."""
    types = {}
    definition = r"\b(enum|record|variant) ([a-z-]+) \{(.*?)\}"
    for kind, name, body in re.findall(definition, block, re.DOTALL):
        parts = " ".join(body.split()).rstrip(",")
        if kind == "variant":
            parts = re.sub(r"\(([^()]*)\)", r": \1", parts)
        types[name] = f"{kind}{{{parts.strip()}}}"
    found = {}
    for name, signature in re.findall(r"([a-z-]+): func(\(.*?);", block, re.DOTALL):
        text = " ".join(signature.split())
        for _ in range(3):
            for type_, written in types.items():
                text = re.sub(rf"(?<=[ <]){type_}(?=[,>)}}]|$)", written, text)
        found[name] = text
    return found


def test_the_types_are_those_of_the_file() -> None:
    """Each interface has the functions and types that components are compared with."""
    blocks = dict(re.findall(r"^interface ([a-z-]+) \{(.*?)^\}", WIT, re.DOTALL | re.MULTILINE))
    assert {name: functions(block) for name, block in blocks.items()} == INTERFACES
    (world,) = re.findall(r"^world skill \{(.*?)^\}", WIT, re.DOTALL | re.MULTILINE)
    assert functions(world) == {"execute": EXECUTE}
    assert f"@{WIT_VERSION};" in WIT


def test_names_of_interfaces() -> None:
    """Only interfaces of the package have a name."""
    assert interface_of("xmpp-agent:skill/http@0.1.0") == "http"
    assert interface_of("xmpp-agent:skill/http@0.1.7") == "http"
    for other in ("wasi:http/outgoing-handler@0.2.0", "xmpp-agent:skill/http@0.2.0", "http", ""):
        assert interface_of(other) == ""
