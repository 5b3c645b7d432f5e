"""What a client may send and its server passes on, though some of it is not XML any more: it costs
its sender that stanza, and nobody the stream.

Both servers write an element `<xml:foo/>` again with the namespace of `xml:` as the default one,
which XML forbids; Prosody gives attributes in it another prefix, which is forbidden as well.
"""

import re
from collections import Counter

import pytest

from tests.servers.clients import SlixClient
from tests.servers.raw_client import log_in
from tests.servers.site import AGENT, ASSISTANT, Site
from tests.servers.talk import PING

pytestmark = [pytest.mark.servers]

TIMEOUT = 120.0  # seconds; a bound for a busy machine, not an expectation
CONTENTS = {
    "brace": "<x xmlns='urn:}'/>",
    "brace in an attribute's namespace": "<x xmlns:p='urn:}' p:a='1'/>",
    "element of xml": "<xml:foo/>",
    "attribute of xml": "<x xml:foo='1'/>",
}
ATTRIBUTES = {"attribute of xml": "xml:foo='1'", "brace": "xmlns:p='urn:}' p:a='1'"}


class RawClient:
    """A client that sends what it is told."""

    def __init__(self, site: Site, account: str) -> None:
        self._socket = log_in(site.server, account)
        self._socket.settimeout(TIMEOUT)
        self._heard = ""

    def says(self, xml: str, until: str) -> str:
        """Send, and return what is heard up to a text."""
        self._socket.sendall(xml.encode())
        while until not in self._heard:
            data = self._socket.recv(65536).decode()
            assert data, f"the server closed: {self._heard}"
            self._heard += data
        heard, _, self._heard = self._heard.partition(until)
        return heard + until

    def close(self) -> None:
        self._socket.close()


def stanzas() -> dict[str, str]:
    """Requests by their ids, each of which is to be answered once."""
    found = {}
    for number, content in enumerate(CONTENTS.values()):
        found[f"c{number}"] = f"<iq type='get' id='c{number}' to='{ASSISTANT}'>{content}</iq>"
    for number, attribute in enumerate(ATTRIBUTES.values()):
        head = f"<iq type='get' id='a{number}' to='{AGENT}' {attribute}>"
        found[f"a{number}"] = f"{head}<ping xmlns='urn:xmpp:ping'/></iq>"
    return found


def test_it_costs_nobody_the_stream(site: Site, juliet: SlixClient) -> None:
    streams = len(site.agent.log("connected"))
    sent = stanzas()
    messages = "".join(
        f"<message to='{ASSISTANT}' type='headline'>{content}</message>"
        for content in CONTENTS.values()
    )
    raw = RawClient(site, "romeo")
    try:
        last = f"<iq type='get' id='last' to='{AGENT}'><ping xmlns='urn:xmpp:ping'/></iq>"
        heard = raw.says(messages + "".join(sent.values()) + last, "id='last'")
        heard += raw.says(last.replace("last", "end"), "id='end'")
    finally:
        raw.close()
    answers = Counter(re.findall(r"id='([ac]\d)'", heard))
    assert answers == dict.fromkeys(sent, 1)
    assert juliet.iq(AGENT, PING).get("type") == "result"
    assert len(site.agent.log("connected")) == streams
