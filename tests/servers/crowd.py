"""Many accounts, which are the addresses of one component, so that one stream has all of them."""

from collections.abc import Sequence
from typing import Any

from tests.servers.base import Server
from tests.servers.clients import TIMEOUT, Element, SlixComponent
from tests.servers.talk import execute, output


class Crowd(SlixComponent):
    """The accounts `name@domain`. Each of them refuses every IQ request."""

    def __init__(self, server: Server, *, second: bool = False) -> None:
        """Serve the domain of the component of a server, or of its second component."""
        domain, port = server.component_domain, server.component_port
        if second:
            domain, port = server.second or "", server.second_port
        super().__init__(domain, server.secret, server.address, port)
        self.domain = domain

    def names(self, count: int) -> Sequence[str]:
        """Return the addresses of so many accounts."""
        return [f"person{number}@{self.domain}" for number in range(count)]

    def ask(self, sender: str, to: str, skill: str, timeout: float = TIMEOUT) -> str:
        """Return what a skill returns to an account. Raises TimeoutError."""
        return output(self.iq(to, execute(skill), "set", f"{sender}/desk", timeout))

    def _record(self, stanza: Element) -> None:
        if stanza.tag.endswith("}iq") and stanza.get("type") in {"get", "set"}:
            given: Any = {name: stanza.get(name) for name in ("id", "from", "to")}
            self.xmpp.send_raw(
                f"<iq type='error' id='{given['id']}' to='{given['from']}' from='{given['to']}'>"
                "<error type='auth'>"
                "<forbidden xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
            )
        super()._record(stanza)
