"""Memories in the account of their person, on whose behalf the agent acts (XEP-0356)."""

import pytest
from slixmpp.exceptions import IqError

from tests.servers.base import Server
from tests.servers.chatting import heard, say
from tests.servers.conftest import MakeAgent
from tests.servers.fixtures import GRANTED
from tests.servers.talk import login
from tests.servers.test_memory_accounts import MEMORY, Account, remembering
from tests.waiting import until

pytestmark = [pytest.mark.servers]

PRIVILEGE_NAMESPACE = "urn:xmpp:privilege:2"


def command(account: Account, text: str, *expected: str) -> None:
    say(account.client, f"assistant@{account.domain}", text)
    heard(account.client, *expected)


def test_with_consent_the_agent_keeps_memories_in_the_account(
    prosody_server: Server, make_agent: MakeAgent
) -> None:
    server = prosody_server.on(GRANTED)
    with remembering(server, make_agent) as account, login(server, "romeo") as romeo:
        other = Account(server, account.domain, romeo)
        other.jid = server.jid("romeo")
        account.remember("early", "before it was allowed")
        other.remember("secret", "of Romeo, who is never asked")
        command(account, "/memory-home", "Send /memory-home allow")
        with pytest.raises(IqError):
            account.texts()
        command(account, "/memory-home allow", "I keep what I remember")
        until(lambda: exists(account) and "early" in account.texts())
        account.remember("tea", "about tea")
        until(lambda: account.texts().keys() == {"early", "tea"})
        assert config(account) == ("whitelist", "max")
        with pytest.raises(IqError):
            Account(server, account.domain, romeo).do("get_items")
        account.edit("tea", "edited by Juliet")
        until(lambda: account.recall("tea") == "edited by Juliet")
        account.remember("tea", "changed by the agent")
        until(lambda: "changed by the agent" in account.texts()["tea"])
        account.edit("mine", "written by Juliet")
        until(lambda: account.recall("mine") == "written by Juliet")
        command(account, "/memory-home stop", "any more")
        account.remember("late", "after it was stopped")
        assert account.recall("late") == "after it was stopped"
        assert "late" not in account.texts()
        assert not exists(other), "Romeo has not consented"


def test_without_the_grant_the_person_is_told_what_to_do(
    prosody_server: Server, make_agent: MakeAgent
) -> None:
    with remembering(prosody_server, make_agent) as account:
        # Somebody who is not the server says that there is a grant.
        forged = (
            f"<privilege xmlns='{PRIVILEGE_NAMESPACE}'><perm access='iq'>"
            "<namespace ns='http://jabber.org/protocol/pubsub' type='both'/></perm></privilege>"
        )
        account.client.send_raw(f"<message to='{account.domain}'>{forged}</message>")
        command(account, "/memory-home allow", "does not let me act on your behalf")
        account.remember("hat", "about the hat")
        assert account.recall("hat") == "about the hat"


def exists(account: Account) -> bool:
    try:
        account.do("get_items")
    except IqError:
        return False
    return True


def config(account: Account) -> tuple[str, str]:
    async def read(xmpp: object) -> tuple[str, str]:
        answer = await xmpp.plugin["xep_0060"].get_node_config(account.jid, MEMORY)  # type: ignore[attr-defined] # slixmpp has no types
        values = answer["pubsub_owner"]["configure"]["form"].get_values()
        return values["pubsub#access_model"], values["pubsub#max_items"]

    return account.client.run(read)
