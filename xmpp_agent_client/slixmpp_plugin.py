"""The plug-in for slixmpp: ``xmpp.plugin["agents"]``.

```python
from xmpp_agent_client import slixmpp_plugin

slixmpp_plugin.register(xmpp)
agents = xmpp.plugin["agents"]
```

It works in clients and in components. slixmpp does not connect again by itself; after it has, tasks
are followed on, and requests without an answer are repeated.
"""

import asyncio
from typing import Any, ClassVar, Final, Literal
from xml.etree.ElementTree import Element, fromstring

try:
    import slixmpp
    from slixmpp.exceptions import IqError, IqTimeout
    from slixmpp.plugins.base import BasePlugin
    from slixmpp.xmlstream.handler import Callback
    from slixmpp.xmlstream.matcher import MatchMany, MatchXPath
except ImportError as error:
    raise ImportError(
        f"This needs slixmpp: pip install 'xmpp-agent-client[slixmpp]' ({error})"
    ) from error

from xmpp_agent_client import stanzas
from xmpp_agent_client.calls import Agents

_HANDLER: Final = "agents"


class AgentsPlugin(BasePlugin, Agents):
    """Calls agents. The methods are those of `Agents`."""

    name = "agents"
    description = "Agents (urn:fluux:agent:0)"
    dependencies: ClassVar[set[str]] = {"xep_0030"}  # agents ask what we are

    def __init__(self, xmpp: Any, config: dict[str, Any] | None = None) -> None:
        Agents.__init__(self)
        self._lost = asyncio.Event()
        BasePlugin.__init__(self, xmpp, config)

    @property
    def own_domain(self) -> str:
        """The domain of the account, or of the component's server."""
        domain = str(self.xmpp.boundjid.host)
        return domain.partition(".")[2] if self.xmpp.is_component else domain

    def plugin_init(self) -> None:
        """Listen to messages, and to the state of the stream."""
        xmpp: Any = self.xmpp
        paths = [f"{{{xmpp.default_ns}}}message/{one.xml_tag}" for one in stanzas.NOTICES]
        matcher = MatchMany([MatchXPath(path) for path in paths])
        xmpp.register_handler(Callback(_HANDLER, matcher, lambda message: self.hear(message.xml)))
        for event, handler in self._handlers():
            xmpp.add_event_handler(event, handler)
        if xmpp.session_bind_event.is_set():
            self._begin(None)

    def plugin_end(self) -> None:
        """Listen no more."""
        self.xmpp.remove_handler(_HANDLER)
        for event, handler in self._handlers():
            self.xmpp.del_event_handler(event, handler)

    def _handlers(self) -> tuple[tuple[str, Any], ...]:
        return (
            ("session_start", self._begin),
            ("session_resumed", self._begin),
            ("disconnected", self._end_stream),
            ("failed_all_auth", self._refused),
            ("ssl_invalid_chain", self._not_trusted),
        )

    def _begin(self, _event: object) -> None:
        self._lost = asyncio.Event()
        self.connected()

    def _end_stream(self, _reason: object) -> None:
        self._lost.set()
        self.disconnected()

    def _refused(self, _event: object) -> None:
        self.failed(f"The server does not accept the password of {self.xmpp.boundjid.bare}.")

    def _not_trusted(self, error: object) -> None:
        self.failed(f"The certificate of the server is not valid: {error}")

    async def send_iq(self, type_: Literal["get", "set"], to: str, payload: str) -> Element | None:
        """Send an IQ, as `Agents.send_iq`."""
        xmpp: Any = self.xmpp
        iq = xmpp.make_iq(itype=type_, ito=to, ifrom=xmpp.boundjid if xmpp.is_component else None)
        iq.append(fromstring(payload))  # noqa: S314 - our own
        answer = asyncio.ensure_future(iq.send(timeout=self.answer_timeout))
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait((answer, lost), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionError("the stream ended before the answer")
            result = answer.result()
        except IqError as error:
            raise stanzas.read_error(error.iq.xml.find("{*}error")) from None
        except IqTimeout:
            raise TimeoutError from None
        finally:
            answer.cancel()
            lost.cancel()
        return next(iter(result.xml), None)


def register(xmpp: slixmpp.ClientXMPP | slixmpp.ComponentXMPP) -> AgentsPlugin:
    """Add the plug-in to a client or a component, and return it."""
    plugins: Any = xmpp.plugin  # for slixmpp's types, it has its own plug-ins only
    plugins.register(AgentsPlugin)
    plugin: AgentsPlugin = plugins[AgentsPlugin.name]
    return plugin
