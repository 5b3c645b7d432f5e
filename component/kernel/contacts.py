"""The contacts of the agents: who is a person, in which time zone, and who may be written to."""

from typing import Final, Literal

import anyio

from component import system
from component.handlers.time_zones import TimeZones
from component.kernel.environment import Environment
from component.kernel.stream import StreamSubsystem
from component.messages.inbound import ReplyAddress
from component.messages.outbound import OutboundMessage, Text, conversation_with
from component.policy.persons import Persons
from xep.disco import InfoQuery
from xep.entity_time import Time, TimeQuery
from xep.jid import JID
from xep.stanza_error import StanzaError

_ID_BYTES: Final = 16
_PATIENCE_S: Final = 2.0


class ContactSubsystem:
    """Queries the clients of contacts for what they are, and caches the answers.

    Args:
        environment: the contacts who want no unrequested messages, and the admins.
        stream: asks them, and sends messages.

    Attributes:
        persons: distinguishes people from other agents and services.
        time_zones: the time zones of people that their clients have reported.
        may_write: whether an agent (first) may send a contact (second) an unrequested message.
    """

    def __init__(self, environment: Environment, stream: StreamSubsystem) -> None:
        self._stream = stream
        self._admins = environment.catalog.admins
        self.persons = Persons(self._info, stream.addresses.is_own)
        self.time_zones = TimeZones(self._time)
        self.may_write = environment.stopped.may_write

    def tell_admins(self, sentence: str) -> None:
        """Send a message to each admin who may be written to."""
        for admin in self._admins:
            self._tell(self._stream.addresses.default, admin, sentence, "normal")

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
        with anyio.move_on_after(_PATIENCE_S):
            try:
                await self._info(client, at)
            except StanzaError:
                return

    async def _info(self, to: JID, from_: JID) -> InfoQuery:
        info = await self._stream.get(to, InfoQuery(), InfoQuery, from_)
        await self.time_zones.learn(to, from_, info)
        return info

    async def _time(self, to: JID, from_: JID) -> Time:
        return await self._stream.get(to, TimeQuery(), Time, from_)
