"""Who is a person, and who is another agent or a service, by what they say of themselves."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal, Protocol

import anyio
import msgspec

from xep.disco import InfoQuery
from xep.fluux_agent import NAMESPACE
from xep.jid import JID
from xep.stanza_error import StanzaError

_REMEMBERED_S: Final = 600.0
_MOST_REMEMBERED: Final = 4096


class Info(Protocol):
    """Asks an entity what it is (XEP-0030 §3)."""

    async def __call__(self, to: JID, from_: JID, /) -> InfoQuery:
        """The answer of `to`. Raises StanzaError: its own, or `remote-server-timeout`."""


class _Known(msgspec.Struct, frozen=True):
    """What is known of an entity.

    `none` is whether it is no person, as it last said itself. `by` is what came the last time that
    it was asked, which holds until `until`.
    """

    none: bool
    by: Literal["word", "error", "silence"]
    until: float


class Persons:
    """Tells people from all others.

    **Who is a person.** An account (a JID with a localpart) that is not one of ours, and that lists
    neither our feature nor itself as a room. The client that sent the request is asked, because an
    agent that runs as an ordinary account can say so only there, and the account itself, for which
    its server answers. Servers tell strangers nothing about their accounts, and many clients do not
    answer strangers: whoever answers with an error, or not at all, has not said that it is an
    agent, and is taken for a person. So an agent that hides what it is gets its own questions. It
    gains nothing by silence: it could as well say that it is none. What was answered is remembered
    for ten minutes.

    **Two askers.** Before somebody is asked to confirm, there is time: `is_person` waits as long as
    an IQ does, and who did not answer is asked again. A message should not wait for long: `asked`
    asks, and who takes too long is passed over (`passed_over`), which is remembered like an answer,
    for messages only. Neither that nor an error takes back that somebody has said it is no person;
    an answer that comes late counts from then on.

    Args:
        info: asks an entity what it is.
        domain: of this component; its addresses are no persons.
        clock: seconds that only go forward; the event loop's by default.
    """

    def __init__(
        self, info: Info, domain: str, clock: Callable[[], float] = anyio.current_time
    ) -> None:
        self._info = info
        self._domain = domain
        self._clock = clock
        self._known: OrderedDict[JID, _Known] = OrderedDict()

    # For confirmations.

    async def is_person(self, principal: JID, requester: JID, target: JID) -> bool:
        """Whether `principal` is a person, of whom `requester` is the client; `target` asks."""
        if self._is_none(principal):
            return False
        found: list[bool] = []

        async def look(who: JID) -> None:
            known = self._fresh(who)
            if known is None or known.by == "silence":
                known = await self._ask(who, target)
            found.append(known is not None and known.by == "word" and known.none)

        async with anyio.create_task_group() as group:
            for who in {requester, principal.bare}:
                group.start_soon(look, who)
        return not any(found)

    # For messages.

    def known(self, principal: JID, requester: JID) -> bool | None:
        """Whether it is a person; None if somebody has to be asked for that. Never waits."""
        if self._is_none(principal):
            return False
        client, account = self._fresh(requester), self._fresh(principal.bare)
        if (client is not None and client.none) or (account is not None and account.none):
            return False
        return None if client is None or account is None else True

    async def asked(self, principal: JID, requester: JID, target: JID) -> bool | None:
        """Ask whom `known` does not know; None if no answer came from one of them."""

        async def look(who: JID) -> None:
            if self._fresh(who) is None:
                found = await self._ask(who, target)
                if found is not None and found.none:
                    group.cancel_scope.cancel()  # whatever the other one says

        async with anyio.create_task_group() as group:
            for who in {requester, principal.bare}:
                group.start_soon(look, who)
        return self.known(principal, requester)

    def passed_over(self, principal: JID, requester: JID) -> bool:
        """Do without an answer for now. What it then counts as: a person, unless it has said
        otherwise before. Never waits.
        """
        for who in {requester, principal.bare}:
            if self._fresh(who) is None:
                self._remember(who, "silence", none=self._said_before(who))
        return self.known(principal, requester) is not False

    # What is known.

    def _is_none(self, principal: JID) -> bool:
        """Whether nobody need be asked: a service, or an address of ours."""
        return principal.local is None or principal.domain == self._domain

    def _fresh(self, who: JID) -> _Known | None:
        known = self._known.get(who)
        return known if known is not None and self._clock() < known.until else None

    def _said_before(self, who: JID) -> bool:
        known = self._known.get(who)
        return known is not None and known.none

    async def _ask(self, who: JID, target: JID) -> _Known | None:
        """Ask an entity what it is; None if it does not answer."""
        try:
            answer = await self._info(who, target)
        except StanzaError as error:
            if error.condition == "remote-server-timeout":
                return None
            return self._remember(who, "error", none=self._said_before(who))
        none = any(each.var == NAMESPACE for each in answer.features) or any(
            each.category == "conference" for each in answer.identities
        )
        return self._remember(who, "word", none=none)

    def _remember(self, who: JID, by: Literal["word", "error", "silence"], *, none: bool) -> _Known:
        known = self._known[who] = _Known(none, by, self._clock() + _REMEMBERED_S)
        self._known.move_to_end(who)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return known
