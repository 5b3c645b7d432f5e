"""An agent on another server that does what a test says: it speaks raw XMPP."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tests.kit import Kit
from tests.kit.xmpp import parse
from xep.binding import Payload, encode
from xep.fluux_agent.execute import Execute, Result
from xep.fluux_agent.skills import Schema, SkillDescription, SkillsQuery, Title
from xep.jid import JID
from xep.stanza import IQ, Incoming
from xep.stanza_error import StanzaError
from xep.stream import StreamError

OBJECT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}


def described(name: str, schema: Mapping[str, Any] = OBJECT, **more: Any) -> SkillDescription:
    """Return the description of a skill."""
    json = msgspec.Raw(msgspec.json.encode(schema))
    more.setdefault("titles", (Title(text=f"Do {name}"),))
    return SkillDescription(name=name, schemas=(Schema(direction="input", json=json),), **more)


class ScriptedAgent:
    """The agent at a domain.

    Attributes:
        skills: what it offers.
        executed: the execute requests that it got.
        requests: all IQs that it got.
        results: answers each execute request, by the skill: a payload, an error, or a function of
            the request; None for no answer at all.
    """

    def __init__(self, kit: Kit, domain: str, skills: Sequence[SkillDescription]) -> None:
        self.skills = tuple(skills)
        self.executed: list[Execute] = []
        self.requests: list[Incoming] = []
        self.results: dict[str, Payload | StanzaError | Callable[[Execute], Payload] | None] = {}
        self.version = "1"
        self._domain = domain
        kit.xmpp.add_service(domain, "s")
        self._home = kit.xmpp.connect_link(domain, self)

    def send(self, xml: str) -> None:
        """Take a stanza from the server."""
        stanza = parse(xml)
        if stanza.kind != "iq" or stanza.type not in ("get", "set"):
            return
        self.requests.append(stanza)
        try:
            payload = self._answer(stanza)
        except StanzaError as error:
            self.say(self._reply(stanza, "error", error=error))
        else:
            if payload is not None:
                self.say(self._reply(stanza, "result", payload=payload))

    def close(self, error: StreamError) -> None:
        raise AssertionError(f"the stream of {self._domain} has ended: {error}")

    def say(self, xml: str) -> None:
        """Send a stanza."""
        stanza = parse(xml)
        self._home.from_component(JID.parse(stanza.sender or ""), stanza, self)

    def tell(self, to: str, payload: Payload, *, thread: str = "", kind: str = "headline") -> None:
        """Send a message with a payload."""
        within = f"<thread>{thread}</thread>" if thread else ""
        self.say(
            f"<message from='{self._domain}' to='{to}' type='{kind}'>{within}{encode(payload)}"
            "</message>"
        )

    def _reply(self, stanza: Incoming, kind: Any, **more: Any) -> str:
        return IQ(
            type=kind,
            id=stanza.id or "",
            to=JID.parse(stanza.sender or ""),
            from_=JID.parse(stanza.to or ""),
            **more,
        ).encode()

    def _answer(self, stanza: Incoming) -> Payload | None:
        query = stanza.payload(SkillsQuery)
        if query is not None:
            if query.version == self.version:
                return SkillsQuery(version=self.version, ttl=600, unchanged=True)
            return SkillsQuery(version=self.version, ttl=600, skills=self.skills)
        execute = stanza.payload(Execute)
        if execute is None:
            raise StanzaError("service-unavailable")
        self.executed.append(execute)
        result = self.results.get(execute.skill, Result(skill=execute.skill))
        if isinstance(result, StanzaError):
            raise result
        return result(execute) if callable(result) else result
