"""Who sent a stanza: the address in ``from``, checked once and remembered."""

from collections.abc import Callable
from functools import lru_cache

from xep.jid import JID, JIDError

_REMEMBERED = 4096
_LONGEST_REMEMBERED = 256


class Sender:
    """A sender: its JID and principal, or None and the reason when RFC 7622 refuses it."""

    __slots__ = ("admitted", "jid", "principal", "principal_text", "refusal")

    def __init__(self, jid: JID | None, admitted: bool, refusal: str = "") -> None:
        self.jid = jid
        self.principal = None if jid is None else jid.bare
        self.principal_text = "" if jid is None else str(self.principal)
        self.admitted = admitted
        self.refusal = refusal


class Senders:
    """Knows senders by the text of their address.

    Args:
        admits: whether policy lets a principal in; asked once per remembered sender.
        own_domain: our own domain, whose stanzas can only be ours: servers loop them back.
    """

    def __init__(self, admits: Callable[[JID], bool], own_domain: str) -> None:
        self._admits = admits
        self._own_domain = own_domain
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._look_up)

    def of(self, text: str) -> Sender:
        """The sender whose address is ``text``. Never raises."""
        if len(text) > _LONGEST_REMEMBERED:
            return self._look_up(text)
        return self._remembered(text)

    def _look_up(self, text: str) -> Sender:
        try:
            jid = JID.parse_delivered(text)
        except JIDError as error:
            return Sender(None, admitted=False, refusal=str(error))
        return Sender(jid, admitted=jid.domain == self._own_domain or self._admits(jid.bare))
