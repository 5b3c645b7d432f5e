"""The pictures agree with what they show."""

import re
from collections import defaultdict
from xml.etree import ElementTree

from component.tasks.changes import TRANSITIONS
from component.tasks.rows import TERMINAL
from tests.component.link.messages.clients import shapes
from tests.servers.guides import DOCS

LARGEST = 150_000  # bytes


def test_the_states_of_a_task_are_drawn_as_they_are() -> None:
    page = (DOCS / "explanation" / "tasks-and-turns.md").read_text("utf-8")
    (picture,) = re.findall(r"^stateDiagram-v2\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    drawn = set(re.findall(r"^ +(\S+) --> ([\w\[\]*-]+)", picture.replace("_", "-"), re.MULTILINE))
    # A change that leaves a task in its state (progress, another question) is no way in a picture.
    ways = {(start, end) for start, ends in TRANSITIONS.items() for end in ends if start != end}
    assert drawn == {("[*]", "accepted")} | ways | {(state, "[*]") for state in TERMINAL}


def test_the_stages_of_a_turn_are_drawn_once_and_in_their_order() -> None:
    """They are numbered in the engine and where it calls tools, and so in the picture."""
    agent = DOCS.parent / "component" / "agent"
    told: list[str] = []
    for name in ("engine.py", "tool_calls.py"):
        headings = re.findall(
            r"^    # ([\d and]+): ", (agent / name).read_text("utf-8"), re.MULTILINE
        )
        told += [number for heading in headings for number in heading.split(" and ")]
    picture = ElementTree.parse(DOCS / "pictures" / "turn.svg")
    texts = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    drawn = [text[0] for text in texts if re.match(r"\d\xa0", text)]
    assert sorted(drawn) == sorted(told) == list("12345678")


def test_every_picture_is_shown_with_a_text_for_those_who_cannot_see_it() -> None:
    shown: set[str] = set()
    beside = (DOCS.parent / "README.md", DOCS.parent / "ARCHITECTURE.md")
    for guide in (*DOCS.rglob("*.md"), *beside):
        for text, name in re.findall(
            r"!\[([^\]]*)\]\((?:docs/|\.\./)?pictures/([^)]*)\)", guide.read_text("utf-8")
        ):
            assert len(text.split()) > 3, name
            shown.add(name)
    there = {file.name for file in (DOCS / "pictures").iterdir()}
    assert shown == there
    assert all((DOCS / "pictures" / name).stat().st_size <= LARGEST for name in there)


def test_what_clients_can_do_is_what_they_send() -> None:
    sent: defaultdict[str, set[str]] = defaultdict(set)
    for shape in shapes():
        sent[shape.client.casefold()].add(shape.of)
    guide = (DOCS / "reference" / "clients.md").read_text("utf-8")
    table = re.search(r"^\| client \|.*?\n\n", guide, re.MULTILINE | re.DOTALL)
    assert table is not None
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[0].split("\n")[2:-2]]
    assert {row[0].casefold() for row in rows} == set(sent)
    for client, answers, corrects, takes_back in rows:
        does = sent[client.casefold()]
        assert ("reply" in answers) == ("reply" in does), client
        assert ("quotation" in answers) == ("quotation" in does), client
        assert ("\U0001f44d" in answers) == any(each.startswith("reaction") for each in does), (
            client
        )
        assert bool(corrects) == ("correction" in does), client
        assert bool(takes_back) == bool({"retraction", "emptied"} & does), client


def test_what_clients_do_in_rooms_is_what_they_send() -> None:
    sent: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for shape in shapes():
        sent[shape.client.casefold()][shape.of] = shape.xml
    guide = (DOCS / "reference" / "clients.md").read_text("utf-8").partition("## In rooms")[2]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in guide.splitlines()
        if line.startswith("| ")
    ][1:]
    assert {row[0].casefold() for row in rows} == {
        client for client, does in sent.items() if "mention" in does
    }
    for client, addresses, replies, reacts, retracts, file in rows:
        does = sent[client.casefold()]
        (begin,) = re.findall("`(Assistant.?)`", addresses)
        assert f"<body>{begin} " in does["mention"], client
        assert ("reference" in addresses) == ("<reference " in does["mention"]), client
        assert (replies == "yes") == ("reply in a room" in does), client
        assert (reacts == "yes") == ("reaction in a room" in does), client
        assert (retracts == "yes") == ("retraction in a room" in does), client
        (body,) = re.findall("<body>(.*)</body>", does["file in a room"])
        assert file == "the URL alone"
        assert f"<url>{body}</url>" in does["file in a room"], client
