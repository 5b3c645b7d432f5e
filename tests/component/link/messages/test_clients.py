"""What clients send is read as what the person did, whichever client it was."""

from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from component.link.messages.parsing import parse_message
from component.link.messages.signals import says_nothing
from tests.component.link.messages.clients import AGENT, MEANINGS, NOON, SAID, Shape, shapes

ALL = tuple(shapes())


@pytest.mark.parametrize("shape", ALL, ids=str)
def test_each_message_is_read_as_what_it_is(shape: Shape) -> None:
    found = parse_message(shape.stanza, shape.sender, AGENT, NOON)
    expected = msgspec.structs.replace(
        shape.expected, unclear=found.unclear, quotation=found.quotation
    )
    files = [msgspec.structs.replace(file, hashes=()) for file in found.attachments]
    assert msgspec.structs.replace(found, attachments=tuple(files)) == expected


PLAIN = (
    "chat",
    "quotation",
    "action",
    "reply",
    "reaction",
    "reaction in a reply",
    "formatted chat",
)
MORE = (
    *("correction", "corrected reply", "emptied", "retraction", "delayed chat", "broadcast"),
    *("file", "file with a name", "file with words", "file with a name and words"),
    *("link with a preview", "encrypted reaction", "OMEMO", "OpenPGP"),
)


@pytest.mark.parametrize("shape", [each for each in ALL if each.of in PLAIN + MORE], ids=str)
def test_what_may_answer_a_question_is_plain(shape: Shape) -> None:
    found = parse_message(shape.stanza, shape.sender, AGENT, NOON)
    assert (found.unclear is None) == (shape.of in PLAIN), found.unclear


@pytest.mark.parametrize(
    "shape",
    [each for each in ALL if each.of in ("received", "displayed") or "writing" in each.note],
    ids=str,
)
def test_no_client_gets_its_reports_and_chat_states_back_as_errors(shape: Shape) -> None:
    assert says_nothing(shape.stanza)


DONE = defaultdict[str, set[str]](set)
"""What is done in each client."""
for each in ALL:
    DONE[each.client].add(each.of)


def test_each_client_shows_what_everybody_does() -> None:
    files = {"file", "file with a name", "file with a name and words"}
    for client, done in DONE.items():
        assert {"chat", "action", "nothing said", "room"} <= done, client
        assert files & done, client
    for shown in MEANINGS:
        assert any(shown in done for done in DONE.values()), shown
    assert any(SAID in shape.xml for shape in ALL)


def test_people_are_told_what_each_of_these_clients_can_do() -> None:
    section = Path("docs/reference/clients.md").read_text()
    section = section.partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    told = {client.strip().lower(): rest for client, *rest in rows[1:]}
    assert set(told) == {client.lower() for client in DONE}
    for client, done in DONE.items():
        answers, corrects, retracts = (cell.strip() for cell in told[client.lower()])
        assert answers.startswith("a word")
        assert ("after a quotation" in answers) == ("quotation" in done), client
        assert ("a reply" in answers) == ("reply" in done), client
        assert ("👍" in answers) == bool({"reaction", "reaction in a reply"} & done), client
        assert corrects.startswith("yes") == ("correction" in done), client
        assert retracts.startswith("yes") == bool({"retraction", "emptied"} & done), client
