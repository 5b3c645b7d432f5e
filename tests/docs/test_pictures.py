"""The pictures agree with what they show."""

import re

from component.tasks.states import TERMINAL, TRANSITIONS
from tests.servers.guides import DOCS


def test_the_states_of_a_task_are_drawn_as_they_are() -> None:
    page = (DOCS.parent / "ARCHITECTURE.md").read_text("utf-8")
    (picture,) = re.findall(r"^stateDiagram-v2\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    drawn = set(re.findall(r"^ +(\S+) --> ([\w\[\]*-]+)", picture.replace("_", "-"), re.MULTILINE))
    # A change that leaves a task in its state (progress, another question) is no way in a picture.
    ways = {(start, end) for start, ends in TRANSITIONS.items() for end in ends if start != end}
    assert drawn == {("[*]", "accepted")} | ways | {(state, "[*]") for state in TERMINAL}
