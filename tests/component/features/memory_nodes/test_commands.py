"""The command by which people let an agent keep its memories in their account."""

import pytest

from component.commands import OPERATOR, Asking, CommandError, CommandResult
from component.features.memory_nodes.commands import HomeRow, MemoryHomeCommands
from component.memory_directory.layout import SessionKey
from xep.fluux_agent.memory import NAMESPACE
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

JULIET = JID.parse("juliet@example.com")
ASKING = Asking(principal=JULIET)


class Home:
    """Consents in memory; `offered` says what the server permits."""

    def __init__(self) -> None:
        self.offered = True
        self.allowed: set[SessionKey] = set()
        self.fails = False

    def is_offered(self, whose: SessionKey) -> bool:
        return self.offered

    async def is_allowed(self, whose: SessionKey) -> bool:
        return whose in self.allowed

    async def allow(self, whose: SessionKey) -> None:
        self.allowed.add(whose)

    async def stop(self, whose: SessionKey) -> bool:
        was = whose in self.allowed
        self.allowed.discard(whose)
        if self.fails:
            raise StanzaError("forbidden")
        return was


async def choose(home: Home, choice: str = "show", asking: Asking = ASKING) -> CommandResult:
    (command,) = MemoryHomeCommands(home, "assistant").commands()
    return await command.run(asking, command.read([("choice", choice)]))


async def test_a_person_consents_and_withdraws() -> None:
    home = Home()
    answer = await choose(home)
    assert "/memory-home allow" in answer.text
    assert answer.value == HomeRow(NAMESPACE, allowed=False, offered=True)
    await choose(home, "allow")
    assert home.allowed == {SessionKey("assistant", JULIET)}
    assert (await choose(home)).value == HomeRow(NAMESPACE, allowed=True, offered=True)
    assert "any more" in (await choose(home, "stop")).text
    assert home.allowed == set()
    assert "have not allowed" in (await choose(home, "stop")).text


async def test_consent_is_for_one_agent() -> None:
    home = Home()
    await choose(home, "allow", Asking(principal=JULIET, agent="researcher"))
    assert home.allowed == {SessionKey("researcher", JULIET)}


async def test_what_the_server_does_not_permit_is_not_recorded() -> None:
    home = Home()
    home.offered = False
    with pytest.raises(CommandError, match="does not let me act on your behalf"):
        await choose(home, "allow")
    assert home.allowed == set()
    assert "publisher" in (await choose(home)).text


async def test_operators_cannot_consent_for_a_person() -> None:
    with pytest.raises(CommandError, match="themselves"):
        await choose(Home(), "allow", OPERATOR)


async def test_a_failed_request_to_the_server_is_reported() -> None:
    home = Home()
    await choose(home, "allow")
    home.fails = True
    with pytest.raises(CommandError, match="still lists me"):
        await choose(home, "stop")
    assert home.allowed == set(), "the consent is withdrawn all the same"
