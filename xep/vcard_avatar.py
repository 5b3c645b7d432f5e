"""XEP-0153 vCard-Based Avatars: the digest of the avatar, in presence."""

from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild

NAMESPACE: Final = "vcard-temp:x:update"


class PhotoUpdate(Payload, frozen=True, kw_only=True):
    """The avatar in the vCard (XEP-0153 §4.1).

    ``photo`` is the SHA-1 of the image in hexadecimal, empty if there is no avatar, None if the
    sender does not know yet.
    """

    xml = Name(NAMESPACE, "x")

    photo: Annotated[str | None, TextChild()] = None
