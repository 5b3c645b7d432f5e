"""The settings of webhooks are checked, and each mistake is a sentence."""

from typing import Any

import pytest
from pydantic import ValidationError

from component.app.features import make_settings
from component.config import Server, Settings
from component.features.webhooks.settings import ENTRIES

KEY = "0123456789abcdef" * 4
HOOK = {"name": "a", "principal": "juliet@example.com", "skill": "echo"}
GITHUB = HOOK | {"kind": "github", "secret": KEY}
DISCORD = HOOK | {"kind": "discord", "public_key": KEY}


def settings(*hooks: dict[str, Any]) -> Settings:
    server = Server(component_domain="agent.example.com", component_secret="s" * 16)  # type: ignore[arg-type]
    return make_settings(server=server, http={"port": 8470}, webhook=list(hooks))


@pytest.mark.parametrize(
    ("hooks", "reason"),
    [
        ([HOOK | {"kind": "slack"}], "must have at least 16 characters"),
        ([HOOK], "must be whsec_"),
        ([DISCORD | {"public_key": ""}], "must be 64 hexadecimal digits"),
        ([DISCORD | {"public_key": "g" * 64}], "must be 64 hexadecimal digits"),
        ([DISCORD | {"secret": KEY}], "set public_key, and remove it"),
        ([DISCORD | {"previous_secret": KEY}], "set public_key, and remove it"),
        ([GITHUB | {"public_key": KEY}], 'has no effect unless kind = "discord"'),
        ([DISCORD | {"events": ["ping"]}], 'has no effect unless kind = "github"'),
        ([DISCORD | {"reply": {"skill": ""}}], "at least 1 character"),
        ([DISCORD | {"reply": {"skill": "a", "params": {"b": "["}}}], "not a JMESPath"),
        ([GITHUB, GITHUB | {"path": "/b"}], "two webhooks called 'a'"),
        ([GITHUB, GITHUB | {"name": "b", "path": "/a", "secret": KEY + "0"}], "differ in kind"),
        ([GITHUB, DISCORD | {"name": "b", "path": "/a"}], "differ in kind"),
    ],
)
def test_a_mistake_is_named(hooks: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        settings(*hooks)


def test_webhooks_of_one_sender_share_a_path() -> None:
    found = settings(DISCORD, DISCORD | {"name": "b", "path": "/a"})
    assert [entry.url_path for entry in found[ENTRIES]] == ["/a", "/a"]
