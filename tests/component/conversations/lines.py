"""Strategies for lines, and a simple model of what is read of them."""

from hypothesis import strategies as st

from component.conversations.lines import (
    Attachment,
    Called,
    Line,
    Note,
    Reaction,
    Resulted,
    Said,
    Summary,
)
from component.conversations.tail import tokens_of_each

TEXT = st.text(max_size=20)
MAYBE = st.none() | TEXT
TAINT = st.sampled_from([None, "person", "peer", "web", "file"])
SAID = st.builds(
    Said,
    role=st.sampled_from(["user", "assistant"]),
    content=TEXT,
    msg_id=MAYBE,
    sender=MAYBE,
    ts=MAYBE,
    attachments=st.lists(st.builds(Attachment, filename=TEXT), max_size=2).map(tuple),
    reaction=st.none() | st.builds(Reaction, message_id=TEXT, emojis=st.tuples(TEXT)),
    turn=MAYBE,
    final=st.booleans(),
    taint=TAINT,
    tokens_in=st.integers(0, 9),
    cost_usd=st.floats(0, 1),
)
CALLED = st.builds(
    Called, turn=TEXT, round=st.integers(0, 9), id=TEXT, name=TEXT, arguments=TEXT, text=TEXT
)
RESULTED = st.builds(Resulted, turn=TEXT, id=TEXT, content=TEXT, taint=TAINT, task=MAYBE)
SUMMARY = st.builds(Summary, content=TEXT, kept=st.integers(0, 4))
NOTE = st.builds(Note, content=TEXT, turn=MAYBE)
ENTRY = st.one_of(SAID, CALLED, RESULTED, NOTE)
LINE = st.one_of(ENTRY, SUMMARY)


def letters(text: str) -> int:
    return len(text)


def expected(lines: list[Line], budget: int = 1 << 30) -> tuple[list[Line], Summary | None, bool]:
    """Return what should be read of these lines, computed in a simple way."""
    at = max((i for i, line in enumerate(lines) if isinstance(line, Summary)), default=None)
    above = [] if at is None else [e for e in lines[:at] if not isinstance(e, Summary)]
    summary = None if at is None else lines[at]
    assert summary is None or isinstance(summary, Summary)
    kept = above[len(above) - min(summary.kept, len(above)) :] if summary else []
    shown = kept + lines[0 if at is None else at + 1 :]
    fit: list[Line] = []
    spent = 0
    for line in reversed(shown):
        spent += sum(tokens_of_each([line], letters))
        if fit and spent > budget:
            return fit[::-1], summary, True
        fit.append(line)
    return fit[::-1], summary, False
