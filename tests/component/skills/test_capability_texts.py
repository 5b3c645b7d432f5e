"""The capabilities that code declares as texts mean what they mean in a manifest."""

import pytest

from component.skills.capabilities import Capabilities, capabilities_of
from component.skills.manifest import read_manifest

WHOLE = """
[skill]
name = "one"
version = "1"
[skill.execution]
kind = "python"
entry = "main.py"
[skill.capabilities]
network = ["https://api.example.com:8443", "http://[::1]:8080"]
credential = ["weather-key"]
memory_read = ["skill"]
memory_write = ["skill"]
xmpp = ["juliet@example.com"]
llm = { max_tokens = 1_000_000 }
"""


def test_texts_are_read_as_they_are_written() -> None:
    declared = read_manifest(WHOLE).skill.capabilities
    found = capabilities_of(declared.texts)
    assert set(found.texts) == set(declared.texts)
    assert found.connects("http", "::1", 8080)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("network:api.example.com:443", "https://api.example.com:443"),
        ("network:localhost:80", "http://localhost:80"),
        ("network:localhost:8080:http", "http://localhost:8080"),
    ],
)
def test_a_scheme_may_be_missing(text: str, endpoint: str) -> None:
    assert capabilities_of([text]).network == (endpoint,)


@pytest.mark.parametrize("text", ["memory:write", "network", "network:*", "xmpp:a/b", "other:x"])
def test_what_names_no_function_is_left_out(text: str) -> None:
    assert capabilities_of([text]) == Capabilities()
