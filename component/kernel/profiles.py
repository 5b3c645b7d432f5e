"""The contact profiles of the agents, as the settings describe them: name, avatar and operator."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from component import DEFAULT_AGENT
from component.config import Settings
from component.kernel.avatars import (
    MEDIA_TYPE,
    MOST_BYTES,
    Avatar,
    AvatarError,
    generated_avatar,
    read_avatar,
)
from component.kernel.options import addresses, agent_entries, agent_titles, operator
from xep import user_avatar, vcard4, vcard_temp
from xep.binding import Payload
from xep.jid import JID
from xep.user_avatar import AvatarData, AvatarInfo, AvatarMetadata
from xep.vcard4 import VCard4
from xep.vcard_temp import VCard

NODES: Final = (user_avatar.DATA, user_avatar.METADATA, vcard4.NODE)
"""The PubSub nodes of each agent, in alphabetical order."""
_ROLE: Final = "Automated agent"
_ENVELOPE_BYTES: Final = 4_096
"""Room in a stanza with a vCard beside the image."""


class ContactProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The profile of one agent.

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


def contact_profiles(settings: Settings) -> dict[str | None, ContactProfile]:
    """Return the profile of each agent by localpart, and that of the domain by None: it is that of
    the default agent, which answers for it, with its address.

    Raises:
        AvatarError: an avatar file cannot be used. The message begins with the name of the setting.
    """
    ours, titles = addresses(settings), agent_titles(settings)
    found: dict[str | None, ContactProfile] = {}
    for entry in agent_entries(settings):
        if settings.server.mode == "client" and entry.name != DEFAULT_AGENT:
            continue  # one agent speaks on an account
        address = ours.address_of(entry.name)
        key, path = f"agents.{entry.name}.avatar", entry.avatar
        if path is None and entry.name == DEFAULT_AGENT:
            key, path = "agent.avatar", settings.agent.avatar
        found[address.local] = ContactProfile(
            address=address,
            name=titles[entry.name],
            description=entry.description,
            operator=operator(settings),
            contact=settings.agent.contact,
            avatar=generated_avatar(str(address)) if path is None else _read(settings, key, path),
        )
    found[None] = found[ours.address_of(DEFAULT_AGENT).local]
    return found


def _read(settings: Settings, key: str, path: Path) -> Avatar:
    most = (settings.server.max_stanza_bytes - _ENVELOPE_BYTES) * 3 // 4  # base64 takes 4 for 3
    try:
        return read_avatar(path, min(MOST_BYTES, most))
    except AvatarError as error:
        raise AvatarError(f"{key}: {error}") from None
