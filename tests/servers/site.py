"""One service on one server that many tests look at: `example.com`, with fixtures and own skills.

The server has that name so that the IQs of the first public draft can be sent letter for letter.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.clients import SlixClient
from tests.servers.fixtures import SITE
from tests.servers.talk import login

AGENT = f"agent.{SITE}"
ASSISTANT = f"assistant@{AGENT}"
INLINE_S = 2
STANZA_BYTES = 48_000
"""What is larger takes long through a server that limits rates."""

OWN_SKILLS = '''
from component.skills import Context, skill

@skill(name="email-summary", read_only=True, inline=True)
def email_summary(max_emails: int) -> str:
    """Summarise the newest mails."""
    return f"{max_emails} mails"

@skill(read_only=True)
def broken() -> str:
    """Fail as skills with a mistake in them do."""
    raise RuntimeError("what nobody outside may read")

@skill(name="only-romeo", read_only=True)
def only_romeo(ctx: Context) -> str:
    """Tell who asked."""
    return ctx.principal
'''


@dataclass
class Site:
    server: Server
    agent: AgentProcess


@pytest.fixture(scope="session")
def site(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    server = xmpp_server.on(SITE)
    directory = tmp_path_factory.mktemp("agent")
    (directory / "own.py").write_text(OWN_SKILLS)
    agent = AgentProcess(
        server,
        directory,
        program=True,
        conformance__enabled=True,
        skills__modules=["./own.py"],
        agent__allowed_jids=[server.jid("juliet"), server.jid("romeo")],
        policy__rules=[{"skills": ["only-romeo"], "allowed_jids": [server.jid("romeo")]}],
        limits__inline_s=INLINE_S,
        server__max_stanza_bytes=STANZA_BYTES,
    )
    with agent:
        agent.connected()
        yield Site(server, agent)


@pytest.fixture(scope="session")
def juliet(site: Site) -> Iterator[SlixClient]:
    with login(site.server, plugins=("xep_0030", "xep_0115")) as client:
        yield client


@pytest.fixture(scope="session")
def romeo(site: Site) -> Iterator[SlixClient]:
    with login(site.server, "romeo") as client:
        yield client


@pytest.fixture(scope="session")
def mallory(site: Site) -> Iterator[SlixClient]:
    """Somebody of an allowed domain whom `allowed_jids` does not name."""
    with login(site.server, "mallory") as client:
        yield client
