"""The ad-hoc command by which owners of nodes get the subscription requests that wait for them
(XEP-0060 §8.7).
"""

from collections.abc import Sequence

import msgspec

from component.kernel.adhoc import Asked, Completed, Offer
from component.kernel.storing import stored
from component.pubsub.service import PubSubService
from component.skills.form_fields import Schema
from xep.commands import Note
from xep.jid import JID
from xep.pubsub import GET_PENDING, SUBSCRIBE_AUTHORIZATION
from xep.stanza_error import StanzaError

_FIELD = "pubsub#node"


class PendingOffers:
    """The command, a `component.kernel.adhoc.Offers`. It is listed for those who may
    create nodes; every owner of a node can use it.

    Args:
        service: the PubSub service.
        retry_after_s: seconds after which to ask again when the database refuses.
    """

    def __init__(self, service: PubSubService, retry_after_s: int = 5) -> None:
        self._service = service
        self._retry_after_s = retry_after_s

    def nodes(self, principal: JID) -> Sequence[str]:
        """The command, for those who may create nodes."""
        return (GET_PENDING,) if self._service.may_create(principal) else ()

    def get(self, node: str, principal: JID) -> Offer | None:
        """The command."""
        if node != GET_PENDING:
            return None
        return self._offer({"type": "string", "title": "Node"})

    def _offer(self, choice: Schema) -> Offer:
        return Offer(
            node=GET_PENDING,
            title="Pending subscriptions",
            about="Choose a node. You are sent the form of each subscription that waits for you.",
            schema={"type": "object", "properties": {_FIELD: choice}, "required": [_FIELD]},
            form_type=SUBSCRIBE_AUTHORIZATION,
            run=self._run,
            prepare=self._prepare,
        )

    async def _prepare(self, asked: Asked) -> Offer:
        """The command with the nodes of its requester (§8.7.2)."""
        who = self._service.requester(asked.target, asked.requester)
        found = await stored(self._service.verbs.approvable(who), self._retry_after_s)
        if not found:
            raise StanzaError("forbidden", "you own no node whose subscriptions need approval")
        return self._offer({"type": "string", "title": "Node", "enum": found})

    async def _run(self, asked: Asked, json: msgspec.Raw) -> Completed:
        """Send the forms (§8.7.4)."""
        name = str(msgspec.json.decode(json)[_FIELD])
        who = self._service.requester(asked.target, asked.requester)
        count = await stored(self._service.verbs.send_pending(who, name), self._retry_after_s)
        text = "No subscription waits for approval." if not count else f"Forms sent: {count}."
        return Completed((Note(type="info", text=text),))
