"""The same random PubSub requests to an agent and to an account of the server (XEP-0163).

Both have the same owner, the account itself and an admin of the agent, and are asked by the same
stranger. Answers are compared without what a service is free to choose (`pubsub_requests.outcome`).
Where they may differ is in `DIFFERENCES`, each with the sentence that allows it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from tests.profiles import THOROUGH
from tests.servers.base import Server
from tests.servers.clients import SlixClient
from tests.servers.conftest import MakeAgent
from tests.servers.fixtures import OTHER
from tests.servers.pubsub_requests import Asked, outcome, requests
from tests.servers.talk import login

pytestmark = [pytest.mark.servers]

EXAMPLES: Final = 130 if THOROUGH else 3
"""Lists of four to twelve requests: about 1,000 requests in `make thorough`."""
FORBIDDEN: Final = (("error", "forbidden"),)
ABSENT: Final = (("error", "item-not-found"),)
NO_PRESENCE: Final = (("error", "presence-subscription-required", "not-authorized"),)
ANYTHING: Final = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference that is allowed.

    Attributes:
        server: the server, or both.
        verb: the verb.
        who: who asks; empty for both.
        ours: what we may answer; empty for anything.
        theirs: what the server may answer; empty for anything.
        we_succeed: whether our answer is not an error, whatever it contains.
        because: the sentence that allows it.
    """

    server: str = ""
    verb: str
    who: str = ""
    ours: tuple[tuple[str, ...], ...] = ANYTHING
    theirs: tuple[tuple[str, ...], ...] = ANYTHING
    we_succeed: bool = False
    because: str

    def allows(
        self, server: str, asked: Asked, ours: tuple[str, ...], theirs: tuple[str, ...]
    ) -> bool:
        """Whether these two answers differ in this way."""
        return (
            self.server in ("", server)
            and self.verb == asked.verb
            and self.who in ("", asked.who)
            and (not self.ours or ours in self.ours)
            and (not self.theirs or theirs in self.theirs)
            and (not self.we_succeed or ours[0] == "result")
        )


_HIDDEN = (
    "RFC 6120 §8.3.3.4: a server that does not want to disclose that something exists returns"
    " item-not-found; Prosody refuses everything to strangers instead, whether it exists or not"
)
DIFFERENCES: Final = (
    *(
        Difference(
            server="prosody",
            verb=verb,
            who="stranger",
            ours=ABSENT,
            theirs=FORBIDDEN,
            because=_HIDDEN,
        )
        for verb in (
            "retract",
            "delete",
            "subscriptions to",
            "affiliation",
            "affiliations with",
            "items",
            "configuration",
            "publish",
            "configure",
            "purge",
            "subscribe",
            "unsubscribe",
        )
    ),
    Difference(
        server="prosody",
        verb="affiliations",
        theirs=(("error", "service-unavailable"),),
        because='XEP-0060 §5.7: Support for this feature ("retrieve-affiliations") is RECOMMENDED.',
    ),
    Difference(
        server="prosody",
        verb="subscriptions",
        ours=(("result",),),
        theirs=(*ABSENT, *FORBIDDEN),
        because="XEP-0060 §5.6: If the requesting entity has no subscriptions, the pubsub service"
        " MUST return an empty <subscriptions/> element.",
    ),
    *(
        Difference(
            server="ejabberd",
            verb=verb,
            who="stranger",
            ours=ABSENT,
            theirs=(
                *FORBIDDEN,
                ("error", "closed-node", "not-allowed"),
                ("error", "not-subscribed", "unexpected-request"),
            ),
            because="RFC 6120 §8.3.3.4, as above: a node with a whitelist is hidden from strangers",
        )
        for verb in (
            "affiliation",
            "affiliations with",
            "configuration",
            "configure",
            "delete",
            "items",
            "publish",
            "purge",
            "retract",
            "subscribe",
            "unsubscribe",
        )
    ),
    Difference(
        server="ejabberd",
        verb="publish",
        who="stranger",
        ours=ABSENT,
        theirs=(("result", "item id=1"), ("result", "item id=2"), ("result", "item id=3")),
        because="RFC 6120 §8.3.3.4, as above: a node with a whitelist is hidden from strangers,"
        " even if everybody may publish at it",
    ),
    Difference(
        server="ejabberd",
        verb="publish",
        who="stranger",
        ours=FORBIDDEN,
        theirs=(("error", "precondition-not-met", "conflict"),),
        because="XEP-0060 §7.1.3: There are several reasons why the publish request might fail.",
    ),
    Difference(
        server="ejabberd",
        verb="subscriptions to",
        theirs=(("error", "unsupported", "feature-not-implemented"),),
        because="XEP-0060 §8.8.1.3: The service does not support subscription management.",
    ),
    Difference(
        server="prosody",
        who="stranger",
        verb="subscribe",
        ours=NO_PRESENCE,
        theirs=FORBIDDEN,
        because="XEP-0060 §6.1.3.2: the service MUST return a <not-authorized/> error, specifying a"
        " pubsub-specific error condition of <presence-subscription-required/>.",
    ),
    Difference(
        server="prosody",
        who="stranger",
        verb="items",
        ours=NO_PRESENCE,
        theirs=FORBIDDEN,
        because="XEP-0060 §6.5.9.5: the service MUST return a <not-authorized/> error, specifying a"
        " pubsub-specific error condition of <presence-subscription-required/>.",
    ),
    Difference(
        server="prosody",
        verb="subscribe another",
        who="owner",
        ours=(("error", "invalid-jid", "bad-request"),),
        theirs=(("result", "subscription jid=somebody@example.com subscription=subscribed"),),
        because="XEP-0060 §6.1.3.1: those entities may be considered trusted proxies that are"
        " allowed to subscribe on behalf of other entities.",
    ),
    Difference(
        server="prosody",
        verb="unsubscribe",
        who="stranger",
        ours=(("error", "not-subscribed", "unexpected-request"),),
        theirs=FORBIDDEN,
        because="XEP-0060 §6.2.3.2: the value of the 'jid' attribute does not specify an existing"
        " subscriber: the pubsub service MUST return an error stanza",
    ),
    Difference(
        server="prosody",
        verb="affiliations with",
        who="owner",
        because="XEP-0060 §8.9.1.2: the service MUST return the list of entities whose affiliation"
        ' is "owner", "member" …; Prosody leaves out the account itself',
    ),
    *(
        Difference(
            server="ejabberd",
            verb=verb,
            who="stranger",
            we_succeed=True,
            theirs=NO_PRESENCE,
            because="XEP-0060 §4.1: members and publishers may subscribe and retrieve items;"
            " ejabberd asks them for a subscription to the presence of the owner as well",
        )
        for verb in ("subscribe", "items")
    ),
    Difference(
        verb="subscribe another",
        ours=(("error", "invalid-jid", "bad-request"),),
        theirs=(*ABSENT, *FORBIDDEN),
        because="XEP-0060 §6.1.3.1: If the specified JID is a bare JID or full JID, the service"
        " MUST at a minimum check the bare JID portion against the bare JID portion of the 'from'"
        " attribute … the service MUST return a <bad-request/> error",
    ),
)


class Pair:
    """An agent and an account, with their owner and a stranger."""

    def __init__(self, server: Server, juliet: SlixClient, romeo: SlixClient) -> None:
        self.server = server.name
        self.ours = f"assistant@{server.component_domain}"
        self.owner = server.jid("juliet")
        self.stranger = server.jid("romeo")
        self.clients = {"owner": (juliet, self.owner), "stranger": (romeo, self.stranger)}
        self.made = 0
        self.compared = 0

    def new_node(self) -> str:
        """The beginning of names that no example has used."""
        self.made += 1
        return f"n{self.made}-"

    def ask(self, asked: Asked, node: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the agent answers, and what the account does."""
        client, jid = self.clients[asked.who]
        payload = asked.payload.replace("{node}", node).replace("{jid}", jid)
        payload = payload.replace("{stranger}", self.stranger)
        self.compared += 1
        ours, theirs = (
            outcome(asked.verb, client.iq(to, payload, type=asked.type), node, self.owner)
            for to in (self.ours, self.owner)
        )
        return ours, theirs


@pytest.fixture
def pair(xmpp_server: Server, make_agent: MakeAgent) -> Iterator[Pair]:
    """A running agent of which juliet is an admin, and of which romeo has never heard."""
    server = xmpp_server.on(OTHER)
    make_agent(server, agent__admins=[server.jid("juliet")]).connected()
    with login(server) as juliet, login(server, "romeo") as romeo:
        yield Pair(server, juliet, romeo)


def test_an_agent_answers_as_an_account_does(pair: Pair) -> None:
    create = "<pubsub xmlns='http://jabber.org/protocol/pubsub'><create node='{node}a'/></pubsub>"
    # Where the owner may not create nodes, only refusals would be compared.
    made = pair.ask(Asked("owner", "set", "create", create), pair.new_node())
    assert made == (("result",), ("result",))

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(requests)
    def compare(asked: list[Asked]) -> None:
        node = pair.new_node()
        for each in asked:
            ours, theirs = pair.ask(each, node)
            if ours == theirs:
                continue
            known = [one for one in DIFFERENCES if one.allows(pair.server, each, ours, theirs)]
            assert known, (each, ours, theirs)
            if each.type == "set" and ours[0] != theirs[0]:
                break  # from here on they have different nodes

    compare()
    assert pair.compared > 4 * EXAMPLES
