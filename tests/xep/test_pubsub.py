"""PubSub: the examples of XEP-0060, and the payloads of items."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.xep.strategies import raw_elements
from xep import pubsub, pubsub_errors, pubsub_event, pubsub_owner, shim
from xep.binding import ContentError, Payload, RawXML, decode, encode, keep, read
from xep.binding.raw import write
from xep.data_forms import Form
from xep.jid import JID
from xep.user_avatar import AvatarData

FRANCISCO = JID.parse("francisco@denmark.lit")
PUBSUB = "http://jabber.org/protocol/pubsub"
FORM = "<x xmlns='jabber:x:data' type='submit'/>"

PRINTED: list[tuple[str, Payload]] = [
    # §5.6
    (
        (
            f"<pubsub xmlns='{PUBSUB}'><subscriptions>"
            "<subscription node='node1' jid='francisco@denmark.lit' subscription='subscribed'/>"
            "<subscription node='node5' jid='francisco@denmark.lit' subid='123-abc'"
            " subscription='unconfigured'/></subscriptions></pubsub>"
        ),
        pubsub.Pubsub(
            subscriptions=pubsub.Subscriptions(
                subscriptions=(
                    pubsub.Subscription(node="node1", jid=FRANCISCO, subscription="subscribed"),
                    pubsub.Subscription(
                        node="node5", jid=FRANCISCO, subid="123-abc", subscription="unconfigured"
                    ),
                )
            )
        ),
    ),
    # §5.7
    (
        (
            f"<pubsub xmlns='{PUBSUB}'><affiliations>"
            "<affiliation node='node1' affiliation='owner'/>"
            "</affiliations></pubsub>"
        ),
        pubsub.Pubsub(
            affiliations=pubsub.Affiliations(
                affiliations=(pubsub.Affiliation(node="node1", affiliation="owner"),)
            )
        ),
    ),
    # §6.1.2, with §6.3.1
    (
        (
            f"<pubsub xmlns='{PUBSUB}'><subscription node='n' jid='francisco@denmark.lit'"
            " subscription='unconfigured'><subscribe-options><required/></subscribe-options>"
            "</subscription></pubsub>"
        ),
        pubsub.Pubsub(
            subscription=pubsub.Subscription(
                node="n",
                jid=FRANCISCO,
                subscription="unconfigured",
                options=pubsub.SubscribeOptions(required=True),
            )
        ),
    ),
    # §7.1.5
    (
        (
            f"<pubsub xmlns='{PUBSUB}'><publish node='n'><item id='1'><entry xmlns='a'/></item>"
            f"</publish><publish-options>{FORM}</publish-options></pubsub>"
        ),
        pubsub.Pubsub(
            publish=pubsub.Publish(
                node="n",
                items=(pubsub.Item(id="1", payloads=(RawXML("<entry xmlns='a'/>"),)),),
            ),
            publish_options=pubsub.PublishOptions(form=Form(type="submit")),
        ),
    ),
    # §8.4.1
    (
        (
            f"<pubsub xmlns='{PUBSUB}#owner'><delete node='n'><redirect uri='xmpp:h?;node=b'/>"
            "</delete></pubsub>"
        ),
        pubsub_owner.PubsubOwner(
            delete=pubsub_owner.Delete(
                node="n", redirect=pubsub_owner.Redirect(uri="xmpp:h?;node=b")
            )
        ),
    ),
    # §7.2.2.1
    (
        f"<event xmlns='{PUBSUB}#event'><items node='n'><retract id='1'/></items></event>",
        pubsub_event.Event(
            items=pubsub_event.Items(node="n", items=(pubsub_event.Retract(id="1"),))
        ),
    ),
    # §6.1.3.9
    (
        f"<unsupported xmlns='{PUBSUB}#errors' feature='subscribe'/>",
        pubsub_errors.Unsupported(feature="subscribe"),
    ),
    # §12.19
    (
        (
            "<headers xmlns='http://jabber.org/protocol/shim'><header name='SubID'>123-abc</header>"
            "</headers>"
        ),
        shim.Headers(headers=(shim.Header(name=shim.SUBSCRIPTION_ID, value="123-abc"),)),
    ),
]


@pytest.mark.parametrize(("xml", "payload"), PRINTED)
def test_examples_of_xep_0060_are_read_and_written(xml: str, payload: Payload) -> None:
    assert decode(type(payload), ET.fromstring(xml), strict=True) == payload
    assert encode(payload) == xml


@given(st.lists(raw_elements, max_size=2))
def test_payloads_are_passed_on_as_they_came(elements: list[ET.Element]) -> None:
    """Whatever namespaces they have, or none: their meaning does not depend on what is around."""
    item = ET.Element(f"{{{PUBSUB}}}item", {"id": "1"})
    item.extend(elements)
    decoded = decode(pubsub.Item, item, strict=True)
    inside = ET.fromstring(f"<p xmlns='urn:p'>{encode(decoded, 'urn:p')}</p>")[0]
    assert [write(each) for each in inside] == [write(each) for each in elements]
    event = pubsub_event.Item(id=decoded.id, payloads=decoded.payloads)
    assert decode(pubsub_event.Item, ET.fromstring(encode(event))) == event


def test_a_payload_is_decoded_when_it_is_needed() -> None:
    kept = keep(AvatarData(image=b"\xa8\x03P"))
    assert read(kept.text, AvatarData) == AvatarData(image=b"\xa8\x03P")
    with pytest.raises(ContentError):
        read("<x xmlns='urn:x'/>", AvatarData)


def test_items_and_deletions_keep_their_order() -> None:
    xml = (
        f"<items xmlns='{PUBSUB}#event' node='n'><retract id='1'/><item id='2'/>"
        "<retract id='3'/></items>"
    )
    ids = [each.id for each in decode(pubsub_event.Items, ET.fromstring(xml)).items]
    assert ids == ["1", "2", "3"]


def test_every_condition_is_in_the_list() -> None:
    declared = {
        cls
        for cls in vars(pubsub_errors).values()
        if isinstance(cls, type) and issubclass(cls, Payload) and cls is not Payload
    }
    assert set(pubsub_errors.CONDITIONS) == declared
    assert len(declared) == 23
