"""aioxmpp as a peer that nobody here wrote: a program that asks an agent, and prints what it got.

It is a process of its own: aioxmpp lives on asyncio, and its modules warn when they are imported.
It logs in with STARTTLS, verifies the certificate, and prints one JSON object.

    python -m tests.servers.aioxmpp_peer JID PASSWORD HOST PORT CA_FILE AGENT
"""

import asyncio
import json
import sys
from typing import Any

import aioxmpp
import aioxmpp.connector
import aioxmpp.disco
import aioxmpp.dispatcher
import aioxmpp.security_layer
import aioxmpp.stanza
from aioxmpp import xso

EXECUTE = "urn:fluux:agent:0#execute"
TIMEOUT = 120.0


class Param(xso.XSO):
    TAG = (EXECUTE, "param")
    name = xso.Attr("name")
    value = xso.Text(default=None)


@aioxmpp.stanza.IQ.as_payload_class
class Execute(xso.XSO):
    TAG = (EXECUTE, "execute")
    skill = xso.Attr("skill")
    params = xso.ChildList([Param])


class Output(xso.XSO):
    TAG = (EXECUTE, "output")
    UNKNOWN_ATTR_POLICY = xso.UnknownAttrPolicy.DROP
    UNKNOWN_CHILD_POLICY = xso.UnknownChildPolicy.DROP
    name = xso.Attr("name", default=None)
    value = xso.Text(default=None)


@aioxmpp.stanza.IQ.as_payload_class
class Result(xso.XSO):
    TAG = (EXECUTE, "result")
    UNKNOWN_ATTR_POLICY = xso.UnknownAttrPolicy.DROP
    UNKNOWN_CHILD_POLICY = xso.UnknownChildPolicy.DROP
    skill = xso.Attr("skill")
    outputs = xso.ChildList([Output])


async def ask(jid: str, password: str, host: str, port: int, ca_file: str, agent: str) -> Any:
    layer = aioxmpp.make_security_layer(password)._replace(
        ssl_context_factory=lambda: _context(ca_file)
    )
    client = aioxmpp.PresenceManagedClient(
        aioxmpp.JID.fromstr(jid),
        layer,
        override_peer=[(host, port, aioxmpp.connector.STARTTLSConnector())],
    )
    disco = client.summon(aioxmpp.DiscoClient)
    dispatcher = client.summon(aioxmpp.dispatcher.SimpleMessageDispatcher)
    said: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(message: Any) -> None:
        if message.body and not said.done():
            said.set_result(message.body.any())

    dispatcher.register_callback(aioxmpp.MessageType.CHAT, None, heard)
    to = aioxmpp.JID.fromstr(agent)
    async with client.connected() as stream:
        info = await disco.query_info(to)
        payload = Execute()
        payload.skill = "echo"
        param = Param()
        param.name, param.value = "text", "from aioxmpp"
        payload.params.append(param)
        result = await client.send(
            aioxmpp.IQ(type_=aioxmpp.IQType.SET, to=to, payload=payload), timeout=TIMEOUT
        )
        message = aioxmpp.Message(type_=aioxmpp.MessageType.CHAT, to=to.bare())
        message.body[None] = "/help"
        await client.send(message)
        answer = await asyncio.wait_for(said, TIMEOUT)
        return {
            "features": sorted(info.features),
            "identities": [[one.category, one.type_] for one in info.identities],
            "outputs": [one.value for one in result.outputs],
            "answer": answer,
            "managed": bool(stream.sm_enabled),
        }


def _context(ca_file: str) -> Any:
    made = aioxmpp.security_layer.default_ssl_context()
    made.load_verify_locations(ca_file)
    return made


if __name__ == "__main__":
    jid, password, host, port, ca_file, agent = sys.argv[1:]
    found = asyncio.run(ask(jid, password, host, int(port), ca_file, agent))
    print(json.dumps(found))
