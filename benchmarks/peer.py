"""slixmpp as a component that gives the same answer to the same IQ as our `echo`.

    AGENT_SECRET=… python -m benchmarks.peer DOMAIN PORT

It has no policy, registry, validation or limits. It is written as in slixmpp's documentation,
without plugins, on uvloop, which makes it a little faster.
"""

from __future__ import annotations

import os
import sys
from typing import Any
from xml.etree import ElementTree as ET

import slixmpp
import uvloop
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

NS = "urn:fluux:agent:0#execute"


def result_of(execute: ET.Element) -> ET.Element:
    """Return the `<result/>` that echoes the parameter `text`."""
    result = ET.Element(f"{{{NS}}}result", {"skill": "echo", "is-error": "false"})
    output = ET.SubElement(result, f"{{{NS}}}output", {"name": "output", "type": "text/plain"})
    output.text = execute.findtext(f"{{{NS}}}param")
    ET.SubElement(result, f"{{{NS}}}usage", {"duration-ms": "0"})
    return result


async def main(domain: str, port: int) -> None:
    """Serve until the stream ends."""
    secret = os.environ["AGENT_SECRET"]
    xmpp = slixmpp.ComponentXMPP(domain, secret, "127.0.0.1", port)  # type: ignore[no-untyped-call]

    def answer(iq: Any) -> None:
        reply = iq.reply()
        reply.append(result_of(iq.xml.find(f"{{{NS}}}execute")))
        reply.send()

    matcher = MatchXPath(f"{{{xmpp.default_ns}}}iq/{{{NS}}}execute")
    xmpp.register_handler(Callback("execute", matcher, answer))
    ended = xmpp.disconnected
    xmpp.connect()
    await ended


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
