"""Ad-hoc commands on real servers, by a client that nobody here wrote: slixmpp."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest
from anyio import to_thread

from component.skills import SkillError, skill
from tests.component.features.adhoc.command_bench import CommandBench
from tests.servers.base import Server
from tests.servers.clients import TIMEOUT, SlixClient
from tests.servers.commanding import serving
from tests.servers.fixtures import OTHER, SITE
from tests.servers.talk import condition, login
from xep.commands import NAMESPACE

pytestmark = [pytest.mark.servers, pytest.mark.anyio]

DOMAIN = f"agent.{OTHER}"
ASSISTANT = f"assistant@{DOMAIN}"
PLUGINS = ("xep_0030", "xep_0050", "xep_0004", "xep_0059")


@skill(destructive=False)
def add(a: int, b: int = 1, loud: bool = False) -> str:
    """Add two integers.

    Args:
        a: The first.
    """
    return f"{a + b}{'!' if loud else ''}"


@skill(inline=True, destructive=False)
def hello() -> str:
    """Say hello."""
    return "hello from here"


@skill(inline=True, destructive=False)
def grumpy(text: str) -> str:
    """Say no."""
    raise SkillError(f"no {text}")


SKILLS = (add, hello, grumpy)


def bench() -> CommandBench:
    return CommandBench(SKILLS, admins=["juliet@example.com"])


class AdHoc:
    """slixmpp's own workflow of a command: each answer goes to a handler with the session."""

    def __init__(self, client: SlixClient) -> None:
        self._client = client

    async def _in_loop(self, work: Callable[[], Any]) -> Any:
        """Await work in slixmpp's own loop, on another thread."""

        async def awaited(_: object) -> Any:
            return await work()

        return await to_thread.run_sync(self._client.run, awaited)

    async def nodes(self) -> dict[str, str]:
        """The title of each command."""
        found = await self._in_loop(
            functools.partial(self._client.xmpp.plugin["xep_0050"].get_commands, ASSISTANT)
        )
        return {node: name for _, node, name in found["disco_items"]["items"]}

    async def info(self, node: str) -> Any:
        plugin = self._client.xmpp.plugin["xep_0030"]
        found = await self._in_loop(functools.partial(plugin.get_info, ASSISTANT, node))
        return found["disco_info"]

    async def begin(self, node: str) -> tuple[Any, dict[str, Any]]:
        """The first answer, and the session to go on with."""
        plugin = self._client.xmpp.plugin["xep_0050"]
        return await self._step(lambda session: plugin.start_command(ASSISTANT, node, session), {})

    async def fill(
        self, answer: Any, session: dict[str, Any], action: str = "complete", **values: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Fill in the form of an answer, as slixmpp does it, and send it."""
        plugin = self._client.xmpp.plugin["xep_0050"]

        def send(session: dict[str, Any]) -> None:
            form = answer["form"]
            form.reply()
            form["values"] = {**form["values"], **values}
            session["payload"] = form
            if action == "complete":
                plugin.complete_command(session)
            else:
                plugin.cancel_command(session)

        return await self._step(send, session)

    async def _step(
        self, send: Callable[[dict[str, Any]], None], session: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        async def step() -> tuple[Any, dict[str, Any]]:
            answered: asyncio.Future[tuple[Any, dict[str, Any]]] = asyncio.Future()

            def handler(iq: Any, session: dict[str, Any]) -> None:
                answered.set_result((iq, session))

            send({**session, "next": handler, "error": handler})
            return await asyncio.wait_for(answered, TIMEOUT)

        iq, session = await self._in_loop(step)
        return iq["error"] if iq["type"] == "error" else iq["command"], session


async def test_slixmpp_runs_skills_as_ad_hoc_commands(xmpp_server: Server) -> None:
    # The bench admits people of example.com; the component of that host is another one's.
    server = xmpp_server.on(SITE)
    bound = serving(xmpp_server.on(OTHER), bench())
    async with bound, login(server, plugins=PLUGINS) as client:
        ad_hoc = AdHoc(client)
        nodes = await ad_hoc.nodes()
        assert {"skill/add": "Add", "skill/hello": "Hello"}.items() <= nodes.items()
        info = await ad_hoc.info("skill/add")
        assert ("automation", "command-node", None, "Add") in info["identities"]
        assert {NAMESPACE, "jabber:x:data"} <= set(info["features"])

        answer, _ = await ad_hoc.begin("skill/hello")
        assert answer["status"] == "completed"
        assert answer["form"]["values"]["output"] == ["hello from here"]

        form, session = await ad_hoc.begin("skill/add")
        assert form["status"] == "executing"
        assert set(form["actions"]) == {"complete"}
        fields = form["form"].get_fields()
        assert {var: field["type"] for var, field in fields.items()} == {
            "FORM_TYPE": "hidden",
            "a": "text-single",
            "b": "text-single",
            "loud": "boolean",
        }
        assert fields["a"]["required"]
        assert fields["a"]["desc"] == "The first."
        assert fields["b"]["value"] == "1"

        again, session = await ad_hoc.fill(form, session, a="two")
        assert again["status"] == "executing"
        assert again["notes"] == [("error", "The form is not valid. A: expected an integer.")]
        fields = again["form"].get_fields()
        assert fields["a"]["value"] == "two"
        assert fields["a"]["desc"] == "Expected an integer. The first."

        done, _ = await ad_hoc.fill(again, session, a="2", loud=True)
        assert done["status"] == "completed"
        assert done["notes"] == [("info", "Add: done.")]
        assert done["form"]["type"] == "result"
        assert done["form"]["values"]["output"] == ["3!"]

        form, session = await ad_hoc.begin("skill/grumpy")
        done, _ = await ad_hoc.fill(form, session, text="way")
        assert (done["status"], done["notes"]) == ("completed", [("error", "no way")])

        form, session = await ad_hoc.begin("skill/grumpy")
        done, _ = await ad_hoc.fill(form, session, "cancel")
        assert done["status"] == "canceled"

        pong, _ = await ad_hoc.begin("command/ping")
        assert pong["status"] == "completed"
        missing = await client.aiq(
            ASSISTANT, f"<command xmlns='{NAMESPACE}' node='skill/missing'/>", "set"
        )
        assert condition(missing) == "item-not-found"
