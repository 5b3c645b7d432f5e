"""How owners approve subscriptions: a form in a message, and an ad-hoc command that sends the forms
of those that wait (XEP-0060 §8.6, §8.7).
"""

from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec

from component.features.pubsub.verbs import Verbs
from component.kernel.adhoc import Asked, Completed, Offer
from component.kernel.errors import stored
from component.pubsub.access import Requester
from component.pubsub.subscriptions import read_authorization
from component.router.table import Request
from component.skills.form_fields import Schema
from xep.commands import Note
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import GET_PENDING, SUBSCRIBE_AUTHORIZATION, SubscriptionState
from xep.stanza_error import StanzaError

_FIELD: Final = "pubsub#node"


class Approvals:
    """Takes the forms of owners, and offers the command, a `component.kernel.adhoc.Offers`.

    The command is listed for those who may create nodes; every owner of a node can use it.

    Args:
        verbs: the verbs of the service.
        retry_after_s: seconds after which to ask again when the database refuses.
    """

    def __init__(self, verbs: Verbs, retry_after_s: int = 5) -> None:
        self._verbs = verbs
        self._retry_after_s = retry_after_s

    def decide(self, request: Request[None], form: Form) -> Awaitable[None]:
        """Approve a subscription or refuse it, as the form of an owner says (§8.6)."""
        return stored(
            self._decide(self._requester(request.to, request.sender), form), self._retry_after_s
        )

    async def _decide(self, who: Requester, form: Form) -> None:
        said = read_authorization(form)
        if said is not None:
            state: SubscriptionState = "subscribed" if said.allows else "none"
            await self._verbs.set_subscriptions(who, said.node, [(said.jid, state, said.subid)])

    def nodes(self, principal: JID) -> Sequence[str]:
        """Return the command, for those who may create nodes."""
        return (GET_PENDING,) if principal in self._verbs.service.creators else ()

    def get(self, node: str, principal: JID) -> Offer | None:
        """Return the command."""
        return self._offer({"type": "string", "title": "Node"}) if node == GET_PENDING else None

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
        """Return the command with the nodes of its requester (§8.7.2)."""
        who = self._requester(asked.target, asked.requester)
        found = await stored(self._verbs.approvable(who), self._retry_after_s)
        if not found:
            raise StanzaError("forbidden", "you own no node whose subscriptions need approval")
        return self._offer({"type": "string", "title": "Node", "enum": found})

    async def _run(self, asked: Asked, json: msgspec.Raw) -> Completed:
        """Send the forms (§8.7.4)."""
        name = str(msgspec.json.decode(json)[_FIELD])
        who = self._requester(asked.target, asked.requester)
        count = await stored(self._verbs.send_pending(who, name), self._retry_after_s)
        text = "No subscription waits for approval." if not count else f"Forms sent: {count}."
        return Completed((Note(type="info", text=text),))

    def _requester(self, address: JID, sender: JID) -> Requester:
        return self._verbs.service.requester(address, sender)
