"""XEP-0115: the document's own two examples, the order of octets, and what makes a hash a lie."""

import random
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xep.strategies import payloads
from xep.binding import decode
from xep.caps import Caps, verification_string
from xep.data_forms import Field, Form, form_type_field
from xep.disco import Feature, Identity, InfoQuery

SIMPLE = """
<query xmlns='http://jabber.org/protocol/disco#info'
       node='http://code.google.com/p/exodus#QgayPKawpkPSDYmwT/WM94uAlu0='>
  <identity category='client' name='Exodus 0.9.1' type='pc'/>
  <feature var='http://jabber.org/protocol/caps'/>
  <feature var='http://jabber.org/protocol/disco#info'/>
  <feature var='http://jabber.org/protocol/disco#items'/>
  <feature var='http://jabber.org/protocol/muc'/>
</query>"""
COMPLEX = """
<query xmlns='http://jabber.org/protocol/disco#info'
       node='http://psi-im.org#q07IKJEyjvHSyhy//CH0CxmKi8w='>
  <identity xml:lang='en' category='client' name='Psi 0.11' type='pc'/>
  <identity xml:lang='el' category='client' name='Ψ 0.11' type='pc'/>
  <feature var='http://jabber.org/protocol/caps'/>
  <feature var='http://jabber.org/protocol/disco#info'/>
  <feature var='http://jabber.org/protocol/disco#items'/>
  <feature var='http://jabber.org/protocol/muc'/>
  <x xmlns='jabber:x:data' type='result'>
    <field var='FORM_TYPE' type='hidden'><value>urn:xmpp:dataforms:softwareinfo</value></field>
    <field var='ip_version' type='text-multi' ><value>ipv4</value><value>ipv6</value></field>
    <field var='os'><value>Mac</value></field>
    <field var='os_version'><value>10.5.1</value></field>
    <field var='software'><value>Psi</value></field>
    <field var='software_version'><value>0.11</value></field>
  </x>
</query>"""
BOT = Identity(category="client", type="bot")


def info(xml: str) -> InfoQuery:
    return decode(InfoQuery, ET.fromstring(xml), strict=True)


def ver(query: InfoQuery) -> str:
    return verification_string(query.identities, query.features, query.forms)


def form(form_type: str, *fields: Field) -> Form:
    return Form(type="result", fields=(form_type_field(form_type), *fields))


@pytest.mark.parametrize("xml", [SIMPLE, COMPLEX])
def test_the_documents_own_examples(xml: str) -> None:
    query = info(xml)
    assert query.node is not None
    assert ver(query) == query.node.rpartition("#")[2]


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_answer_does_not_matter(shuffle: random.Random) -> None:
    query = info(COMPLEX)
    identities, features = list(query.identities), list(query.features)
    fields = list(query.forms[0].fields)
    for part in (identities, features, fields):
        shuffle.shuffle(part)
    fields = [Field(var=f.var, type=f.type, values=tuple(reversed(f.values))) for f in fields]
    shuffled = Form(type="result", fields=tuple(fields))
    assert verification_string(identities, features, [shuffled]) == ver(query)


def test_octets_are_compared_not_utf_16() -> None:
    # U+FFFD comes before U+10000 in UTF-8; UTF-16 would have it the other way round.
    low, high = Feature(var="\ufffd"), Feature(var="\U00010000")
    assert verification_string([BOT], [low, high]) == verification_string([BOT], [high, low])
    import base64
    import hashlib

    text = "client/bot//<\ufffd<\U00010000<"
    expected = base64.b64encode(hashlib.sha1(text.encode()).digest()).decode()
    assert verification_string([BOT], [high, low]) == expected


@pytest.mark.parametrize(
    ("identities", "features", "forms"),
    [
        ([BOT], [Feature(var="a<b")], []),
        ([Identity(category="client", type="bot", name="a<b")], [], []),
        ([Identity(category="client/pc", type="bot")], [], []),
        ([Identity(category="client", type="bot//x")], [], []),
        ([BOT], [], [form("urn:x", Field(var="a<"))]),
        ([BOT], [], [form("urn:x", Field(var="a", values=("b<c",)))]),
        ([BOT], [], [form("urn:x<")]),
    ],
)
def test_separators_inside_are_refused(
    identities: list[Identity], features: list[Feature], forms: list[Form]
) -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        verification_string(identities, features, forms)


@pytest.mark.parametrize(
    ("identities", "features", "forms"),
    [
        ([BOT, BOT], [], []),
        ([BOT], [Feature(var="a"), Feature(var="a")], []),
        ([BOT], [], [form("urn:x"), form("urn:x")]),
        (
            [BOT],
            [],
            [
                Form(
                    type="result",
                    fields=(Field(var="FORM_TYPE", type="hidden", values=("a", "b")),),
                )
            ],
        ),
    ],
)
def test_ill_formed_answers_are_refused(
    identities: list[Identity], features: list[Feature], forms: list[Form]
) -> None:
    with pytest.raises(ValueError, match=r"twice|one value"):
        verification_string(identities, features, forms)


@pytest.mark.parametrize(
    "ignored",
    [
        Form(type="result"),
        Form(type="result", fields=(Field(var="FORM_TYPE", values=("urn:x",)),)),
    ],
)
def test_a_form_without_a_hidden_form_type_does_not_count(ignored: Form) -> None:
    assert verification_string([BOT], [], [ignored]) == verification_string([BOT], [])


@given(payloads(InfoQuery))
def test_any_answer_has_a_string_or_is_refused(query: InfoQuery) -> None:
    try:
        found = ver(query)
    except ValueError:
        return
    assert len(found) == 28
    Caps(hash="sha-1", node="https://example.org", ver=found)
