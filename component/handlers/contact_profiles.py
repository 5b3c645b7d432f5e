"""The profile of an agent in a contact list: name, avatar, vCard, and its operator.

A server stores these for its accounts. A component has no account, so it answers for its addresses
itself: the vCard by IQ (XEP-0054), and three PubSub nodes as on an account's server: the vCard
(XEP-0292), the avatar and its metadata (XEP-0084).
"""

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from component.handlers.avatars import MEDIA_TYPE, Avatar
from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from component.router.table import IQRoute, Request
from xep import user_avatar, vcard4, vcard_temp
from xep.binding import Payload, encode
from xep.jid import JID
from xep.stanza_error import StanzaError
from xep.user_avatar import AvatarData, AvatarInfo, AvatarMetadata
from xep.vcard4 import VCard4
from xep.vcard_temp import VCard

NODES: Final = (user_avatar.DATA, user_avatar.METADATA, vcard4.NODE)
"""The PubSub nodes of each agent, in alphabetical order."""
_ROLE: Final = "Automated agent"


class ContactProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The profile of one address of the component.

    Attributes:
        address: the bare address.
        name: the name shown to people.
        description: one line on the agent's purpose, or empty.
        operator: the person, company or administrators responsible for it.
        contact: a URI of the operator, or empty.
        avatar: the image.
    """

    address: JID
    name: str
    description: str = ""
    operator: str
    contact: str = ""
    avatar: Avatar

    @property
    def about(self) -> str:
        """Return sentences for people: that it is a machine, and who operates it."""
        lines = [self.description] if self.description else []
        lines.append(
            f"{self.name} is an automated agent, not a person. It is operated by {self.operator}."
        )
        if self.contact:
            lines.append(f"Contact: {self.contact}")
        return "\n".join(lines)

    def filled(self, template: str) -> str:
        """Return a text with {name}, {operator} and {contact} replaced."""
        values = {"name": self.name, "operator": self.operator, "contact": self.contact}
        return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), template)

    def vcard_temp(self) -> VCard:
        """Return the vCard of XEP-0054."""
        scheme, _, rest = self.contact.partition(":")
        return VCard(
            full_name=self.name,
            nickname=self.name,
            photo=vcard_temp.Photo(media_type=MEDIA_TYPE, data=self.avatar.image),
            email=vcard_temp.Email(address=rest) if scheme == "mailto" else None,
            jid=str(self.address),
            role=_ROLE,
            organization=vcard_temp.Organization(name=self.operator),
            url=self.contact if scheme in ("http", "https") else None,
            description=self.about,
        )

    def vcard4(self) -> VCard4:
        """Return the vCard of RFC 6350; its kind is ``application`` (XEP-0292 §5, RFC 6473)."""
        image = base64.b64encode(self.avatar.image).decode("ascii")
        contact = vcard4.RelationParameters(type=vcard4.RelationType(text="contact"))
        return VCard4(
            kind=vcard4.Kind(text="application"),
            full_names=(vcard4.FullName(text=self.name),),
            nicknames=(vcard4.Nickname(text=self.name),),
            photos=(vcard4.Photo(uri=f"data:{MEDIA_TYPE};base64,{image}"),),
            organizations=(vcard4.Organization(text=self.operator),),
            messaging=(vcard4.InstantMessaging(uri=f"xmpp:{self.address}"),),
            related=(vcard4.Related(parameters=contact, uri=self.contact),) if self.contact else (),
            notes=(vcard4.Note(text=self.about),),
        )

    def content(self, node: str) -> tuple[str, Payload]:
        """Return the id and the payload of the only item of a PubSub node, which is one
        of `NODES`.
        """
        if node == user_avatar.DATA:
            return self.avatar.sha1, AvatarData(image=self.avatar.image)
        if node == user_avatar.METADATA:
            info = AvatarInfo(
                size=len(self.avatar.image),
                id=self.avatar.sha1,
                type=MEDIA_TYPE,
                width=self.avatar.width,
                height=self.avatar.height,
            )
            return self.avatar.sha1, AvatarMetadata(infos=(info,))
        return "current", self.vcard4()


Profiles: TypeAlias = Mapping[str | None, ContactProfile]
"""By localpart; that of the component's domain by None."""


class ContactProfiles:
    """Answers requests for vCards.

    Args:
        profiles: one for each agent, and one for the domain.
    """

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            IQRoute("get", VCard, self.vcard, (vcard_temp.NAMESPACE, vcard4.NAMESPACE)),
            IQRoute("set", VCard, self.refuse_vcard),
        )

    def vcard(self, request: Request[VCard]) -> VCard:
        """Return the vCard (XEP-0054 §3.3)."""
        return self._of(request.to).vcard_temp()

    def refuse_vcard(self, _request: Request[VCard]) -> VCard:
        """Refuse to change the vCard of somebody else (XEP-0054 §3.2)."""
        raise StanzaError("forbidden", "only the operator can change this vCard")

    def _of(self, address: JID) -> ContactProfile:
        return self._profiles[address.local]


class ProfileNode:
    """A PubSub node for a part of the profile: a `component.pubsub.computed.ComputedNode`.

    Args:
        name: one of `NODES`.
        profiles: as for `ContactProfiles`.
    """

    def __init__(self, name: str, profiles: Profiles) -> None:
        self.name = name
        self.config = NodeConfig(access_model="open")
        self.is_compared = True
        self._profiles = profiles
        self._since = datetime.now(UTC)

    def is_at(self, service: JID) -> bool:
        """Return whether the address has this node."""
        return service.local in self._profiles

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return the only item."""
        id_, content = self._profiles[service.local].content(self.name)
        return [
            StoredItem(
                id=id_, payload=encode(content), publisher=str(service), published=self._since
            )
        ]


def profile_nodes(profiles: Profiles) -> tuple[ProfileNode, ...]:
    """Return the nodes of the profiles."""
    return tuple(ProfileNode(name, profiles) for name in NODES)
