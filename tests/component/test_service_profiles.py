"""What the settings say of each agent: its name, whose it is, its avatar."""

from pathlib import Path
from typing import Any

import pytest

from component.app.features import make_settings
from component.config import Server, Settings
from component.config.agents import AgentEntry
from component.config.policy import Agent
from component.kernel.avatars import AvatarError, generated_avatar
from component.kernel.options import facts
from component.kernel.profiles import contact_profiles

DOMAIN = "agent.example.com"
OTHER = generated_avatar("somebody@example.org")


def settings(max_stanza_bytes: int = 262_144, **sections: Any) -> Settings:
    server = Server(
        component_domain=DOMAIN,
        component_secret="secret",  # type: ignore[arg-type]
        max_stanza_bytes=max_stanza_bytes,
    )
    return make_settings(server=server, **sections)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "avatar.png"
    path.write_bytes(OTHER.image)
    return path


def test_an_agent_always_has_a_face() -> None:
    found = contact_profiles(settings())
    assert set(found) == {None, "assistant"}
    agent, domain = found["assistant"], found[None]
    assert domain is agent, "they are one contact"
    assert str(agent.address) == f"assistant@{DOMAIN}"
    assert agent.name == "Assistant"
    assert agent.operator == "the administrators of agent.example.com"
    assert agent.avatar == generated_avatar(f"assistant@{DOMAIN}")


def test_each_agent_has_what_is_set(image: Path) -> None:
    reader = AgentEntry(name="reader", title="Reader", description="Reads.", avatar=image)
    agent = Agent(name="Concierge", operator="Example Ltd", contact="mailto:it@example.com")
    found = contact_profiles(settings(agent=agent, agents=(reader,)))
    assert {each.operator for each in found.values()} == {"Example Ltd"}
    assert {each.contact for each in found.values()} == {"mailto:it@example.com"}
    assert (found["reader"].name, found["reader"].description) == ("Reader", "Reads.")
    assert found["reader"].avatar == OTHER
    assert found["assistant"].avatar != OTHER


def test_the_avatar_of_the_service_is_that_of_the_assistant(image: Path) -> None:
    found = contact_profiles(
        settings(agent=Agent(avatar=image), agents=(AgentEntry(name="reader"),))
    )
    assert found["assistant"].avatar == found[None].avatar == OTHER
    assert found["reader"].avatar != OTHER


def test_discovery_says_whose_it_is() -> None:
    agent = Agent(operator="Example Ltd", contact="https://example.com/help")
    said = facts(settings(agent=agent))
    assert said.form["operator"] == "Example Ltd"
    assert said.contact == "https://example.com/help"


def test_a_file_that_cannot_be_used_is_named_by_its_setting(tmp_path: Path) -> None:
    missing = tmp_path / "none.png"
    with pytest.raises(AvatarError, match=r"^agent\.avatar: .*none\.png cannot be read"):
        contact_profiles(settings(agent=Agent(avatar=missing)))
    entry = AgentEntry(name="reader", avatar=missing)
    with pytest.raises(AvatarError, match=r"^agents\.reader\.avatar: "):
        contact_profiles(settings(agents=(entry,)))


def test_an_image_has_to_fit_into_a_stanza(tmp_path: Path) -> None:
    path = tmp_path / "avatar.png"
    path.write_bytes(OTHER.image + bytes(5_000))
    with pytest.raises(AvatarError, match="is larger than 4428 bytes"):
        contact_profiles(settings(10_000, agent=Agent(avatar=path)))
