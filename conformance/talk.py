"""The conversation of a check with the target: sends requests, and waits for answers."""

import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from xml.sax.saxutils import quoteattr

import anyio
import msgspec

from conformance.drivers import Cast, Part
from conformance.holding import BlockedError, Holding, NoAnswerError
from conformance.model import Ability, Check
from conformance.post import Post, Where
from conformance.record import Record
from conformance.signing import KEYS, published_by
from conformance.skills_map import Skill
from conformance.stanzas import Received
from conformance.target import Target
from xep.binding import Payload, encode
from xep.binding.escaping import escape_text
from xep.disco import INFO
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.pubsub import Pubsub
from xep.stanza import Incoming

SILENCE = 0.6
"""Seconds without an answer that count as silence. A slow target may pass wrongly; it never fails
for being slow.
"""


AGENT_INFO = (
    f"<query xmlns='{INFO}'><identity category='client' type='bot'/><feature var='{INFO}'/>"
    f"<feature var='{AGENT}'/><feature var='{AGENT}#execute'/><feature var='{AGENT}#delegation'/>"
    "<x xmlns='jabber:x:data' type='result'>"
    f"<field var='FORM_TYPE' type='hidden'><value>{AGENT}</value></field>"
    "<field var='agent_name'><value>Peer</value></field>"
    "<field var='not_in_any_version' type='list-multi'><value>1</value><value>2</value></field>"
    "</x></query>"
)
"""The disco#info answer of an agent that the kit plays, with an unknown field."""
UNSERVED = (
    "<error type='cancel'><service-unavailable"
    " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
)


class Talk(Holding):
    """The conversation of one check with the target.

    Args:
        check: the check.
        post: sends and delivers stanzas.
        target: the information about the target.
        timeout: seconds to wait for an answer.

    Attributes:
        who: the addresses that this check uses.
        record: the exchanged stanzas.
    """

    def __init__(self, check: Check, post: Post, target: Target, timeout: float) -> None:
        super().__init__(check)
        self.target = target
        self.timeout = timeout
        self.unanswered: list[str] = []
        self._token = f"{check.name}-{secrets.token_hex(3)}"
        self.who: Cast = post.driver.cast(self._token, ordered=check.ordered)
        self.record = Record(self.who)
        self._post = post
        self._ids = itertools.count(1)
        self._answers: dict[str, Received] = {}
        self._told: list[Received] = []
        self._played: dict[str, Part] = {}
        self._noted: set[int] = set()
        self._changed = anyio.Event()

    # -- lifecycle -------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Talk"]:
        """Receive stanzas at its addresses within the block."""
        who = self.who
        people = (who.caller, who.other, who.stranger, who.refused, who.peer)
        addresses = [one for one in people if one]
        self._post.open_box(self, addresses)
        try:
            yield self
        finally:
            self._post.close_box(self)
            for address, part in self._played.items():
                self._post.stop(address, part)
            self._post.driver.done(self._token)

    def answered(self, id_: str, stanza: Received) -> None:
        """Take an answer; called by the post."""
        self._answers[id_] = stanza
        self._wake()

    def told(self, stanza: Received) -> None:
        """Take another stanza; called by the post."""
        self._told.append(stanza)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # -- addresses -------------------------------------------------------------------------------

    @property
    def other(self) -> str:
        """The caller's other resource."""
        return _there(self.who.other)

    @property
    def streams(self) -> tuple[str, ...]:
        """Resources of the caller for a check that runs alone, each with its own stream."""
        return self._post.driver.streams(self.who)

    @property
    def stranger(self) -> str:
        """Another principal."""
        return _there(self.who.stranger)

    @property
    def refused(self) -> str:
        """A principal that the policy refuses."""
        return _there(self.who.refused)

    @property
    def sees_all(self) -> bool:
        """Whether stanzas arrive here as the target addressed them, without delivery by a
        server.
        """
        return Ability.STAMPED in self._post.driver.abilities

    @property
    def peer(self) -> str:
        """The address of an agent that the kit plays."""
        return _there(self.who.peer)

    def play(self, part: Callable[[Received], str | None], *, also: Iterable[str] = ()) -> None:
        """Play an agent at `peer`, and at the addresses ``also``: ``part`` returns the content of
        the answer to an IQ, None for unsupported ones. Discovery, and what asks for the keys of
        the agent, are answered automatically. Use `next` to wait for requests.
        """

        def answered(head: Incoming) -> str:
            asked = Received(head)
            content = _known(asked) or part(asked)
            type_ = "result"
            if content is None or content.startswith("<error"):
                type_ = "error"
            content = UNSERVED if content is None else content
            back = (
                f"<iq from={quoteattr(head.to or '')} to={quoteattr(head.sender or '')}"
                f" id={quoteattr(head.id or '')} type='{type_}'>{content}</iq>"
            )
            self.record.add("in", self._post.now, asked.xml)
            self.record.add("out", self._post.now, back)
            self._noted.add(id(asked))
            self.told(asked)
            return back

        for address in (self.peer, *also):
            if address in self._played:
                self._post.stop(address, self._played[address])
            self._played[address] = answered
            self._post.play(address, answered)

    def skill(self, role: str) -> Skill:
        """Return the target's skill for ``role``."""
        return self.target.skills[role]

    def fixed(self, role: str, tag: str = "param") -> str:
        """Return the additional parameters of a role's skill as XML, for a request
        written as text.
        """
        wanted = self.skill(role).fixed.items()
        return "".join(f"<{tag} name={quoteattr(n)}>{escape_text(v)}</{tag}>" for n, v in wanted)

    def new_id(self) -> str:
        """Return a new unique identifier."""
        return f"{self._token}-{next(self._ids)}"

    # -- requests --------------------------------------------------------------------------------

    async def iq(
        self,
        type_: str,
        payload: Payload | str,
        *,
        sender: str | None = None,
        to: str | None = None,
        id_: str | None = None,
        lang: str | None = None,
        within: float | None = None,
    ) -> Received:
        """Send an IQ and return its answer, a result or an error.

        Raises:
            NoAnswerError: none arrived in time.
        """
        id_ = self.new_id() if id_ is None else id_
        sender = sender or self.who.caller
        to = to or self.target.address
        self._answers.pop(id_, None)
        await self.begin(type_, payload, sender=sender, to=to, id_=id_, lang=lang)
        return await self.answer(id_, sender=sender, within=within)

    async def begin(
        self,
        type_: str,
        payload: Payload | str,
        *,
        id_: str,
        sender: str | None = None,
        to: str | None = None,
        lang: str | None = None,
    ) -> None:
        """Send an IQ without waiting for its answer."""
        sender = sender or self.who.caller
        to = to or self.target.address
        content = payload if isinstance(payload, str) else encode(payload, "jabber:client")
        spoken = "" if lang is None else f" xml:lang={quoteattr(lang)}"
        self._post.expect(self, sender, id_, to)
        await self._post.send(
            self,
            sender,
            f"<iq from={quoteattr(sender)} to={quoteattr(to)} type={quoteattr(type_)}"
            f" id={quoteattr(id_)}{spoken}>{content}</iq>",
        )

    async def answer(
        self, id_: str, *, sender: str | None = None, within: float | None = None
    ) -> Received:
        """Wait for the answer to the IQ ``id_``.

        Raises:
            NoAnswerError: none arrived in time.
        """
        with anyio.move_on_after(self.timeout if within is None else within):
            while id_ not in self._answers:
                await self._changed.wait()
        if id_ in self._answers:
            return self._answers[id_]
        self._post.give_up(sender or self.who.caller, id_)
        self.unanswered.append(id_)
        raise NoAnswerError(f"The IQ with the id {id_} was not answered in time.")

    async def execute(
        self,
        role: str,
        params: Mapping[str, str | Iterable[str]] | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        extra: str = "",
        sender: str | None = None,
        to: str | None = None,
        id_: str | None = None,
        lang: str | None = None,
        within: float | None = None,
        having: Mapping[str, str] | None = None,
        **attributes: str,
    ) -> Received:
        """Execute the skill that plays ``role``.

        Args:
            role: the role, or ``=name`` for a skill by its very name.
            params: texts by the role's own names; several texts repeat the parameter.
            values: what goes as JSON.
            extra: XML to put into the request.
            sender: the caller unless given.
            to: the target unless given.
            id_: of the IQ.
            lang: ``xml:lang`` of the IQ.
            within: seconds to wait; the timeout of the run unless given.
            having: attributes of ``<execute/>`` as a table.
            attributes: attributes of ``<execute/>``, such as ``mode``.
        """
        heads = {**(having or {}), **attributes}
        payload = self.request(role, params, values, extra, **heads)
        return await self.iq(
            "set", payload, sender=sender, to=to, id_=id_, lang=lang, within=within
        )

    def request(
        self,
        role: str,
        params: Mapping[str, str | Iterable[str]] | None = None,
        values: Mapping[str, Any] | None = None,
        extra: str = "",
        /,
        **attributes: str,
    ) -> str:
        """Return the ``<execute/>`` that `execute` sends."""
        skill = Skill(role[1:]) if role.startswith("=") else self.skill(role)
        heads = {"skill": skill.name, **attributes}
        xml = f"<execute xmlns='{EXECUTE}'"
        xml += "".join(f" {name}={quoteattr(text)}" for name, text in heads.items()) + ">"
        texts: dict[str, str | Iterable[str]] = dict(skill.fixed)
        texts |= {skill.param(name): text for name, text in (params or {}).items()}
        for name, given in texts.items():
            for text in [given] if isinstance(given, str) else given:
                xml += f"<param name={quoteattr(name)}>{escape_text(text)}</param>"
        if values is not None:
            named = {skill.param(name): value for name, value in values.items()}
            json = escape_text(msgspec.json.encode(named).decode())
            xml += f"<params type='application/json'>{json}</params>"
        return f"{xml}{extra}</execute>"

    async def message(
        self,
        body: str | None,
        *,
        sender: str | None = None,
        to: str | None = None,
        type_: str = "chat",
        thread: str | None = None,
        extra: str = "",
        lang: str | None = None,
    ) -> str:
        """Send a message; return its id."""
        id_ = self.new_id()
        sender = sender or self.who.caller
        content = "" if body is None else f"<body>{escape_text(body)}</body>"
        content += "" if thread is None else f"<thread>{escape_text(thread)}</thread>"
        spoken = "" if lang is None else f" xml:lang={quoteattr(lang)}"
        await self._post.send(
            self,
            sender,
            f"<message from={quoteattr(sender)} to={quoteattr(to or self.target.address)}"
            f" type={quoteattr(type_)} id={quoteattr(id_)}{spoken}>{content}{extra}</message>",
        )
        return id_

    async def send(self, sender: str, xml: str) -> None:
        """Send a stanza unchanged."""
        await self._post.send(self, sender, xml)

    # -- waiting ---------------------------------------------------------------------------------

    async def next(self, where: Where, *, within: float | None = None) -> Received:
        """Return the first stanza, other than an answer, for which ``where`` is true.

        Raises:
            BlockedError: none arrived in time.
        """
        with anyio.move_on_after(self.timeout if within is None else within):
            while True:
                for stanza in self._told:
                    if where(stanza):
                        self._told.remove(stanza)
                        if id(stanza) not in self._noted:
                            self.record.add("in", self._post.now, stanza.xml)
                        return stanza
                await self._changed.wait()
        raise BlockedError("The stanza that was waited for did not come in time.")

    async def quiet(self, where: Where, seconds: float = SILENCE) -> Received | None:
        """Wait for a stanza for which ``where`` is true; return None if there is silence."""
        try:
            return await self.next(where, within=min(seconds, self.timeout))
        except BlockedError:
            return None


def _known(asked: Received) -> str | None:
    """Return what each agent of the kit answers; None to a request of another kind."""
    if asked.head.sole_child == f"{{{INFO}}}query":
        return AGENT_INFO
    pubsub = asked.payload(Pubsub)
    if pubsub is not None and pubsub.items is not None and pubsub.items.node == KEYS:
        return published_by(asked.head.to or "")
    return None


def _there(address: str | None) -> str:
    assert address is not None, "the runner looks whether the driver has somebody for the part"
    return address
