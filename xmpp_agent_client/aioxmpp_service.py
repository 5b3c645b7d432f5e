"""The service for aioxmpp: ``client.summon(AgentsService)``.

```python
from xmpp_agent_client.aioxmpp_service import AgentsService

agents = client.summon(AgentsService)
```

The last release of aioxmpp is 0.13.3, of 2023. It needs Python 3.11, lxml 4 and pyOpenSSL before
26: with Python 3.12 it cannot verify certificates, because `ssl.match_hostname` is gone. It stops
with ``on_failure`` if a connection breaks without an end of TLS; start the client again then.
Requests and tasks continue on the new stream.
"""

import io
from typing import Any, Literal
from xml.etree.ElementTree import Element, fromstring

try:
    import aioxmpp
    import aioxmpp.disco.xso
    import aioxmpp.service
    import aioxmpp.stanza
    import aioxmpp.xml
    from aioxmpp import xso
    from aioxmpp.xso.model import events_to_sax
    from OpenSSL import SSL
except ImportError as error:
    raise ImportError(
        "This needs aioxmpp, which runs on Python 3.11 and not on later ones:"
        f" pip install 'xmpp-agent-client[aioxmpp]' ({error})"
    ) from error

from xep.binding import Payload
from xep.fluux_agent.errors import CONDITIONS
from xep.result_sets import ResultSet
from xmpp_agent_client import stanzas
from xmpp_agent_client.calls import Agents
from xmpp_agent_client.errors import InvalidAnswerError


class _Kept(xso.CapturingXSO):  # type: ignore[misc]  # aioxmpp has no types
    """An element that is kept as it is."""

    __slots__ = ("_events",)
    UNKNOWN_ATTR_POLICY = xso.UnknownAttrPolicy.DROP
    UNKNOWN_CHILD_POLICY = xso.UnknownChildPolicy.DROP

    def _set_captured_events(self, events: Any) -> None:
        self._events = events

    def xso_serialise_to_sax(self, dest: Any) -> None:
        """Write the element."""
        events_to_sax(self._events, dest)


def _kept(payload: type[Payload]) -> Any:
    made: Any = type(_Kept)  # a metaclass of aioxmpp
    return made(f"_{payload.__name__}", (_Kept,), {"TAG": tuple(payload.xml)})


# aioxmpp drops elements, and refuses payloads, whose classes are not registered.
_CLASSES = {one.xml_tag: _kept(one) for one in (*stanzas.ANSWERS, *stanzas.REQUESTS)}
for _class in _CLASSES.values():
    aioxmpp.IQ.as_payload_class(_class)
aioxmpp.stanza.Error.xmpp_agent_conditions = xso.ChildList([_kept(one) for one in CONDITIONS])
aioxmpp.disco.xso.ItemsQuery.xmpp_agent_page = xso.Child([_kept(ResultSet)])
aioxmpp.Message.xmpp_agent_notices = xso.ChildList([_kept(one) for one in stanzas.NOTICES])


class AgentsService(aioxmpp.service.Service, Agents):  # type: ignore[misc]
    """Calls agents. The methods are those of `Agents`."""

    def __init__(self, client: Any, **kwargs: Any) -> None:
        Agents.__init__(self)
        aioxmpp.service.Service.__init__(self, client, **kwargs)
        client.on_stream_established.connect(self.connected)
        client.on_stream_resumed.connect(self.connected)
        client.on_stream_destroyed.connect(self._destroyed)
        client.on_failure.connect(self._client_failed)
        if client.established:
            self.connected()

    @property
    def own_domain(self) -> str:
        """The domain of the account."""
        return str(self.client.local_jid.domain)

    def _destroyed(self, _reason: object = None) -> None:
        self.disconnected()

    def _client_failed(self, error: Exception) -> None:
        # If a connection breaks without an end of TLS, aioxmpp stops, and can be started again.
        if not isinstance(error, SSL.Error):
            self.failed(f"The client has stopped: {error}")

    @aioxmpp.service.inbound_message_filter  # type: ignore[untyped-decorator]
    def _filter(self, message: Any) -> Any:
        if message.xmpp_agent_notices:
            self.hear(_element(message))
        return message

    async def send_iq(self, type_: Literal["get", "set"], to: str, payload: str) -> Element | None:
        """Send an IQ, as `Agents.send_iq`."""
        iq = aioxmpp.IQ(
            type_=aioxmpp.IQType(type_), to=aioxmpp.JID.fromstr(to), payload=_payload(payload)
        )
        errors: list[Element] = []

        def keep_error(answer: Any) -> None:
            if answer.type_.is_error:
                errors.append(_element(answer.error))

        try:
            found = await self.client.send(iq, timeout=self.answer_timeout, cb=keep_error)
        except aioxmpp.errors.XMPPError:
            raise stanzas.read_error(errors[0] if errors else None) from None
        except aioxmpp.errors.ErroneousStanza as error:
            raise InvalidAnswerError(f"the answer is not valid: {error}") from error
        except SSL.Error as error:  # what aioxmpp lets through if the connection breaks
            raise ConnectionError(f"the stream failed: {error}") from error
        return None if found is None else _element(found)


def _payload(xml: str) -> Any:
    """Return the payload of an IQ as an object of aioxmpp."""
    namespace, _, local = fromstring(xml).tag[1:].rpartition("}")  # noqa: S314 - our own
    cls = aioxmpp.IQ.payload.get_tag_map()[namespace, local]
    return aioxmpp.xml.read_single_xso(io.BytesIO(xml.encode()), cls)


def _element(object_: Any) -> Element:
    """Return an object of aioxmpp as an element."""
    return fromstring(aioxmpp.xml.serialize_single_xso(object_))  # noqa: S314 - aioxmpp wrote it
