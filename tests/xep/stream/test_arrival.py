"""Every stanza is delivered whole, with its last byte, however the stream is cut."""

import pytest

from tests.xep.stream.every_split import check_arrivals, check_splits
from tests.xep.stream.streams import VALID, join, parse


@pytest.mark.parametrize("elements", VALID.values(), ids=VALID)
def test_valid_streams_are_read_however_they_are_cut(elements: list[bytes]) -> None:
    found = parse([join(elements)])
    assert [event[2] for event in found if isinstance(event, tuple)] == [
        len(element) for element in elements
    ]
    check_splits(join(elements, b""))
    check_arrivals(elements)
