"""Distinguishes people from agents and services, by service discovery."""

from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

import anyio
import msgspec

from component.caches import LRUCache
from xep.disco import InfoQuery
from xep.fluux_agent import NAMESPACE
from xep.jid import JID
from xep.stanza_error import StanzaError

_REMEMBERED_S: Final = 600.0
_MOST_REMEMBERED: Final = 4096
_TIMEOUT_S: Final = 2.0
"""How long to wait for answers before a confirmation."""


Info: TypeAlias = Callable[[JID, JID], Awaitable[InfoQuery]]
"""Queries an entity from an own address by service discovery (XEP-0030 §3).

Raises StanzaError: the entity's error, or `remote-server-timeout`.
"""


class _Known(msgspec.Struct, frozen=True):
    """Cached knowledge about an entity.

    `none` is whether it last said that it is not a person. `by` is the result of the last query,
    which is valid until `until`.
    """

    none: bool
    by: Literal["word", "error", "silence"]
    until: float


class Persons:
    """Distinguishes people from agents and services.

    **Definition.** A person is an account (a JID with a localpart) that does not belong to this
    service, and that lists neither `urn:fluux:agent:0` nor the identity of a chat room. Both the
    client that sent the request is queried, because an agent that runs on an ordinary account can
    only be recognised there, and the account itself, for which its server answers. Servers do not
    describe their accounts to strangers, and many clients do not answer strangers: an address that
    answers with an error, or not at all, has not said that it is an agent, and counts as a person.
    So an agent that hides what it is gets its own questions. It gains nothing by not answering: it
    could as well deny being an agent. Answers are remembered for ten minutes.

    **Two uses.** Before a confirmation there is some time: `is_person` waits up to two seconds, and
    queries entities again that did not answer before. A message should not wait for long: `asked`
    queries the sender, and the caller gives up after a while (`passed_over`), which is remembered
    like an answer, for messages only. Neither that nor an error revokes an earlier answer that the
    entity is not a person; a late answer counts from then on.

    `is_own` says whether an address belongs to this service; those are not persons.
    """

    def __init__(
        self,
        info: Info,
        is_own: Callable[[JID], bool],
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._info = info
        self._is_own = is_own
        self._clock = clock
        self._known: LRUCache[JID, _Known] = LRUCache(_MOST_REMEMBERED)
        # The library's types do not say that `get` returns None for a missing key.
        self._find: Callable[[JID], _Known | None] = self._known.get

    # For confirmations.

    async def is_person(self, principal: JID, requester: JID, target: JID) -> bool:
        """Whether `principal`, with the client `requester`, is a person; queried from `target`."""
        if self._is_none(principal):
            return False
        found: list[bool] = []

        async def look(who: JID) -> None:
            known = self._fresh(who)
            if known is None or known.by == "silence":
                known = await self._ask(who, target)
            found.append(known is not None and known.by == "word" and known.none)

        with anyio.move_on_after(_TIMEOUT_S):  # without an answer it counts as a person
            async with anyio.create_task_group() as group:
                for who in dict.fromkeys((requester, principal.bare)):
                    group.start_soon(look, who)
        return not any(found)

    # For messages.

    def known(self, principal: JID, requester: JID) -> bool | None:
        """Whether it is a person; None if a query is needed. Never waits."""
        if self._is_none(principal):
            return False
        client, account = self._fresh(requester), self._fresh(principal.bare)
        if (client is not None and client.none) or (account is not None and account.none):
            return False
        return None if client is None or account is None else True

    async def asked(self, principal: JID, requester: JID, target: JID) -> bool | None:
        """Query entities that are not cached; None if one of them did not answer."""

        async def look(who: JID) -> None:
            if self._fresh(who) is None:
                found = await self._ask(who, target)
                if found is not None and found.none:
                    group.cancel_scope.cancel()  # the other answer does not matter

        async with anyio.create_task_group() as group:
            for who in dict.fromkeys((requester, principal.bare)):
                group.start_soon(look, who)
        return self.known(principal, requester)

    def passed_over(self, principal: JID, requester: JID) -> bool:
        """Give up waiting for an answer, and return whether the sender counts as a person: it does
        unless it has said otherwise before. Never waits.
        """
        for who in dict.fromkeys((requester, principal.bare)):
            if self._fresh(who) is None:
                self._remember(who, "silence", none=self._said_before(who))
        return self.known(principal, requester) is not False

    # The cache.

    def _is_none(self, principal: JID) -> bool:
        """Whether it is not a person by its address: a service, or an address of this service."""
        return principal.local is None or self._is_own(principal)

    def _fresh(self, who: JID) -> _Known | None:
        known = self._find(who)
        return known if known is not None and self._clock() < known.until else None

    def _said_before(self, who: JID) -> bool:
        known = self._find(who)
        return known is not None and known.none

    async def _ask(self, who: JID, target: JID) -> _Known | None:
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
        return known
