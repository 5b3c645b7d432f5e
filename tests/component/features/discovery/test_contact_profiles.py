"""Name, avatar and vCards of an agent: what clients show in a contact list."""

import base64

import msgspec
import pytest

from tests.component.link.router.wire import AGENT, DOMAIN, condition
from tests.component.world import CONTACT, PROFILES, World, result
from xep import user_avatar, vcard4
from xep.binding import keep, read
from xep.pubsub import Item, Items, Pubsub
from xep.user_avatar import AvatarData, AvatarInfo, AvatarMetadata
from xep.vcard4 import VCard4
from xep.vcard_temp import VCard

AVATAR = PROFILES["assistant"].avatar


def retrieved(world: World, node: str, *ids: str, to: str = AGENT) -> Item:
    asked = Pubsub(items=Items(node=node, items=tuple(Item(id=each) for each in ids)))
    answer = result(Pubsub, world.ask_stored(asked, to=to))
    assert answer.items is not None
    assert answer.items.node == node
    (item,) = answer.items.items
    return item


def test_the_vcard_says_what_it_is_and_whose() -> None:
    card = result(VCard, World().ask(VCard()))
    assert (card.full_name, card.nickname, card.jid) == ("Assistant", "Assistant", AGENT)
    assert card.role == "Automated agent"
    assert card.organization is not None
    assert card.organization.name == "Example Ltd"
    assert card.email is not None
    assert card.email.address == "it@a.example"
    assert card.description == (
        "Assistant is an automated agent, not a person. It is operated by Example Ltd.\n"
        "Contact: mailto:it@a.example"
    )
    assert card.photo is not None
    assert (card.photo.media_type, card.photo.data) == ("image/png", AVATAR.image)


def test_the_domain_has_a_vcard_of_its_own() -> None:
    card = result(VCard, World().ask(VCard(), to=DOMAIN))
    assert (card.full_name, card.jid) == ("Service", DOMAIN)


@pytest.mark.parametrize(
    ("contact", "url", "email"),
    [
        ("https://example.org/help", "https://example.org/help", None),
        ("xmpp:it@a.example", None, None),
        ("", None, None),
        ("mailto:it@a.example", None, "it@a.example"),
    ],
)
def test_a_contact_stands_where_its_kind_belongs(
    contact: str, url: str | None, email: str | None
) -> None:
    profile = msgspec.structs.replace(
        PROFILES["assistant"], contact=contact, description="Finds trains."
    )
    old, new = profile.vcard_temp(), profile.vcard4()
    assert old.url == url
    assert (old.email and old.email.address) == email
    assert [one.uri for one in new.related] == ([contact] if contact else [])
    assert profile.about.startswith("Finds trains.\nAssistant is an automated agent")
    assert ("Contact:" in profile.about) == bool(contact)


def test_the_vcard4_is_of_an_application() -> None:
    card = read(retrieved(World(), vcard4.NODE).payloads[0].text, VCard4)
    assert isinstance(card, VCard4)
    assert card.kind == vcard4.Kind(text="application")
    assert [one.text for one in card.full_names] == ["Assistant"]
    assert [one.text for one in card.organizations] == ["Example Ltd"]
    assert [one.uri for one in card.messaging] == [f"xmpp:{AGENT}"]
    assert [one.uri for one in card.related] == [CONTACT]
    assert [one.text for one in card.notes] == [PROFILES["assistant"].about]
    (photo,) = card.photos
    prefix, _, image = photo.uri.partition(",")
    assert prefix == "data:image/png;base64"
    assert base64.b64decode(image) == AVATAR.image


def test_the_avatar_is_at_its_two_nodes() -> None:
    metadata = retrieved(World(), user_avatar.METADATA)
    info = AvatarInfo(size=len(AVATAR.image), id=AVATAR.sha1, type="image/png", width=64, height=64)
    assert metadata == Item(id=AVATAR.sha1, payloads=(keep(AvatarMetadata(infos=(info,))),))
    data = retrieved(World(), user_avatar.DATA, info.id)
    assert data == Item(id=AVATAR.sha1, payloads=(keep(AvatarData(image=AVATAR.image)),))
    assert retrieved(World(), user_avatar.DATA, "older", info.id) == data


def test_what_is_not_there_is_not_found() -> None:
    absent = World().ask_stored(Pubsub(items=Items(node="urn:x")))
    assert condition(absent) == "item-not-found"
    other = Items(node=user_avatar.DATA, items=(Item(id="0" * 40),))
    answer = result(Pubsub, World().ask_stored(Pubsub(items=other)))
    assert answer.items == Items(node=user_avatar.DATA)
