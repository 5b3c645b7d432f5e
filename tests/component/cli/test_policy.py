"""`xmpp-agent policy explain`: who may use what, and which setting says so."""

import json

from tests.component.cli.conftest import RunCommand

PEERS = json.dumps(
    [{"name": "research", "jid": "agent.example.net", "offers": ["echo"], "delegates": ["x.*"]}]
)
RULES = json.dumps(
    [
        {"skills": ["echo"], "allowed_jids": ["romeo@localhost"]},
        {"skills": ["add"], "confirm": "always", "approvers": ["romeo@localhost"]},
        {
            "skills": ["forget"],
            "confirm": "always",
            "approvers": ["room:ops@rooms.localhost", "romeo@localhost"],
            "need": 2,
        },
    ]
)


def explained(command: RunCommand, *words: str) -> str:
    return command("policy", "explain", *words, peer=PEERS, policy__rules=RULES).stdout


def test_a_refused_skill_comes_with_the_setting_that_refuses_it(command: RunCommand) -> None:
    found = explained(command, "juliet@localhost", "echo", "add", "nothing", "forget")
    assert "juliet@localhost is admitted." in found
    assert "no: policy.rules[0].allowed_jids" in found
    assert "yes (there is no such skill here)" in found
    assert "romeo@localhost" in found.partition("add")[2], "who confirms it"


def test_somebody_who_is_not_admitted_learns_why(command: RunCommand) -> None:
    assert "ann@elsewhere.example is not admitted, because of agent.allowed_domains." in explained(
        command, "ann@elsewhere.example"
    )


def test_a_peer_is_explained_by_what_it_is_offered(command: RunCommand) -> None:
    found = explained(command, "assistant@agent.example.net", "echo", "add")
    assert "is the agent of [[peer]] research" in found
    assert "It sees and may execute: echo." in found
    assert "What works for it may also use: x.*." in found
    assert "names of people of: example.net." in found
    assert "no: peer.research.offers" in found


BOTH = json.dumps(
    [
        {
            "name": "research",
            "jid": "agent.example.net",
            "offers": ["echo"],
            "requires": "grant",
            "asks_back": "always",
            "concurrency": 3,
            "skills": ["report", "find.*"],
            "read_only": ["find.*"],
            "data": ["web"],
            "onward": ["archive.search"],
            "call_usd": 0.5,
            "day_tokens": 1000,
        }
    ]
)


def test_a_peer_is_explained_in_both_directions_by_its_name(command: RunCommand) -> None:
    found = command("policy", "explain", "research", "report", "find.x", "y", peer=BOTH).stdout
    here, _, there = found.partition("What is used of research here")
    assert "It needs a signed grant of each agent in the path." in here
    assert "asked whether it still holds, before all skills." in here
    assert "At most 3 of its tasks run at the same time." in here
    assert "Its skills that are offered here: research.report, research.find.*." in there
    assert "before each call of a skill that read_only does not name; read_only: find.*." in there
    assert "after it has read only data of: web." in there
    assert "it may use at other agents: archive.search." in there
    assert "One call may cost: 0.5 USD." in there
    assert "All calls of a day may cost: 1000 tokens." in there
    table = there.partition("What may be executed here of research:")[2].splitlines()
    rows = [line.split() for line in table if "research." in line]
    assert ["research.report", "yes", "the", "person"] in rows
    assert ["research.find.x", "yes", "nobody"] in rows
    assert ["research.y", "no:", "peer.research.skills"] in rows


def test_a_peer_that_is_used_for_nothing_is_explained(command: RunCommand) -> None:
    found = explained(command, "research")
    assert "It needs no signed grants. Those that it sends are verified." in found
    assert "Nothing: skills is empty." in found


def test_both_directions_of_a_peer_are_json_on_request(command: RunCommand) -> None:
    found = json.loads(command("policy", "explain", "research", "--json", peer=BOTH).stdout)
    assert found["peer"]["requires"] == "grant"
    assert found["used"] == [
        {
            "skill": "research.report",
            "use": "yes",
            "may_use": True,
            "confirmation": "the person",
        },
        {"skill": "research.find.*", "use": "yes", "may_use": True, "confirmation": "nobody"},
    ]


def test_a_service_that_is_no_peer_may_use_nothing(command: RunCommand) -> None:
    found = explained(command, "localhost", "add")
    assert "It is a service, not an account" in found


def test_the_result_is_json_on_request(command: RunCommand) -> None:
    found = json.loads(explained(command, "juliet@localhost", "echo", "--json"))
    assert found == {
        "jid": "juliet@localhost",
        "admitted": True,
        "refused_by": [],
        "skills": [
            {
                "skill": "echo",
                "use": "no: policy.rules[0].allowed_jids",
                "may_use": False,
                "refused_by": ["policy.rules[0].allowed_jids"],
                "confirmation": "",
            }
        ],
    }


def test_what_is_no_address_is_said(command: RunCommand) -> None:
    failed = command("policy", "explain", "a b@c", peer=PEERS, policy__rules=RULES)
    assert failed.exit_code != 0
    assert "is not a JID" in failed.stderr


def test_a_room_that_decides_is_named_with_how_many_are_needed(command: RunCommand) -> None:
    found = explained(command, "juliet@localhost", "forget")
    assert "2 of romeo@localhost, the members, admins and owners of ops@rooms.localhost" in found
