"""What nobody should send ends the stream with the right error, after what was good before it."""

import pytest

from tests.xep.stream.every_split import check_splits
from tests.xep.stream.hostile import HOSTILE, Hostile
from xep.stream import (
    ElementReceived,
    ParserFailed,
    StanzaSkipped,
    StreamClosed,
    StreamError,
    StreamParser,
)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
def test_hostile_stream(hostile: Hostile) -> None:
    parser = StreamParser(limits=hostile.limits)
    events = parser.receive(hostile.data)
    assert sum(isinstance(event, ElementReceived) for event in events) == hostile.good
    assert sum(isinstance(event, StanzaSkipped) for event in events) == hostile.skipped
    errors = [e.error and e.error.condition for e in events if isinstance(e, StanzaSkipped)]
    assert errors == [hostile.error] * hostile.skipped
    assert any(isinstance(event, StreamClosed) for event in events) == hostile.closed
    failures = [event.error.condition for event in events if isinstance(event, ParserFailed)]
    if hostile.condition is None:
        assert failures == []
        return
    assert failures == [hostile.condition]
    assert isinstance(events[-1], ParserFailed)
    with pytest.raises(StreamError, match=hostile.condition):
        parser.receive(b"<iq/>")


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
def test_it_makes_no_difference_where_it_is_cut(hostile: Hostile) -> None:
    check_splits(hostile.data, hostile.limits)
