"""Memories of an agent on an ordinary account: nodes there, each shared with its person."""

from pathlib import Path
from typing import Any

import pytest
from slixmpp.exceptions import IqError

from tests.servers.base import Server
from tests.servers.client_account import ACCOUNT, FULL, at, client_toml, server
from tests.servers.clients import SlixClient
from tests.servers.conftest import MakeAgent
from tests.servers.talk import execute, login, output
from tests.servers.test_memory_accounts import MEMORY, RECONCILE_S, Account
from tests.waiting import until

__all__ = ["server"]  # pytest finds fixtures by their names in here

pytestmark = [pytest.mark.servers]


class Shared(Account):
    """A person who looks at the node in the agent's account."""

    def __init__(self, server: Server, client: SlixClient) -> None:
        super().__init__(server, FULL, client)
        self.node = f"{MEMORY}/{self.jid}"
        self.jid = ACCOUNT


@pytest.fixture
def agent(server: Server, tmp_path: Path, make_agent: MakeAgent) -> Any:
    toml = client_toml(tmp_path / "agent")
    made = make_agent(
        server,
        toml=toml,
        conformance__enabled=True,
        memory__reconcile_s=RECONCILE_S,
        **at(server),
    )
    made.connected()
    return made


@pytest.mark.thorough
def test_the_person_reads_corrects_and_deletes(server: Server, agent: Any) -> None:
    with login(server) as juliet, login(server, "romeo") as romeo:
        owner = Shared(server, juliet)
        owner.remember("tea", "about tea")
        assert owner.recall("tea") == "about tea"
        if server.name == "ejabberd":  # people could not correct it there
            with pytest.raises(IqError):
                owner.texts()
            return
        assert owner.texts() == {"tea": "about tea"}
        with pytest.raises(IqError):
            Shared(server, romeo).do("get_items")
        owner.edit("mine", "written by Juliet")
        until(lambda: owner.recall("mine") == "written by Juliet")
        owner.do("retract", "mine")  # nobody is told: it is found when everything is compared
        owner.edit("tea", "edited by Juliet")
        until(lambda: owner.recall("tea") == "edited by Juliet")
        until(lambda: owner.recall("mine") == "")
        assert output(romeo.iq(FULL, execute("conformance.recall", key="tea"), "set")) == ""
