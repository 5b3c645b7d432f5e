"""Memories in the account of their person, who allows the agent to publish there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp.exceptions import IqError

from tests.profiles import THOROUGH
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.clients import SlixClient
from tests.servers.conftest import MakeAgent
from tests.servers.talk import execute, login, output
from tests.waiting import until

pytestmark = [pytest.mark.servers]

MEMORY = "urn:fluux:agent:0#memory"
RECONCILE_S = 10  # the shortest that is allowed
CONFIG = "http://jabber.org/protocol/pubsub#node_config"


class Account:
    """A person with a client that nobody here wrote, and an agent that remembers."""

    def __init__(self, server: Server, domain: str, client: SlixClient) -> None:
        self.jid = server.jid("juliet")
        self.node = MEMORY
        self.domain = domain
        self.client = client
        self.agent: AgentProcess | None = None

        async def register(xmpp: Any) -> None:
            for plugin in ("xep_0004", "xep_0060"):
                xmpp.register_plugin(plugin)

        client.run(register)

    def restart_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.start().connected()

    def do(self, verb: str, *args: Any, **options: Any) -> Any:
        async def call(xmpp: Any) -> Any:
            ask = getattr(xmpp.plugin["xep_0060"], verb)
            return await ask(self.jid, self.node, *args, **options)

        return self.client.run(call)

    def allow(self, agent: str) -> None:
        """What docs/reference/memory.md says: make the node, and let the agent publish."""
        form = self.client.xmpp.plugin["xep_0004"].make_form("submit")
        form.add_field(var="FORM_TYPE", ftype="hidden", value=CONFIG)
        for name, value in (
            ("access_model", "whitelist"),
            ("persist_items", "true"),
            ("max_items", "max"),
        ):
            form.add_field(var=f"pubsub#{name}", value=value)
        self.do("create_node", config=form)
        self.do("modify_affiliations", [(agent, "publisher")])

    def texts(self) -> dict[str, str]:
        answer = self.do("get_items")
        found = answer["pubsub"]["items"]
        return {each["id"]: "".join(each["payload"].itertext()) for each in found}

    def edit(self, key: str, text: str) -> None:
        memory = ET.Element(f"{{{MEMORY}}}memory", key=key, version="2")
        ET.SubElement(memory, f"{{{MEMORY}}}content").text = text
        self.do("publish", id=key, payload=memory)

    def run(self, skill: str, **params: str) -> str:
        return output(self.client.iq(self.domain, execute(skill, **params), "set"))

    def remember(self, key: str, text: str) -> None:
        self.run("conformance.remember", key=key, text=text)

    def recall(self, key: str) -> str:
        return self.run("conformance.recall", key=key)


@contextmanager
def remembering(server: Server, make_agent: MakeAgent) -> Iterator[Account]:
    agent = make_agent(
        server, conformance__enabled=True, memory__home="person", memory__reconcile_s=RECONCILE_S
    )
    agent.connected()
    with login(server) as juliet:
        account = Account(server, agent.domain, juliet)
        account.agent = agent
        yield account


def test_memories_in_the_account_of_their_person(
    prosody_server: Server, make_agent: MakeAgent
) -> None:
    with remembering(prosody_server, make_agent) as account:
        account.remember("early", "before it was allowed")
        assert account.recall("early") == "before it was allowed"
        account.allow(f"assistant@{account.domain}")
        account.restart_agent()  # which compares everything at once, not a while later
        for key in ("tea", "hat", "pin"):
            account.remember(key, f"about {key}")
        until(lambda: len(account.texts()) == 4)
        assert account.texts()["early"] == "before it was allowed"
        with login(prosody_server, "romeo") as romeo:
            stranger = Account(prosody_server, account.domain, romeo)
            with pytest.raises(IqError):
                stranger.do("get_items")
        account.edit("mine", "written by Juliet")
        until(lambda: account.recall("mine") == "written by Juliet")
        account.do("retract", "tea", notify="1")
        until(lambda: account.recall("tea") == "")
        account.edit("hat", "edited by Juliet")
        until(lambda: account.recall("hat") == "edited by Juliet")
        account.remember("hat", "changed by the agent")
        until(lambda: account.texts()["hat"] == "changed by the agent")
        if THOROUGH:
            account.do("retract", "pin")  # not announced: the next comparison finds it
            until(lambda: account.recall("pin") == "")


def test_it_is_not_offered_where_people_could_not_correct_the_agent(
    ejabberd_server: Server, make_agent: MakeAgent
) -> None:
    with remembering(ejabberd_server, make_agent) as account:
        account.allow(f"assistant@{account.domain}")
        account.remember("tea", "about tea")
        assert account.recall("tea") == "about tea", "the files serve"
        assert account.texts() == {}
