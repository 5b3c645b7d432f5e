"""The person and the agent that a command is about."""

from typing import Annotated

import msgspec

from component.commands.definition import Asking, CommandError
from xep.jid import JID, JIDError


class OfPerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of a command about a person and an agent."""

    person: Annotated[
        str,
        msgspec.Meta(title="Person", description="Address of the person, juliet@example.com."),
    ] = msgspec.field(name="for")
    agent: Annotated[
        str,
        msgspec.Meta(title="Agent", description="Name of the agent. Default: the default agent."),
    ] = ""


class PersonParams(OfPerson, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The person and the agent whose memories are meant."""


def person_of(address: str) -> JID:
    """Return the bare address of a person. Raises CommandError."""
    try:
        return JID.parse(address.strip()).bare
    except JIDError as error:
        raise CommandError(f"{address!r} is not an address: {error}", "for") from None


def whose(asking: Asking, default_agent: str) -> tuple[str, JID]:
    """Return the agent and the person of a command. Raises CommandError for the operator."""
    if asking.principal is None:
        raise CommandError("This works only over XMPP.")
    return asking.agent or default_agent, asking.principal
