"""A million hostile stanzas through Prosody and ejabberd, which change them on the way.

Two accounts and a component of the same server send; the service admits one account and some
addresses of the component. Every request that reaches the service is answered exactly once, its
stream is never lost, no error is in its log, its memory is level, and an honest client is served as
if nothing were. A fault is reported with a command that plays one stanza again.

HOSTILE_SEED, HOSTILE_STANZAS (per server) and HOSTILE_FIRST (number of the first one) choose what
is played; `make thorough` plays a million stanzas of a new seed.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.component.models.endpoint import Answer, Request, Text
from tests.hostile.campaign import Campaign, addresses_of, memory_bytes
from tests.hostile.honest import Honest
from tests.hostile.stanzas import Stanzas
from tests.hostile.tap import Tap
from tests.profiles import SEED as SEED_OF_ALL
from tests.profiles import THOROUGH
from tests.servers.base import Server
from tests.servers.chatting import chatting
from tests.servers.fixtures import ServerFactory
from tests.servers.site import OWN_SKILLS
from tests.servers.talk import login

pytestmark = [pytest.mark.servers]

SEED = int(os.environ.get("HOSTILE_SEED") or SEED_OF_ALL)
STANZAS = int(os.environ.get("HOSTILE_STANZAS") or (500_000 if THOROUGH else 300))
FIRST = int(os.environ.get("HOSTILE_FIRST") or 0)
LIMIT_S = 3000.0
"""A slow machine plays fewer in a campaign; the few of the gate need a hundredth of it."""

SECOND = "evil.test"
FRIENDS = tuple(f"friend{number}" for number in range(12))
WHY_UNLIMITED = "three senders play thousands of stanzas, some of hundreds of kilobytes"
GROWTH_BYTES = 64 << 20
"""What the memory may grow by after the first third: less than 150 bytes for each stanza."""


def reply(request: Request) -> Answer:
    """A model that repeats what it is told, so that what came in goes out again."""
    said = [message for message in request.messages if message.get("role") == "user"]
    return Text(f"You said: {str(said[-1].get('content'))[-2000:] if said else 'nothing'}")


@pytest.fixture
def campaign(make_server: ServerFactory, tmp_path: Path) -> Iterator[Campaign]:
    server = make_server(start=False, second=SECOND, unlimited=WHY_UNLIMITED)
    server.accounts["mallory"] = "password of mallory"
    server.start()
    (tmp_path / "site.py").write_text(OWN_SKILLS)
    with ExitStack() as stack:
        tap = stack.enter_context(Tap(server.address, server.component_port))
        chat = stack.enter_context(chatting(server, tmp_path / "agent", **settings(server, tap)))
        chat.model.otherwise = reply
        romeo = stack.enter_context(login(server, "romeo"))
        honest = Honest(romeo, server.component_domain)
        honest.once(0)
        stack.enter_context(honest.running())
        stanzas = Stanzas(SEED, addresses_of(server, FRIENDS))
        made = Campaign(server, chat.agent, tap, honest, stanzas)
        yield stack.enter_context(made.running())


def settings(server: Server, tap: Tap) -> dict[str, object]:
    friends = [f"{friend}@{SECOND}" for friend in FRIENDS]
    return {
        "server__port": tap.port,
        "log__level": "info",
        "conformance__enabled": True,
        "skills__modules": ["./own.py", "../site.py"],
        "agent__allowed_domains": [server.host, SECOND],
        "agent__allowed_jids": [server.jid("juliet"), server.jid("romeo"), *friends],
        "policy__rules": [{"skills": ["only-romeo"], "allowed_jids": [server.jid("romeo")]}],
        "limits__inline_s": 1,
        "limits__iq_timeout_s": 2,
    }


def test_no_stanza_harms_the_service(campaign: Campaign, request: pytest.FixtureRequest) -> None:
    third = STANZAS // 3
    campaign.run(third, LIMIT_S / 3, FIRST)
    warm = memory_bytes(campaign.agent.pid)
    campaign.run(STANZAS - third, LIMIT_S * 2 / 3, FIRST + third)
    grown = memory_bytes(campaign.agent.pid) - warm
    tap = campaign.tap
    print(
        f"{campaign.server.name}, seed {SEED}: {campaign.sent} stanzas sent, {tap.came} arrived,"
        f" {tap.requests} of them requests; {campaign.reconnected} logins after a stream's end;"
        f" {campaign.honest.rounds} honest rounds; {warm >> 20} MB and then {grown >> 20} MB more"
    )
    print(tap.conditions.most_common())
    assert not campaign.faults, campaign.report(request.node.nodeid)
    assert tap.connections == 1
    assert grown < GROWTH_BYTES
    campaign.honest.once(0)
