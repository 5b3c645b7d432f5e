"""The payloads as their documents print them: disco, ping, version, time, delay, hashes."""

from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree as ET

import pytest

from xep import call_invites, jingle_messages, references
from xep.binding import ContentError, Payload, decode, encode
from xep.chat_markers import Displayed, Markable
from xep.delay import Delay, LegacyDelay
from xep.disco import Feature, Identity, InfoQuery, Item, ItemsQuery
from xep.entity_time import Time, TimeQuery
from xep.explicit_encryption import Encryption
from xep.hashes import Hash
from xep.hats import Hat, Hats
from xep.hints import NoCopy, NoPermanentStore, NoStore, Store
from xep.jid import JID
from xep.jingle import Reason, UnsupportedApplications
from xep.media_sharing import File, MediaSharing, Reference, Source, Sources
from xep.mentions import Mention
from xep.message_correction import Replace
from xep.message_moderation import ModeratedRetraction
from xep.message_retraction import ApplyTo, Retract
from xep.muc import History, Join, OwnerDestroy, OwnerQuery
from xep.occupant_ids import OccupantId
from xep.omemo import Encrypted, LegacyEncrypted
from xep.out_of_band import OutOfBand
from xep.ping import Ping
from xep.reactions import Reactions
from xep.receipts import ReceiptRequest, Received
from xep.result_sets import ResultSet
from xep.stanza_ids import OriginId, StanzaId
from xep.version import Version, VersionQuery

PRINTED: list[tuple[str, Payload]] = [
    (
        (
            "<reject xmlns='urn:xmpp:jingle-message:0' id='a73sjjvkla37jfea'>"
            "<reason xmlns='urn:xmpp:jingle:1'><unsupported-applications/><text>No</text></reason>"
            "</reject>"
        ),
        jingle_messages.Reject(
            id="a73sjjvkla37jfea",
            reason=Reason(unsupported=UnsupportedApplications(), text="No"),
        ),
    ),
    ("<reject xmlns='urn:xmpp:call-invites:0' id='id1'/>", call_invites.Reject(id="id1")),
    ("<ping xmlns='urn:xmpp:ping'/>", Ping()),
    (
        (
            "<reference xmlns='urn:xmpp:reference:0'><media-sharing xmlns='urn:xmpp:sims:1'>"
            "<file xmlns='urn:xmpp:jingle:apps:file-transfer:5'><media-type>image/jpeg</media-type>"
            "<name>summit.jpg</name><size>3032449</size></file>"
            "<sources><reference xmlns='urn:xmpp:reference:0' uri='https://a.example/s.jpg'/>"
            "</sources></media-sharing></reference>"
        ),
        Reference(
            media=MediaSharing(
                file=File(media_type="image/jpeg", name="summit.jpg", size=3032449),
                sources=Sources(references=(Source(uri="https://a.example/s.jpg"),)),
            )
        ),
    ),
    (
        "<encrypted xmlns='urn:xmpp:omemo:2'><payload>QQ==</payload></encrypted>",
        Encrypted(payload="QQ=="),
    ),
    ("<encrypted xmlns='eu.siacs.conversations.axolotl'/>", LegacyEncrypted()),
    ("<replace xmlns='urn:xmpp:message-correct:0' id='bad1'/>", Replace(id="bad1")),
    ("<retract xmlns='urn:xmpp:message-retract:1' id='wrong'/>", Retract(id="wrong")),
    (
        (
            "<apply-to xmlns='urn:xmpp:fasten:0' id='wrong'>"
            "<retract xmlns='urn:xmpp:message-retract:0'/></apply-to>"
        ),
        ApplyTo(id="wrong", retract=True),
    ),
    (
        (
            "<reactions xmlns='urn:xmpp:reactions:0' id='744f6e18'>"
            "<reaction>\U0001f44b</reaction><reaction>\U0001f422</reaction></reactions>"
        ),
        Reactions(id="744f6e18", emoji=("\U0001f44b", "\U0001f422")),
    ),
    ("<reactions xmlns='urn:xmpp:reactions:0' id='744f6e18'/>", Reactions(id="744f6e18")),
    (
        "<encryption xmlns='urn:xmpp:eme:0' namespace='urn:xmpp:otr:0'/>",
        Encryption(namespace="urn:xmpp:otr:0"),
    ),
    ("<origin-id xmlns='urn:xmpp:sid:0' id='de305d54'/>", OriginId(id="de305d54")),
    (
        "<stanza-id xmlns='urn:xmpp:sid:0' id='5f3dbc5e' by='room@muc.example.org'/>",
        StanzaId(id="5f3dbc5e", by="room@muc.example.org"),
    ),
    (
        (
            "<x xmlns='jabber:x:oob'><url>http://www.jabber.org/images/psa-license.jpg</url>"
            "<desc>A license to Jabber!</desc></x>"
        ),
        OutOfBand(url="http://www.jabber.org/images/psa-license.jpg", desc="A license to Jabber!"),
    ),
    (
        "<mention xmlns='urn:xmpp:mentions:0' occupantid='dd72603d' begin='6' end='11'/>",
        Mention(occupant_id="dd72603d", begin="6", end="11"),
    ),
    (
        "<mention xmlns='urn:xmpp:mentions:0' mentions='urn:xmpp:mentions:0#channel'/>",
        Mention(group="urn:xmpp:mentions:0#channel"),
    ),
    (
        (
            "<reference xmlns='urn:xmpp:reference:0' type='mention'"
            " uri='xmpp:juliet@capulet.lit' begin='72' end='78'/>"
        ),
        references.Reference(begin="72", end="78", type="mention", uri="xmpp:juliet@capulet.lit"),
    ),
    (
        (
            "<retract xmlns='urn:xmpp:message-retract:1' id='s1'>"
            "<moderated xmlns='urn:xmpp:message-moderate:1'/></retract>"
        ),
        ModeratedRetraction(id="s1", moderated=True),
    ),
    ("<occupant-id xmlns='urn:xmpp:occupant-id:0' id='dd72603d'/>", OccupantId(id="dd72603d")),
    (
        (
            "<hats xmlns='urn:xmpp:hats:0'>"
            "<hat uri='http://schemas.example.com/hats#host' title='Host'/></hats>"
        ),
        Hats(hats=(Hat(uri="http://schemas.example.com/hats#host", title="Host"),)),
    ),
    (
        (
            "<x xmlns='http://jabber.org/protocol/muc'>"
            "<history maxstanzas='20' since='1970-01-01T00:00:00Z'/>"
            "<password>cauldron</password></x>"
        ),
        Join(
            history=History(max_stanzas=20, since=datetime(1970, 1, 1, tzinfo=UTC)),
            password="cauldron",
        ),
    ),
    (
        "<query xmlns='http://jabber.org/protocol/muc#owner'><destroy/></query>",
        OwnerQuery(destroy=OwnerDestroy()),
    ),
    ("<request xmlns='urn:xmpp:receipts'/>", ReceiptRequest()),
    ("<received xmlns='urn:xmpp:receipts' id='richard2'/>", Received(id="richard2")),
    ("<markable xmlns='urn:xmpp:chat-markers:0'/>", Markable()),
    ("<displayed xmlns='urn:xmpp:chat-markers:0' id='the-msg-1'/>", Displayed(id="the-msg-1")),
    ("<store xmlns='urn:xmpp:hints'/>", Store()),
    ("<no-store xmlns='urn:xmpp:hints'/>", NoStore()),
    ("<no-permanent-store xmlns='urn:xmpp:hints'/>", NoPermanentStore()),
    ("<no-copy xmlns='urn:xmpp:hints'/>", NoCopy()),
    ("<query xmlns='jabber:iq:version'/>", VersionQuery()),
    (
        (
            "<query xmlns='jabber:iq:version'><name>Exodus</name><version>0.7.0.4</version>"
            "<os>Windows-XP 5.01.2600</os></query>"
        ),
        Version(name="Exodus", version="0.7.0.4", os="Windows-XP 5.01.2600"),
    ),
    ("<time xmlns='urn:xmpp:time'/>", TimeQuery()),
    (
        "<time xmlns='urn:xmpp:time'><tzo>-06:00</tzo><utc>2006-12-19T17:58:35Z</utc></time>",
        Time(tzo=timezone(timedelta(hours=-6)), utc=datetime(2006, 12, 19, 17, 58, 35, tzinfo=UTC)),
    ),
    (
        (
            "<delay xmlns='urn:xmpp:delay' stamp='2002-09-10T23:08:25Z' from='capulet.com'>"
            "Offline Storage</delay>"
        ),
        Delay(
            stamp=datetime(2002, 9, 10, 23, 8, 25, tzinfo=UTC),
            from_="capulet.com",
            reason="Offline Storage",
        ),
    ),
    (
        "<hash xmlns='urn:xmpp:hashes:2' algo='sha-1'>2AfMGH8O7UNPTvUVAM9aK13mpCY=</hash>",
        Hash(algo="sha-1", digest=bytes.fromhex("d807cc187f0eed434f4ef51500cf5a2b5de6a426")),
    ),
    (
        (
            "<query xmlns='http://jabber.org/protocol/disco#info' node='n'>"
            "<identity category='client' type='bot' name='B' xml:lang='en'/>"
            "<feature var='f'/></query>"
        ),
        InfoQuery(
            node="n",
            identities=(Identity(category="client", type="bot", name="B", lang="en"),),
            features=(Feature(var="f"),),
        ),
    ),
    (
        (
            "<query xmlns='http://jabber.org/protocol/disco#items'>"
            "<item jid='catalog.shakespeare.lit' node='books'"
            " name='Books by and about Shakespeare'/>"
            "<set xmlns='http://jabber.org/protocol/rsm'><max>1</max></set></query>"
        ),
        ItemsQuery(
            items=(
                Item(
                    jid=JID.parse("catalog.shakespeare.lit"),
                    node="books",
                    name="Books by and about Shakespeare",
                ),
            ),
            page=ResultSet(max=1),
        ),
    ),
]


@pytest.mark.parametrize(("xml", "payload"), PRINTED)
def test_examples_of_small_xeps_are_read_and_written(xml: str, payload: Payload) -> None:
    assert decode(type(payload), ET.fromstring(xml), strict=True) == payload
    assert encode(payload) == xml


@pytest.mark.parametrize(
    ("cls", "xml"),
    [
        (Time, "<time xmlns='urn:xmpp:time'/>"),
        (Time, "<time xmlns='urn:xmpp:time'><utc>2006-12-19T17:58:35Z</utc></time>"),
        (
            Time,
            "<time xmlns='urn:xmpp:time'><tzo>CET</tzo><utc>2006-12-19T17:58:35Z</utc></time>",
        ),
        (
            Time,
            "<time xmlns='urn:xmpp:time'><tzo>Z</tzo><utc>20061219T17:58:35</utc></time>",
        ),
        (Version, "<query xmlns='jabber:iq:version'><name>Exodus</name></query>"),
        (Delay, "<delay xmlns='urn:xmpp:delay' stamp='20020910T23:08:25'/>"),
        (Hash, "<hash xmlns='urn:xmpp:hashes:2' algo='sha-1'>no base64!</hash>"),
    ],
)
def test_half_an_answer_is_none(cls: type[Payload], xml: str) -> None:
    with pytest.raises(ContentError):
        decode(cls, ET.fromstring(xml))


def test_one_bad_item_or_form_does_not_hide_the_rest() -> None:
    items = decode(
        ItemsQuery,
        ET.fromstring(
            "<query xmlns='http://jabber.org/protocol/disco#items'><item jid='@'/><item/>"
            "<item jid='a.test'/></query>"
        ),
    )
    assert items.items == (Item(jid=JID.parse("a.test")),)
    info = decode(
        InfoQuery,
        ET.fromstring(
            "<query xmlns='http://jabber.org/protocol/disco#info'><feature var='f'/>"
            "<x xmlns='jabber:x:data' type='nonsense'/></query>"
        ),
    )
    assert (info.features, info.forms) == ((Feature(var="f"),), ())


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
        ("stamp='20020910T23:08:25'", datetime(2002, 9, 10, 23, 8, 25, tzinfo=UTC)),
        ("stamp='2002-09-10T23:08:25Z'", datetime(2002, 9, 10, 23, 8, 25, tzinfo=UTC)),
        ("stamp='20021310T23:08:25'", None),
        ("", None),
    ],
)
def test_the_stamp_of_an_old_delay_is_a_time_in_utc(stamp: str, time: datetime | None) -> None:
    element = ET.fromstring(f"<x xmlns='jabber:x:delay' {stamp}/>")
    assert decode(LegacyDelay, element, strict=True).time == time
