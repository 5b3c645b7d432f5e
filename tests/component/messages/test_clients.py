"""What eight clients send is read as what the person did, whichever client it was."""

from collections import defaultdict

import msgspec
import pytest

from component.messages.parsing import parse_message
from tests.component.messages.clients import AGENT, NOON, SAID, Shape, shapes

ALL = tuple(shapes())


@pytest.mark.parametrize("shape", ALL, ids=str)
def test_each_message_is_read_as_what_it_is(shape: Shape) -> None:
    found = parse_message(shape.stanza, shape.sender, AGENT, NOON)
    expected = msgspec.structs.replace(shape.expected, unclear=found.unclear)
    assert found == expected


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
    *("correction", "corrected reply", "emptied", "retraction", "delayed chat"),
    *("file with a name", "file with words", "link with a preview", "encrypted reaction", "OMEMO"),
)


@pytest.mark.parametrize("shape", [each for each in ALL if each.of in PLAIN + MORE], ids=str)
def test_what_may_answer_a_question_is_plain(shape: Shape) -> None:
    found = parse_message(shape.stanza, shape.sender, AGENT, NOON)
    assert (found.unclear is None) == (shape.of in PLAIN), found.unclear


def test_the_messages_of_eight_clients_cover_every_case() -> None:
    done = defaultdict(set)
    for shape in ALL:
        done[shape.client].add(shape.of)
    assert len(done) == 8
    every = {"chat", "action", "correction", "OMEMO", "nothing said", "received", "room"}
    for client, known in done.items():
        assert every <= known, client
        assert {"file", "file with a name"} & known, client
    assert sum(bool({"reaction", "reaction in a reply"} & known) for known in done.values()) == 6
    assert sum("reply" in known for known in done.values()) == 5
    assert any(SAID in shape.xml for shape in ALL)
