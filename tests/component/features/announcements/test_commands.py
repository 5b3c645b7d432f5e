"""The command by which admins have an agent announce something."""

import pytest

from component.commands import OPERATOR, Asking, CommandError, Commands
from component.features.announcements.commands import announcement_commands
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

ADMIN = JID.parse("admin@example.com")


class Nodes:
    """Takes announcements; `refuses` them if told to."""

    def __init__(self) -> None:
        self.published: list[tuple[str, str]] = []
        self.refuses = False

    async def __call__(self, agent: str, text: str) -> str:
        if self.refuses:
            raise StanzaError("not-acceptable", "too large")
        self.published.append((agent, text))
        return str(len(self.published))


def commands(nodes: Nodes) -> Commands:
    made = announcement_commands(nodes, ["assistant", "researcher"])
    return Commands(made, [ADMIN])


async def announce(nodes: Nodes, asking: Asking, *texts: tuple[str, str]) -> str:
    command = commands(nodes).get("announce", asking)
    assert command is not None
    return (await command.run(asking, command.read(texts))).text


async def test_admins_and_the_operator_announce() -> None:
    nodes = Nodes()
    at_researcher = Asking(principal=ADMIN, agent="researcher", admin=True)
    assert await announce(nodes, at_researcher, ("text", "New tools.")) == "Announced."
    words = (("text", "Hello,"), ("text", "all"))
    assert await announce(nodes, OPERATOR, *words) == "Announced."
    named = (("text", "Hi"), ("agent", "researcher"))
    assert await announce(nodes, OPERATOR, *named) == "Announced."
    assert nodes.published == [
        ("researcher", "New tools."),
        ("assistant", "Hello, all"),
        ("researcher", "Hi"),
    ]


async def test_nobody_else_announces() -> None:
    assert commands(Nodes()).get("announce", Asking(principal=JID.parse("a@example.com"))) is None


async def test_what_cannot_be_announced_is_explained() -> None:
    nodes = Nodes()
    with pytest.raises(CommandError, match="no agent called"):
        await announce(nodes, OPERATOR, ("text", "Hi"), ("agent", "nobody"))
    for wrong in (" ", "x" * 5001):
        with pytest.raises(CommandError, match="1 to 5000"):
            await announce(nodes, OPERATOR, ("text", wrong))
    nodes.refuses = True
    with pytest.raises(CommandError, match="too large"):
        await announce(nodes, OPERATOR, ("text", "Hi"))
