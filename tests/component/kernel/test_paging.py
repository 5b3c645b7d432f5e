"""Pages fit into the largest stanza that may be sent, and lead to every entry once."""

from hypothesis import given
from hypothesis import strategies as st

from component.kernel.paging import MOST_PER_PAGE, page, sized
from component.pubsub.items import choose
from xep import disco
from xep.binding import encode
from xep.jid import JID
from xep.pubsub import Item, Items
from xep.result_sets import ResultSet, page_room

AT = JID.parse("agent.example")
XML = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn"))
LIMITS = st.sampled_from((10_000, 20_000, 65_536, 300_000))
names = st.lists(st.text(XML, min_size=1, max_size=200), max_size=60, unique=True).map(sorted)
texts = st.builds(lambda text, times: text * times, st.text(XML, max_size=5), st.integers(0, 2_000))
HEAD = len("<iq type='result' id='' from='agent.example' to='juliet@example.com/phone'></iq>")


@given(names, texts, LIMITS, st.booleans())
def test_each_page_can_be_sent_and_together_they_hold_everything(
    names: list[str], title: str, limit: int, backwards: bool
) -> None:
    found: list[str] = []
    while len(found) < len(names):
        if backwards:
            asked = ResultSet(before=found[0] if found else "")
        else:
            asked = ResultSet(after=found[-1] if found else None)
        items, which = page(
            names,
            asked,
            lambda name: sized(disco.Item(jid=AT, node=name, name=title)),
            page_room(limit),
        )
        assert 0 < len(items) <= MOST_PER_PAGE
        answer = encode(disco.ItemsQuery(node="urn:fluux:agent:0", items=items, page=which))
        if len(items) > 1:  # a single entry can be larger than everything
            assert len(answer.encode()) + HEAD <= limit
        part = [each.node or "" for each in items]
        found = part + found if backwards else found + part
    assert found == names


@given(st.lists(texts, max_size=60), LIMITS)
def test_each_page_of_a_node_can_be_sent(texts: list[str], limit: int) -> None:
    payloads = [encode(disco.Feature(var=text)) for text in texts]
    keys = [(f"{number:04}", len(each.encode())) for number, each in enumerate(payloads)]
    last: str | None = None
    seen: list[str] = []
    while len(seen) < len(keys):
        ids, which = choose(keys, ResultSet(after=last), None, page_room(limit))
        assert ids
        assert which is not None
        items = tuple(Item(id=id_, publisher="assistant@agent.example") for id_ in ids)
        whole = len(encode(Items(node="urn:fluux:agent:0#skills", items=items)).encode())
        whole += sum(len(payloads[int(id_)].encode()) for id_ in ids) + len(encode(which))
        if len(ids) > 1:
            assert whole + HEAD <= limit
        seen += ids
        last = ids[-1]
    assert seen == [key for key, _ in keys]
