"""The PubSub service of an agent, used with aioxmpp's plug-in, verb by verb, on real servers."""

import json
import subprocess
import sys

import pytest

from tests.servers import guides
from tests.servers.base import Server
from tests.servers.conftest import MakeAgent

pytestmark = [pytest.mark.servers]


def test_aioxmpp_owns_a_node(xmpp_server: Server, make_agent: MakeAgent) -> None:
    owner = xmpp_server.jid("juliet")
    make_agent(xmpp_server, agent__admins=[owner]).connected()
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.servers.aioxmpp_pubsub",
            owner,
            xmpp_server.accounts["juliet"],
            xmpp_server.address,
            str(xmpp_server.c2s_port),
            str(xmpp_server.ca_file),
            f"assistant@{xmpp_server.component_domain}",
        ],
        cwd=guides.DOCS.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"PUBLISH", "SUBSCRIBE", "RETRIEVE_ITEMS", "PURGE_NODES"} <= set(found.pop("features"))
    assert {"log", "urn:fluux:agent:0#skills"} <= set(found.pop("nodes"))
    assert found == {
        "created twice": "conflict",
        "subscribed": "subscribed",
        "published": ["0", "1", "2", "3"],
        "events": [["published", str(number)] for number in range(4)],
        "items": [["1", "1"], ["2", "2"], ["3", "3"]],
        "by id": ["2"],
        "retracted": ["retracted", "2"],
        "retracted twice": "item-not-found",
        "subscriptions": ["log"],
        "affiliations": [[owner, "owner"], ["romeo@example.com", "publisher"]],
        "subscribers": 1,
        "unsubscribed twice": "unexpected-request",
        "deleted twice": "item-not-found",
    }
