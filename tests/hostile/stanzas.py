"""Whole stanzas, each reproducible from a seed and its number, and who sends it.

    stanza = Stanzas(seed, addresses).make(17)     # the same one each time

Most are legal: a server has no reason to end the sender's stream over them, though some do. Those
with `breaks` set are not well-formed, or restricted (RFC 6120 §11.1); they go last on a stream.
"""

from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from tests.hostile.grammar import WORDS, Grammar, Node, element
from tests.hostile.payloads import SETS, delegation, form, payload

Sender = Literal["client", "stranger", "component"]
SENDERS: Final[tuple[Sender, ...]] = ("client", "stranger", "component")

_BROKEN_SHARE: Final = 0.004

# What stands inside `<message to='…'>…</message>` and must not be there.
_BROKEN_INSIDE: Final = (
    *(b"<undeclared:x/>", b"<x a='1' a='2'/>", b"<x xmlns:a='u' xmlns:b='u' a:c='' b:c=''/>"),
    *(b"<x></y>", b"<x", b"<body>", b"</message></message>", b"<:x/>", b"<x:/>", b"<a:b:c/>"),
    *(b"<x xmlns:p=''/>", b"<x xmlns:xmlns='u'/>", b"<x xmlns:xml='u'/>", b"<1/>", b"< x/>"),
    *(b"<x xmlns='http://www.w3.org/2000/xmlns/'/>", b"<x a=1/>", b"<x a/>", b"<x a='<'/>"),
    *(b"&undefined;", b"&#0;", b"&#1;", b"&#xFFFE;", b"&#xD800;", b"&#x110000;", b"& ", b"]]>"),
    *(b"\x00", b"\x01", b"\x0b", b"\x7f", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbf\xbf"),
    *(b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xef\xbb\xbf", b"<!-- -->", b"<?pi?>"),
    *(b"<!DOCTYPE x>", b"<![CDATA[", b"<?xml version='1.0'?>", b"</stream:stream>"),
    b"<x>" * 2000 + b"</x>" * 2000,  # 5000 end ejabberd 23.01 altogether
    b"<body>" + b"x" * 600_000 + b"</body>",
    b"<x " + b" ".join(b"a%d=''" % number for number in range(20_000)) + b"/>",
)
_BROKEN_OUTSIDE: Final = (
    *(b"<foo xmlns='urn:x'/>", b"<handshake xmlns='jabber:component:accept'/>", b"text", b"<>"),
    *(b"<stream:error><conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",),
    *(b"<stream:stream>", b"<stream:features/>", b"<iq/>", b"<message", b"</stream:stream>"),
    *(
        b"<iq xmlns='jabber:server' type='get' id='1' to='TO'/>",
        b"\xfe\xff\x00<",
        b"<!ENTITY x 'y'>",
    ),
    *(b"<x:message xmlns:x='jabber:client' to='TO'/>", b"<message xmlns='urn:x' to='TO'/>"),
)

_MESSAGE_PARTS: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("replace", {"xmlns": "urn:xmpp:message-correct:0", "id": "m1"}),
    ("reply", {"xmlns": "urn:xmpp:reply:0", "id": "m1", "to": "x@y"}),
    ("fallback", {"xmlns": "urn:xmpp:fallback:0", "for": "urn:xmpp:reply:0"}),
    ("reactions", {"xmlns": "urn:xmpp:reactions:0", "id": "m1"}),
    ("retract", {"xmlns": "urn:xmpp:message-retract:1", "id": "m1"}),
    ("encrypted", {"xmlns": "eu.siacs.conversations.axolotl"}),
    ("encryption", {"xmlns": "urn:xmpp:eme:0", "namespace": "urn:xmpp:omemo:2"}),
    ("delay", {"xmlns": "urn:xmpp:delay", "stamp": "2002-09-10T23:08:25Z"}),
    ("x", {"xmlns": "jabber:x:delay", "stamp": "20020910T23:08:25"}),
    ("received", {"xmlns": "urn:xmpp:receipts", "id": "m1"}),
    ("request", {"xmlns": "urn:xmpp:receipts"}),
    ("markable", {"xmlns": "urn:xmpp:chat-markers:0"}),
    ("displayed", {"xmlns": "urn:xmpp:chat-markers:0", "id": "m1"}),
    ("active", {"xmlns": "http://jabber.org/protocol/chatstates"}),
    ("composing", {"xmlns": "http://jabber.org/protocol/chatstates"}),
    ("no-store", {"xmlns": "urn:xmpp:hints"}),
    ("origin-id", {"xmlns": "urn:xmpp:sid:0", "id": "o1"}),
    ("stanza-id", {"xmlns": "urn:xmpp:sid:0", "id": "s1", "by": "x@y"}),
    ("occupant-id", {"xmlns": "urn:xmpp:occupant-id:0", "id": "o1"}),
    ("selected", {"xmlns": "urn:xmpp:tmp:quick-response", "id": "@CONFIRM@"}),
    ("confirm", {"xmlns": "urn:fluux:agent:0#confirm", "id": "@CONFIRM@"}),
    ("x", {"xmlns": "http://jabber.org/protocol/muc#user"}),
    ("x", {"xmlns": "jabber:x:conference", "jid": "room@muc.localhost"}),
    ("x", {"xmlns": "jabber:x:oob"}),
    ("event", {"xmlns": "http://jabber.org/protocol/pubsub#event"}),
    ("fin", {"xmlns": "urn:xmpp:mam:2"}),
    ("nick", {"xmlns": "http://jabber.org/protocol/nick"}),
)


@dataclass(frozen=True)
class Addresses:
    """Who there is. `friends` are localparts at `second` that the service admits."""

    agent: str
    host: str
    second: str
    friends: tuple[str, ...]
    accounts: tuple[str, ...]


@dataclass(frozen=True)
class Stanza:
    """What to send, and by whom. `breaks` says that it may end the sender's own stream."""

    number: int
    sender: Sender
    data: bytes
    breaks: bool


class Stanzas:
    """All stanzas of one seed."""

    def __init__(self, seed: int, addresses: Addresses) -> None:
        self.seed = seed
        self.addresses = addresses

    def make(self, number: int) -> Stanza:
        """The stanza of this number."""
        grammar = Grammar(Random(f"{self.seed} {number}"))
        sender = grammar.random.choices(SENDERS, (60, 5, 35))[0]
        if grammar.chance(_BROKEN_SHARE):
            return Stanza(number, sender, self._broken(grammar, sender), breaks=True)
        make = grammar.random.choices((self._iq, self._message, self._presence), (70, 22, 8))[0]
        node = make(grammar)
        if sender == "component":
            node.attributes["from"] = self._from(grammar)
        elif grammar.chance(0.02):
            node.attributes["xmlns"] = "jabber:client"
        return Stanza(number, sender, grammar.write(node).encode(), breaks=False)

    # -- stanzas -----------------------------------------------------------------------------------

    def _iq(self, grammar: Grammar) -> Node:
        asked = payload(grammar)
        type_ = "set" if asked.name in SETS else "get"
        if grammar.chance(0.15):
            type_ = grammar.pick(("get", "set", "get", "set", "result", "error", "x", ""))
        node = self._stanza(grammar, "iq", type_)
        node.attributes.setdefault("id", self._id(grammar))
        broken = type_ == "error" and grammar.chance(0.7)
        node.children.append(_error(grammar) if broken else asked)
        while grammar.chance(0.03):
            node.children.append(payload(grammar))
        return node

    def _message(self, grammar: Grammar) -> Node:
        types = ("chat", "normal", "groupchat", "headline", "error", "x", "")
        weights = (55, 15, 8, 7, 8, 2, 5)
        node = self._stanza(grammar, "message", grammar.random.choices(types, weights)[0])
        for name in ("subject", "thread"):
            if grammar.chance(0.1):
                node.children.append(element(name, None, grammar.text()))
        for _ in range(grammar.random.choices((0, 1, 2, 3), (10, 75, 10, 5))[0]):
            node.children.append(element("body", None, grammar.text()))
            if grammar.chance(0.05):
                grammar.decorate(node.children[-1])  # type: ignore[arg-type]  # the body
        for _ in range(grammar.random.choices((0, 1, 2, 4), (40, 35, 20, 5))[0]):
            node.children.append(self._part(grammar))
        if node.attributes.get("type") == "error":
            node.children.append(_error(grammar))
        return node

    def _presence(self, grammar: Grammar) -> Node:
        types = ("", "unavailable", "subscribe", "subscribed", "unsubscribe", "unsubscribed")
        node = self._stanza(grammar, "presence", grammar.pick((*types, "probe", "error", "x")))
        for name in ("show", "status", "priority"):
            if grammar.chance(0.3):
                node.children.append(element(name, None, grammar.text()))
        if grammar.chance(0.3):
            caps = {"hash": "sha-1", "node": "http://x", "ver": grammar.text()}
            node.children.append(element("c", {"xmlns": "http://jabber.org/protocol/caps", **caps}))
        if grammar.chance(0.2):
            muc = f"http://jabber.org/protocol/muc{grammar.pick(('', '#user'))}"
            node.children.append(element("x", {"xmlns": muc}, grammar.any_element()))
        if grammar.chance(0.1):
            node.children.append(grammar.any_element())
        return node

    def _part(self, grammar: Grammar) -> Node:
        kind = grammar.random.random()
        if kind < 0.5:
            node = element(*grammar.pick(_MESSAGE_PARTS))
            if grammar.chance(0.3):
                node.children.append(grammar.text())
            return node
        if kind < 0.6:
            return self._forwarded(grammar)
        if kind < 0.65:
            return form(grammar)
        if kind < 0.7:
            return delegation(grammar)
        return grammar.any_element() if kind < 0.85 else payload(grammar)

    def _forwarded(self, grammar: Grammar, depth: int = 2) -> Node:
        inner = self._message(grammar) if depth == 0 else element("message", {"from": "x@y"})
        inner.attributes["xmlns"] = "jabber:client"
        forwarded = element("forwarded", {"xmlns": "urn:xmpp:forward:0"}, inner)
        if depth and grammar.chance(0.3):
            inner.children.append(self._forwarded(grammar, depth - 1))
        name = grammar.pick(("sent", "received", "result"))
        namespace = "urn:xmpp:mam:2" if name == "result" else "urn:xmpp:carbons:2"
        return element(name, {"xmlns": namespace}, forwarded)

    def _stanza(self, grammar: Grammar, name: str, type_: str) -> Node:
        node = element(name, {"to": self._to(grammar)})
        if type_ or name == "iq":
            node.attributes["type"] = type_
        if grammar.chance(0.8):
            node.attributes["id"] = self._id(grammar)
        if grammar.chance(0.04):
            node.attributes["xml:lang"] = grammar.text()
        if grammar.chance(0.01):
            grammar.decorate(node)
            node.name = name  # a stanza of another name would only be the server's
        return node

    # -- addresses ---------------------------------------------------------------------------------

    def _id(self, grammar: Grammar) -> str:
        return grammar.one_of(
            lambda: f"n{grammar.random.randrange(1 << 40)}",
            lambda: grammar.pick(("1", "2", "same", "", " ", "'", '"', "&", "<", "x" * 3000)),
            grammar.text,
        )

    def _to(self, grammar: Grammar) -> str:
        agent = self.addresses.agent
        if grammar.chance(0.9):
            return grammar.pick((agent, f"assistant@{agent}", f"assistant@{agent}"))
        resource = grammar.unicode()[:200]
        return grammar.pick(
            (
                *(f"nobody@{agent}", f"assistant@{agent}/x", f"{agent}/{resource}"),
                *(f"ASSISTANT@{agent.upper()}", f"\u00c4\u00df@{agent}", f"\u0634@{agent}"),
                *(f"a\\20b@{agent}", f"{'x' * 1023}@{agent}", f"assistant@{agent}/@/@"),
                *(f"\u2603@{agent}", f"assistant@{agent}.", f"x@y@{agent}", f"\u212a@{agent}"),
            )
        )

    def _from(self, grammar: Grammar) -> str:
        second = self.addresses.second
        if grammar.chance(0.88):
            return f"{grammar.pick(self.addresses.friends)}@{second}/{grammar.pick('abc')}"
        local = grammar.pick(
            (
                *("stranger", "\u2603", "\u00df", "FRIEND0", "a\\40b", "x" * 1023, "assistant"),
                *("\u0634\u0644", "friend0\u200b", "\u212a", "\uff41", "e\u0301", "\U0001d41a"),
            )
        )
        return grammar.pick(
            (second, f"{local}@{second}", f"{local}@{second}/{grammar.text()[:900] or 'x'}")
        )

    def _broken(self, grammar: Grammar, sender: Sender) -> bytes:
        agent = self.addresses.agent.encode()
        data = grammar.pick((*_BROKEN_INSIDE, *_BROKEN_OUTSIDE))
        if data in _BROKEN_OUTSIDE:
            return data.replace(b"TO", agent)
        from_ = b""
        if sender == "component":
            from_ = f" from='{self.addresses.friends[0]}@{self.addresses.second}/a'".encode()
        name = grammar.pick((b"message", b"iq type='get' id='b'"))
        end = name.partition(b" ")[0]
        return b"<%s to='%s'%s>%s</%s>" % (name, agent, from_, data, end)


def _error(grammar: Grammar) -> Node:
    namespace = "urn:ietf:params:xml:ns:xmpp-stanzas"
    node = element("error", {"type": grammar.pick(("cancel", "wait", "modify", "x"))})
    for name in ("service-unavailable", "text", "gone", "item-not-found"):
        if grammar.chance(0.4):
            node.children.append(element(name, {"xmlns": namespace}, grammar.pick(WORDS)))
    if grammar.chance(0.2):
        node.children.append(grammar.any_element())
    return node
