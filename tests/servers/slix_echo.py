"""slixmpp as a component that answers `execute` as our `echo` does, without any of the rest.

Nothing but what slixmpp's own documentation shows, so that it is a fair measure. Runs alone:

    AGENT_SECRET=… python -m tests.servers.slix_echo DOMAIN ADDRESS PORT

prints `ready` when the server has accepted it, and ends with the stream.
"""

import asyncio
import os
import sys
from typing import Any
from xml.etree import ElementTree as ET

import slixmpp
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

NS = "urn:fluux:agent:0#execute"


def result_of(execute: ET.Element) -> ET.Element:
    """Return the `<result/>` that echoes the parameter `text`."""
    result = ET.Element(f"{{{NS}}}result", {"skill": "echo", "is-error": "false"})
    output = ET.SubElement(result, f"{{{NS}}}output", {"name": "result", "type": "text/plain"})
    output.text = execute.findtext(f"{{{NS}}}param[@name='text']")
    return result


def answer_execute(xmpp: slixmpp.ComponentXMPP) -> None:
    """Let `xmpp` answer each execute IQ."""

    def answer(iq: Any) -> None:
        execute = iq.xml.find(f"{{{NS}}}execute")
        reply = iq.reply()
        reply.append(result_of(execute))
        reply.send()

    matcher = MatchXPath(f"{{{xmpp.default_ns}}}iq/{{{NS}}}execute")
    xmpp.register_handler(Callback("execute", matcher, answer))


async def main(domain: str, address: str, port: int) -> None:
    """Serve until the stream ends."""
    secret = os.environ["AGENT_SECRET"]
    xmpp = slixmpp.ComponentXMPP(domain, secret, address, port)  # type: ignore[no-untyped-call]
    answer_execute(xmpp)
    xmpp.add_event_handler("session_start", lambda _: print("ready", flush=True))
    ended = xmpp.disconnected
    xmpp.connect()
    await ended


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
