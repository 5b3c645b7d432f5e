"""The pictures agree with what they show."""

import re
from xml.etree import ElementTree

from component.tasks.states import TERMINAL, TRANSITIONS
from tests.servers.guides import DOCS


def test_the_states_of_a_task_are_drawn_as_they_are() -> None:
    page = (DOCS.parent / "ARCHITECTURE.md").read_text("utf-8")
    (picture,) = re.findall(r"^stateDiagram-v2\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    drawn = set(re.findall(r"^ +(\S+) --> ([\w\[\]*-]+)", picture.replace("_", "-"), re.MULTILINE))
    # A change that leaves a task in its state (progress, another question) is no way in a picture.
    ways = {(start, end) for start, ends in TRANSITIONS.items() for end in ends if start != end}
    assert drawn == {("[*]", "accepted")} | ways | {(state, "[*]") for state in TERMINAL}


def test_the_stages_of_a_turn_are_drawn_once_and_in_their_order() -> None:
    """They are numbered in the engine and in the room of its calls, and so in the picture."""
    agent = DOCS.parent / "component" / "agent"
    told: list[str] = []
    for room in ("engine.py", "calling.py"):
        headings = re.findall(
            r"^    # ([\d and]+): ", (agent / room).read_text("utf-8"), re.MULTILINE
        )
        told += [number for heading in headings for number in heading.split(" and ")]
    picture = ElementTree.parse(DOCS / "pictures" / "turn.svg")
    texts = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    drawn = [text[0] for text in texts if re.match(r"\d\xa0", text)]
    assert sorted(drawn) == sorted(told) == list("12345678")
