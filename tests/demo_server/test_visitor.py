"""The client of the demonstration, against the server it is made for."""

import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
import trustme

from demo_server import DemoServer
from demo_server.visitor import VisitError, Visitor
from tests.demo_server.peers import AGENT, LIMIT, Component, connect_component, new_server
from xep.binding.escaping import escape_text

pytestmark = pytest.mark.anyio
PING = "<ping xmlns='urn:xmpp:ping'/>"
SOON = ("not an answer", "not an answer", None)  # twice beside an answer, once before one


def visitor(server: DemoServer, password: str = "r", ca_file: Path | None = None) -> Visitor:
    assert server.ca_file is not None
    return Visitor(
        "romeo",
        password,
        host=server.host,
        address=server.address,
        port=server.c2s_port,
        ca_file=ca_file or server.ca_file,
    )


async def answer(component: Component) -> None:
    """Say first what nobody asked for, then what was."""
    while True:
        stanza = await component.stanza()
        head = f"from='{AGENT}' to='{stanza.sender}'"
        if stanza.kind == "iq":
            await component.says(f"<message {head}><body>not an answer</body></message>")
            await component.says(f"<iq type='result' id='another' {head}/>")
            await component.says(f"<iq type='result' id='{stanza.id}' {head}/>")
        elif stanza.kind == "message":
            body = escape_text(stanza.text_of("body") or "")
            await component.says(f"<message from='other@{AGENT}' to='{stanza.sender}'/>")
            await component.says(f"<message {head}><body>you said: {body}</body></message>")


async def test_it_asks_and_hears_the_answer_to_that() -> None:
    with anyio.fail_after(LIMIT):
        async with (
            new_server() as server,
            connect_component(server) as component,
            anyio.create_task_group() as tasks,
        ):
            await component.log_in()
            tasks.start_soon(answer, component)
            async with visitor(server) as romeo:
                assert romeo.jid.startswith("romeo@localhost/")
                for _ in range(2):
                    sent, reply = await romeo.iq("get", AGENT, PING)
                    assert f"to='{AGENT}'" in sent
                    assert PING in sent
                    assert (reply.type, reply.sender, reply.to) == ("result", AGENT, romeo.jid)
                sent = await romeo.say(AGENT, "it's <me>", "the thread")
                assert "it's &lt;me&gt;" in sent
                assert "<thread>the thread</thread>" in sent
                reply = await romeo.hear(lambda one: one.text_of("body") not in SOON)
                assert reply.text_of("body") == "you said: it's <me>"
                # What came while something else was waited for is still there, in its order.
                for body in SOON:
                    found = await romeo.hear(lambda one: one.kind == "message")
                    assert found.text_of("body") == body
            tasks.cancel_scope.cancel()


async def test_who_asks_it_something_is_answered() -> None:
    with anyio.fail_after(LIMIT):
        async with new_server() as server, connect_component(server) as component:
            await component.log_in()
            async with visitor(server) as romeo, anyio.create_task_group() as tasks:
                tasks.start_soon(romeo.hear, lambda one: one.kind == "message")
                head = f"from='{AGENT}' to='{romeo.jid}'"
                await component.says(f"<iq type='get' id='what' {head}>{PING}</iq>")
                answered = await component.stanza()
                assert (answered.kind, answered.type, answered.id) == ("iq", "error", "what")
                await component.says(f"<message {head}><body>enough</body></message>")


async def test_a_wrong_password() -> None:
    with anyio.fail_after(LIMIT):
        async with new_server() as server:
            with pytest.raises(VisitError, match=r"romeo@localhost was refused: .*failure"):
                async with visitor(server, "another"):
                    pass


async def test_a_server_of_somebody_else(tmp_path: Path) -> None:
    """It gives its password to nobody whose certificate it cannot verify."""
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(authority)
    with anyio.fail_after(LIMIT):
        async with new_server() as server:
            with pytest.raises(ssl.SSLCertVerificationError):
                async with visitor(server, ca_file=authority):
                    pass


async def test_a_server_that_goes_away() -> None:
    with anyio.fail_after(LIMIT):
        async with AsyncExitStack() as running:
            server = await running.enter_async_context(new_server())
            async with visitor(server) as romeo:
                await running.aclose()
                with pytest.raises(VisitError, match=r"the connection of romeo@localhost/.* ended"):
                    await romeo.iq("get", AGENT, PING)
                # Nor does anything come that it did not ask for.
                with pytest.raises(VisitError, match=r"the connection of romeo@localhost/.* ended"):
                    await romeo.hear(lambda _: True)
