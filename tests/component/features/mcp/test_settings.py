"""Two lines of TOML are an MCP server."""

from pathlib import Path

import pytest

from component.app.features import load
from component.config import Settings, SettingsError
from component.features.mcp.settings import SERVERS

BASE = """
[server]
component_domain = "agent.example.com"
component_secret = "s"
"""

CONTRADICTION = """
[mcp.a]
command = ["a"]
[mcp.a.annotations.b]
read_only = true
destructive = true
"""


def read(tmp_path: Path, text: str, **environ: str) -> Settings:
    path = tmp_path / "agent.toml"
    path.write_text(BASE + text)
    return load(path, environ)


def test_an_mcp_server_needs_only_its_command(tmp_path: Path) -> None:
    settings = read(tmp_path, '[mcp.time]\ncommand = ["mcp-server-time"]\n')
    entry = settings[SERVERS]["time"]
    assert entry.command == ("mcp-server-time",)
    assert not entry.trusted_annotations
    assert not entry.sampling
    assert not entry.shared
    assert entry.taint == "web"


def test_secrets_come_from_the_environment(tmp_path: Path) -> None:
    text = """
[mcp.a]
command = ["a"]
env = { TOKEN = "${TOKEN}" }
[mcp.b]
url = "https://b.example/mcp"
headers = { Authorization = "Bearer ${TOKEN}" }
"""
    settings = read(tmp_path, text, TOKEN="very secret")
    assert settings[SERVERS]["a"].env["TOKEN"].get_secret_value() == "very secret"
    assert (
        settings[SERVERS]["b"].headers["Authorization"].get_secret_value() == "Bearer very secret"
    )
    assert "very secret" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[mcp.a]\n", "command or url"),
        ('[mcp.a]\ncommand = ["a"]\nurl = "https://a.example/"\n', "command or url"),
        ('[mcp.a]\ncommand = [""]\n', "name of a program"),
        ('[mcp.a]\nurl = "ftp://a.example/"\n', "http"),
        ('[mcp."a.b"]\ncommand = ["a"]\n', "not a name"),
        ('[mcp.a]\ncommand = ["a"]\nheaders = { A = "b" }\n', "no effect without url"),
        ('[mcp.a]\nurl = "https://a.example/"\nenv = { A = "b" }\n', "no effect without command"),
        ('[mcp.a]\ncommand = ["a"]\nenv = { "A=B" = "b" }\n', "environment variable"),
        ('[mcp.a]\ncommand = ["a"]\nprefix = "a b"\n', "must begin with a letter"),
        ('[mcp.a]\ncommand = ["a"]\ntaint = "nobody"\n', "taint"),
        (
            CONTRADICTION,
            "exclude each other",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)
