"""Files and calls that clients offer directly: they are refused, and the person gets a message."""

import contextlib
from typing import Any, Final, NoReturn

from component import system
from component.features.chat.notices import Hints
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import Messenger
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.link.router.table import IQRoute, Request, StanzaRoute
from xep import call_invites, jingle_messages
from xep.binding import ContentError, Payload
from xep.call_invites import Invite
from xep.in_band_bytestreams import Open
from xep.jingle import INITIATE, Jingle, Reason, UnsupportedApplications
from xep.jingle_messages import Propose
from xep.out_of_band import Offer
from xep.stanza_error import Condition, StanzaError
from xep.stream_initiation import StreamInitiation

EVERY_S: Final = 60.0
"""Seconds in which a person whose client makes several offers gets one message about them."""
_ID_BYTES: Final = 16
_TYPES: Final = frozenset(("chat", "normal"))
_OFFERED: Final = (
    "I can't take files or calls that your client offers to me directly. Please send the file in a"
    " way that uploads it to your server, or write what matters as text."
)


class FileOffers:
    """Refuses files and calls that clients offer, and tells their users why."""

    def __init__(self, messages: Messenger, hints: Hints) -> None:
        self._messages = messages
        self._hints = hints

    def routes(self) -> tuple[IQRoute | StanzaRoute, ...]:
        """Return the routes of this handler. Their features are not announced."""
        return (
            StanzaRoute("message", _TYPES, self.proposed, payload=Propose),
            StanzaRoute("message", _TYPES, self.invited, payload=Invite),
            IQRoute("set", Jingle, self.jingle),
            IQRoute("set", StreamInitiation, self.stream),
            IQRoute("set", Open, self.bytestream),
            IQRoute("set", Offer, self.url),
        )

    def proposed(self, request: Request[None]) -> None:
        """Refuse a call, which would ring until somebody does (XEP-0353 §3.4)."""
        with contextlib.suppress(ContentError):  # without an id there is nothing to refuse
            id_ = request.stanza.require(Propose).id
            reason = Reason(unsupported=UnsupportedApplications(), text=_OFFERED)
            self._reject(request, jingle_messages.Reject(id=id_, reason=reason))

    def invited(self, request: Request[None]) -> None:
        """Refuse a call (XEP-0482 §3.4)."""
        if request.stanza.id is not None:
            self._reject(request, call_invites.Reject(id=request.stanza.id))

    def _reject(self, request: Request[None], rejection: Payload) -> None:
        self._send(request, payloads=(rejection,), stored=True)
        self._explain(request)

    def jingle(self, request: Request[Jingle]) -> NoReturn:
        """Refuse a session (XEP-0166 §6.3.2); there are none that other actions could be about."""
        if request.payload.action != INITIATE:
            raise StanzaError("item-not-found", "There is no such session.")
        self._refuse(request, "service-unavailable")

    def stream(self, request: Request[StreamInitiation]) -> NoReturn:
        """Refuse a file (XEP-0095 §3.2)."""
        self._refuse(request, "forbidden")

    def bytestream(self, request: Request[Open]) -> NoReturn:
        """Refuse a bytestream (XEP-0047 §2.1)."""
        self._refuse(request, "not-acceptable")

    def url(self, request: Request[Offer]) -> NoReturn:
        """Refuse a file at a URL (XEP-0066 §2)."""
        self._refuse(request, "not-acceptable")

    def _refuse(self, request: Request[Any], condition: Condition) -> NoReturn:
        self._explain(request)
        raise StanzaError(condition, _OFFERED)

    def _explain(self, request: Request[Any]) -> None:
        person = request.principal
        if person.local is not None and self._hints.is_due(person):
            self._send(request, parts=(Text(_OFFERED),), must_arrive=True)

    def _send(self, request: Request[Any], **content: Any) -> None:
        ours = request.to.bare
        self._messages.send(
            OutboundMessage(
                id=system.token_hex(_ID_BYTES),
                conversation=conversation_with(ours, request.principal),
                to=ReplyAddress(request.stanza.sender or str(request.sender), ours),
                **content,
            )
        )
