"""The stanzas of the campaigns: the same from the same seed, and legal where they say so."""

from collections import Counter
from xml.parsers import expat

from hypothesis import given
from hypothesis import strategies as st

from tests.hostile.grammar import STREAM_PREFIX
from tests.hostile.stanzas import SENDERS, Addresses, Stanzas

ADDRESSES = Addresses(
    "agent.localhost", "localhost", "evil.localhost", ("friend0", "friend1"), ("juliet", "mallory")
)
HEADER = f"<stream xmlns='jabber:client' xmlns:{STREAM_PREFIX}='urn:x' xmlns:stream='urn:s'>"


@given(seed=st.integers(0, 1 << 30), number=st.integers(0, 1 << 30))
def test_a_stanza_is_the_same_each_time_and_legal(seed: int, number: int) -> None:
    stanza = Stanzas(seed, ADDRESSES).make(number)
    assert stanza == Stanzas(seed, ADDRESSES).make(number)
    if not stanza.breaks:
        parser = expat.ParserCreate("utf-8", "\f")  # a separator that XML cannot hold
        tops: list[str] = []
        depth = 0

        def opened(name: str, _attributes: dict[str, str]) -> None:
            nonlocal depth
            depth += 1
            if depth == 2:
                tops.append(name)

        def closed(_name: str) -> None:
            nonlocal depth
            depth -= 1

        parser.StartElementHandler, parser.EndElementHandler = opened, closed
        parser.Parse(HEADER.encode() + stanza.data + b"</stream>", True)
        assert len(tops) == 1
        assert tops[0] in {f"jabber:client\f{name}" for name in ("iq", "message", "presence")}


def test_every_sender_has_a_part_in_every_seed() -> None:
    stanzas = [Stanzas(5, ADDRESSES).make(number) for number in range(2000)]
    assert set(Counter(stanza.sender for stanza in stanzas)) == set(SENDERS)
    assert 0 < sum(stanza.breaks for stanza in stanzas) < 40
