"""The profile of an agent in a contact list: name, avatar, vCard, and its operator.

A server stores these for its accounts. A component has no account, so it answers for its addresses
itself: the vCard by IQ (XEP-0054), and three PubSub nodes as on an account's server: the vCard
(XEP-0292), the avatar and its metadata (XEP-0084).
"""

from collections.abc import Sequence

from component import system
from component.kernel.profiles import NODES, ContactProfile, Profiles
from component.link.router.table import IQRoute, Request
from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from xep import vcard4, vcard_temp
from xep.binding import encode
from xep.jid import JID
from xep.stanza_error import StanzaError
from xep.vcard_temp import VCard


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
        self._since = system.now()

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
