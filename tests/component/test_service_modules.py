"""Skills of `[skills] modules` have the functions of the service that they declare."""

import pytest

from component.app.features import make_settings
from component.config import Settings
from component.kernel.module_functions import ModuleFunctions
from component.skills import CapabilityMissing, Context, Skill, skill
from component.store import Storage
from tests.component.features.installed_skills.test_author_api import Messages

SERVER = {"component_domain": "agent.example.com", "component_secret": "s"}

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


@skill(capabilities=["memory:write:skill", "xmpp:romeo@example.com"])
async def notes(context: Context) -> str:
    """Remember, and tell."""
    await context.memory.put("a", "1")
    await context.xmpp.send("romeo@example.com", "Hello")
    return await context.memory.get("a") or ""


@skill
async def plain(context: Context) -> None:
    """Declare nothing, and remember all the same."""
    await context.memory.put("a", "1")


def provided(one: Skill, settings: Settings, storage: Storage, messages: Messages) -> Context:
    context = Context(principal="ann@test", sender="ann@test/x", skill=one.name)
    ModuleFunctions(settings, storage, lambda: messages.send).provide(one, context)
    return context


async def test_a_module_has_what_it_declares(storage: Storage) -> None:
    messages, settings = Messages(), make_settings(server=SERVER)
    assert await notes(provided(notes, settings, storage, messages)) == "1"
    assert messages.sent == [("ann@test", "romeo@example.com", "Hello", "notes")]
    with pytest.raises(CapabilityMissing, match="network"):
        _ = provided(notes, settings, storage, messages).http
    with pytest.raises(CapabilityMissing, match="memory"):
        await plain(provided(plain, settings, storage, messages))
