"""vCards, avatars and the PubSub that carries them, as their documents print them."""

from xml.etree import ElementTree as ET

import pytest

from xep import pubsub_event
from xep.binding import Payload, decode, encode, keep
from xep.pubsub import Item, Items, Pubsub
from xep.pubsub_errors import Unsupported
from xep.user_avatar import AvatarData, AvatarInfo, AvatarMetadata
from xep.vcard4 import FullName, InstantMessaging, Kind, VCard4
from xep.vcard_avatar import PhotoUpdate
from xep.vcard_temp import Email, Organization, Photo, VCard

SHA1 = "111f4b3c50d7b0df729d299bc6f8e9ef9066971f"
INFO = AvatarInfo(size=12345, id=SHA1, type="image/png", width=64, height=64)
INFO_XML = (
    "<metadata xmlns='urn:xmpp:avatar:metadata'>"
    f"<info bytes='12345' id='{SHA1}' type='image/png' width='64' height='64'/></metadata>"
)
METADATA = keep(AvatarMetadata(infos=(INFO,)))

PRINTED: list[tuple[str, Payload]] = [
    # XEP-0084 §3.4
    (
        (
            "<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='urn:xmpp:avatar:data'>"
            f"<item id='{SHA1}'/></items></pubsub>"
        ),
        Pubsub(items=Items(node="urn:xmpp:avatar:data", items=(Item(id=SHA1),))),
    ),
    (
        (
            "<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='urn:xmpp:avatar:data'>"
            f"<item id='{SHA1}'><data xmlns='urn:xmpp:avatar:data'>qANQ</data></item>"
            "</items></pubsub>"
        ),
        Pubsub(
            items=Items(
                node="urn:xmpp:avatar:data",
                items=(Item(id=SHA1, payloads=(keep(AvatarData(image=b"\xa8\x03P")),)),),
            )
        ),
    ),
    # XEP-0084 §3.3
    (
        (
            "<event xmlns='http://jabber.org/protocol/pubsub#event'>"
            f"<items node='urn:xmpp:avatar:metadata'><item id='{SHA1}'>{INFO_XML}</item></items>"
            "</event>"
        ),
        pubsub_event.Event(
            items=pubsub_event.Items(
                node="urn:xmpp:avatar:metadata",
                items=(
                    pubsub_event.Item(id=SHA1, payloads=(keep(AvatarMetadata(infos=(INFO,))),)),
                ),
            )
        ),
    ),
    # XEP-0084 §3.5
    ("<metadata xmlns='urn:xmpp:avatar:metadata'/>", AvatarMetadata()),
    # XEP-0060 §6.1.3
    (
        "<unsupported xmlns='http://jabber.org/protocol/pubsub#errors' feature='subscribe'/>",
        Unsupported(feature="subscribe"),
    ),
    # XEP-0153 §3.1, §4.1
    (
        "<x xmlns='vcard-temp:x:update'><photo>01b87fcd</photo></x>",
        PhotoUpdate(photo="01b87fcd"),
    ),
    ("<x xmlns='vcard-temp:x:update'><photo></photo></x>", PhotoUpdate(photo="")),
    ("<x xmlns='vcard-temp:x:update'/>", PhotoUpdate()),
    # XEP-0054 §3, XEP-0153 §3.1
    ("<vCard xmlns='vcard-temp'/>", VCard()),
    (
        (
            "<vCard xmlns='vcard-temp'><FN>Peter Saint-Andre</FN><NICKNAME>stpeter</NICKNAME>"
            "<PHOTO><TYPE>image/png</TYPE><BINVAL>qANQ</BINVAL></PHOTO>"
            "<EMAIL><USERID>stpeter@jabber.org</USERID></EMAIL><JABBERID>stpeter@jabber.org</JABBERID>"
            "<ROLE>Patron Saint</ROLE><ORG><ORGNAME>XMPP Standards Foundation</ORGNAME></ORG>"
            "<URL>http://www.xmpp.org/</URL><DESC>Check out my blog</DESC></vCard>"
        ),
        VCard(
            full_name="Peter Saint-Andre",
            nickname="stpeter",
            photo=Photo(media_type="image/png", data=b"\xa8\x03P"),
            email=Email(address="stpeter@jabber.org"),
            jid="stpeter@jabber.org",
            role="Patron Saint",
            organization=Organization(name="XMPP Standards Foundation"),
            url="http://www.xmpp.org/",
            description="Check out my blog",
        ),
    ),
    # XEP-0292 §5
    (
        (
            "<vcard xmlns='urn:ietf:params:xml:ns:vcard-4.0'><kind><text>application</text></kind>"
            "<fn><text>jabber.org IM service</text></fn><impp><uri>xmpp:jabber.org</uri></impp>"
            "</vcard>"
        ),
        VCard4(
            kind=Kind(text="application"),
            full_names=(FullName(text="jabber.org IM service"),),
            messaging=(InstantMessaging(uri="xmpp:jabber.org"),),
        ),
    ),
]


@pytest.mark.parametrize(("xml", "payload"), PRINTED)
def test_examples_of_vcard_and_avatar_xeps_are_read_and_written(xml: str, payload: Payload) -> None:
    assert decode(type(payload), ET.fromstring(xml), strict=True) == payload
    assert encode(payload) == xml


def test_the_lines_of_an_image_are_joined() -> None:
    """XEP-0084 §4.1: line feeds must be accepted; XEP-0153 §4.7: so must other white space."""
    xml = "<data xmlns='urn:xmpp:avatar:data'>\n  qA\r\n NQ \n</data>"
    assert decode(AvatarData, ET.fromstring(xml)).image == bytes.fromhex("a80350")
