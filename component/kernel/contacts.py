"""The contacts of the agents: who is a person, in which time zone, and who may be written to."""

import itertools
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Final, Literal

import anyio

from component import DEFAULT_AGENT, system
from component.agent_addresses import both_addresses, canonical_address
from component.caches import LRUCache
from component.commands import Asking
from component.kernel.environment import Environment
from component.kernel.stream import StreamSubsystem
from component.link.messages.inbound import ReplyAddress
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.policy.persons import Persons
from component.store.contacts import LastAddresses
from component.store.notifications import NotificationStore
from component.zones import person_zone
from xep.disco import InfoQuery
from xep.entity_time import NAMESPACE as ENTITY_TIME
from xep.entity_time import Time, TimeQuery
from xep.jid import JID
from xep.message_correction import NAMESPACE as CORRECTION
from xep.stanza_error import StanzaError

_ID_BYTES: Final = 16
_INFO_TIMEOUT_S: Final = 2.0
"""Seconds that a client has to answer what it supports, and its time."""
_TIME_TIMEOUT_S: Final = 0.5
"""Seconds that a client has to answer with its time."""
_REMEMBERED_S: Final = 6 * 3600.0
_MOST_REMEMBERED: Final = 10_000
_MOST_UNKNOWN: Final = 20
"""The maximum number of unknown agents that admins are asked about while the service runs."""
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME: Final = 24
_UNKNOWN_AGENT: Final = (
    "The agent at {jid}, which I don't know, has written to me. I have not answered. If it may use"
    " some of my skills, add this to my configuration, and /reload:\n\n[[peer]]\nname ="
    ' "{name}"\njid = "{jid}"\noffers = ["echo"]  # the skills that it may use\norigins = {origins}'
    "  # the domains of the people for whom it may ask\n\n`xmpp-agent policy explain {name}` says"
    " what it may do then."
)


class ContactSubsystem:
    """Queries the clients of contacts for what they are, and caches the answers.

    Attributes:
        persons: distinguishes people from other agents and services.
        time_zones: the time zones of people that their clients have reported.
        admits: whether the policy admits a bare address.
        may_write: whether an agent (first) may send a contact (second) an unrequested message.
        start: allow messages of an agent (first) to a contact (second) again.
        stop: stop messages of an agent (first) to a contact (second).
        last_addresses: the address of the default agent that each contact uses.
    """

    def __init__(self, environment: Environment, stream: StreamSubsystem) -> None:
        self._stream = stream
        self._admins = environment.catalog.admins
        self.persons = Persons(self._info, stream.addresses.is_own)
        self.time_zones = TimeZones(self._time)
        self.admits = environment.catalog.admits
        self.may_write = environment.stopped.may_write
        self._correcting: LRUCache[JID, bool] = LRUCache(_MOST_REMEMBERED)
        self.start, self.stop = environment.stopped.start, environment.stopped.stop
        self.last_addresses = LastAddresses(environment.storage)
        self._catalog = environment.catalog
        self._unknown_agents: set[JID] = set()
        stream.on_not_admitted.append(self._ask_about)

    def _ask_about(self, principal: str) -> None:
        """Ask the admins about an agent that is not admitted, once, if the settings say so.

        Only an address that is that of an agent for certain counts: a service, or the default agent
        of one. So nobody makes the admins read about people.
        """
        if self._catalog.settings.agent.unknown_agents != "ask" or not principal:
            return
        jid = JID.parse(principal)
        known = canonical_address(jid)
        if jid.local not in (None, DEFAULT_AGENT) or known in self._unknown_agents:
            return
        if len(self._unknown_agents) < _MOST_UNKNOWN:
            self._unknown_agents.add(known)
            above = jid.domain.partition(".")[2]
            origins = f'["{above if "." in above else jid.domain}"]'
            self.tell_admins(
                _UNKNOWN_AGENT.format(jid=jid, name=self._peer_name(jid), origins=origins)
            )

    def _peer_name(self, jid: JID) -> str:
        """Return a name for a new peer, which no other one has."""
        first = jid.domain.removeprefix("agent.").partition(".")[0]
        name = _NOT_IN_NAMES.sub("-", first)[:_LONGEST_NAME]
        if not name[:1].isalpha():
            name = f"peer-{name}"
        known = {peer.name for peer in self._catalog.settings.peer}
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        return next(each for each in itertools.chain((name,), numbered) if each not in known)

    async def used(self, address: JID, contact: JID) -> None:
        """Note the address at which a contact reaches an agent. Raises StorageError."""
        bare, other = both_addresses(address)
        if bare != other:
            await self.last_addresses.put(contact, address)

    def address_of(self, agent: str, person: JID, asked_at: JID | None = None) -> JID:
        """Return the address from which an agent writes to a person: `asked_at`, where the person
        asked for it, or else the one that the person uses. Settings may have changed since then, so
        only an address that the agent has now is returned.
        """
        ours = self._stream.addresses.address_of(agent)
        for known in (asked_at, self.last_addresses.get(person)):
            if known is not None and known.bare in both_addresses(ours):
                return known.bare
        return ours

    def tell_admins(self, sentence: str) -> None:
        """Send a message to each admin who may be written to."""
        for admin in self._admins:
            self._tell(self.address_of(DEFAULT_AGENT, admin), admin, sentence, "normal")

    def tell(self, agent: JID, person: JID, sentence: str) -> None:
        """Send a message of an agent to a person who may be written to."""
        self._tell(agent, person, sentence, "chat")

    def _tell(
        self, agent: JID, person: JID, sentence: str, type_: Literal["chat", "normal"]
    ) -> None:
        if self.may_write(agent, person):
            self._stream.messenger.send(
                OutboundMessage(
                    id=system.token_hex(_ID_BYTES),
                    conversation=conversation_with(agent, person),
                    to=ReplyAddress(str(person), agent, type_),
                    parts=(Text(sentence),),
                    must_arrive=True,
                )
            )

    async def ask_time(self, client: JID, at: JID) -> None:
        """Query a client for its time, from an address of this service, if it supports that.

        Takes at most two seconds; does nothing if the client does not answer.
        """
        with anyio.move_on_after(_INFO_TIMEOUT_S):
            try:
                await self._info(client, at)
            except StanzaError:
                return

    async def _info(self, to: JID, from_: JID) -> InfoQuery:
        info = await self._stream.get(to, InfoQuery(), InfoQuery, from_)
        self._correcting[to] = any(each.var == CORRECTION for each in info.features)
        await self.time_zones.learn(to, from_, info)
        return info

    def corrects(self, client: JID) -> bool:
        """Return whether a client has said that it shows corrections of messages."""
        return self._correcting.get(client, False)

    async def _time(self, to: JID, from_: JID) -> Time:
        return await self._stream.get(to, TimeQuery(), Time, from_)


class TimeZones:
    """Remembers the time zones of people for some hours.

    A client answers queries for its time zone (XEP-0202) if it wants to.

    Args:
        ask: queries a client (a full JID) from one of the component's addresses for its time.
        clock: monotonic seconds; the event loop's by default.

    Attributes:
        on_learned: called with the bare JID of a person and the time zone that a client reports.
    """

    def __init__(
        self,
        ask: Callable[[JID, JID], Awaitable[Time]],
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self.on_learned: list[Callable[[JID, timezone], None]] = []
        self._ask = ask
        self._clock = clock
        self._zones: LRUCache[JID, tuple[timezone, float]] = LRUCache(_MOST_REMEMBERED)
        """Each zone, and the time until which it is remembered."""

    def of(self, person: JID) -> timezone | None:
        """Return the time zone of the client that a person last used, if it reported one."""
        found = self._zones.get(person.bare, None)
        return found[0] if found is not None and self._clock() < found[1] else None

    async def learn(self, client: JID, at: JID, info: InfoQuery) -> None:
        """Query a client for its time, if `info` says that it supports that. Takes at most half a
        second; does nothing if the client does not answer.
        """
        if not client.resource or not any(each.var == ENTITY_TIME for each in info.features):
            return
        with anyio.move_on_after(_TIME_TIMEOUT_S):
            try:
                found = await self._ask(client, at)
            except StanzaError:
                return
            self._zones[client.bare] = found.tzo, self._clock() + _REMEMBERED_S
            for call in self.on_learned:
                call(client.bare, found.tzo)


class PersonZones:
    """Finds the names of time zones; see `component.zones.person_zone`. A client reports only an
    offset from UTC (XEP-0202).

    Args:
        store: what people have chosen, and the offsets that their clients last reported.
        default: the name of the zone of the settings.
        contacts: asks clients for their time; None while no service runs.
    """

    def __init__(
        self,
        store: NotificationStore,
        default: str,
        contacts: ContactSubsystem | None = None,
        now: Callable[[], datetime] = system.now,
    ) -> None:
        self._store = store
        self.default = default
        self._contacts = contacts
        self._now = now

    async def of(self, person: JID, at: JID | None = None) -> str:
        """Return the name of the time zone of a person. Raises StorageError.

        With a full JID and an address of this service, that client is queried first if no client
        has reported its time lately.
        """
        preferences = await self._store.preferences(person)
        offset = preferences.client_offset
        if self._contacts is not None and preferences.zone is None:
            reported = self._contacts.time_zones.of
            if reported(person) is None and person.resource is not None and at is not None:
                await self._contacts.ask_time(person, at)
            if (zone := reported(person)) is not None:
                offset = zone.utcoffset(None)
        return person_zone(preferences.zone, offset, self.default, self._now())

    async def of_caller(self, asking: Asking) -> str:
        """Return the name of the time zone of the caller of a command; `UTC` for the operator.
        Raises StorageError.
        """
        if asking.principal is None:
            return "UTC"
        return await self.of(asking.client or asking.principal, asking.at)
