"""The sender of a stanza: parses the address in ``from``, and caches the result."""

from collections.abc import Callable
from functools import lru_cache

from component.link.router.addresses import Addresses
from xep.jid import JID, JIDError

_REMEMBERED = 4096
_LONGEST_REMEMBERED = 256


class Sender:
    """A sender: its JID and principal, or None and the reason if RFC 7622 does not allow the
    address.
    """

    __slots__ = ("admitted", "jid", "principal", "principal_text", "refusal")

    def __init__(self, jid: JID | None, admitted: bool, refusal: str = "") -> None:
        self.jid = jid
        self.principal = None if jid is None else jid.bare
        self.principal_text = "" if jid is None else str(self.principal)
        self.admitted = admitted
        self.refusal = refusal


class Senders:
    """Resolves senders by the text of their address.

    Args:
        admits: whether the policy admits a principal; called once per cached sender.
        addresses: the addresses of this service; a stanza from one of them was looped back by the
            server.
    """

    def __init__(self, admits: Callable[[JID], bool], addresses: Addresses) -> None:
        self._admits = admits
        self._addresses = addresses
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._look_up)

    def of(self, text: str) -> Sender:
        """Return the sender whose address is ``text``. Never raises."""
        if len(text) > _LONGEST_REMEMBERED:
            return self._look_up(text)
        return self._remembered(text)

    def _look_up(self, text: str) -> Sender:
        try:
            jid = JID.parse_delivered(text)
        except JIDError as error:
            return Sender(None, admitted=False, refusal=str(error))
        return Sender(jid, admitted=self._addresses.is_own(jid) or self._admits(jid.bare))
