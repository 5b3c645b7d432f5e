"""The guides to skills that reach outside: each configuration in them is valid, and offers them."""

import re
from pathlib import Path

import anyio
import pytest

from component.app.features import load, load_skills
from component.config import Settings
from component.features.apis.settings import OPENAPI, REST
from component.features.apis.sources import RestSource
from component.skills import Skill
from tests.component.smallest_settings import ENVIRON, SMALLEST
from tests.servers.guides import DOCS

GITHUB = "github_issues github_pull_requests github_issue_create github_comment"
SECRETS = {
    "TAVILY_API_KEY": "k",
    "HELPDESK_TOKEN": "t",
    "PETSTORE_KEY": "k",
    "PETSTORE_TOKEN": "t",
    "GITHUB_TOKEN": "t",
    "SMTP_PASSWORD": "p",
    "BUILDS_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
}


def blocks(guide: str) -> list[str]:
    text = (DOCS / guide).read_text()
    # A block may follow up on the one before it, which has what it needs.
    return [
        re.sub("^  ", "", found, flags=re.MULTILINE)
        for found in re.findall(r"^ *```toml\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    ]


def settings_of(tmp_path: Path, *parts: str) -> Settings:
    path = tmp_path / "agent.toml"
    path.write_text("\n".join((SMALLEST, *parts)))
    return load(path, ENVIRON | SECRETS)


@pytest.mark.parametrize("number", range(10))
def test_each_built_in_skill_is_configured_as_the_guide_says(tmp_path: Path, number: int) -> None:
    found = blocks("reference/skills-builtin.md")
    assert len(found) == 10
    names = set(load_skills(settings_of(tmp_path, found[number])).names())
    new = names - set(load_skills(settings_of(tmp_path)).names())
    files = "file_list file_read file_send file_write file_delete"
    # `create_skill` is offered by a running service.
    expected = ["url_fetch", "url_fetch", "web_search", "web_search", "http_webhook", files]
    assert new == set([*expected, "xmpp_send", "email_send", GITHUB, ""][number].split())


def test_apis_are_configured_as_the_guide_says(tmp_path: Path) -> None:
    weather, ticket, search, shop, effects, pinned = blocks("how-to/rest.md")
    search = search.replace("[rest.search", "[rest.weather")
    settings = settings_of(tmp_path, weather, search, ticket, shop, effects)
    assert settings[OPENAPI]["shop"].annotations["findPets*"].read_only
    assert len(settings_of(tmp_path, pinned)[OPENAPI]["shop"].sha256) == 64
    offered: list[Skill] = []

    async def offer() -> None:
        async with anyio.create_task_group() as group:
            await group.start(RestSource(settings[REST]).run, offered.extend)
            group.cancel_scope.cancel()

    anyio.run(offer, backend="trio")
    marks = {each.name: each.annotations.read_only for each in offered}
    assert marks == {"weather": True, "create_ticket": False}
