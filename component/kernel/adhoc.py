"""What an ad-hoc command is: who asked for it, its form, and its outcome.

`component.features.adhoc` serves commands; sources of commands are `Offers`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from component.skills.form_fields import Schema
from xep.commands import Note
from xep.data_forms import Form
from xep.jid import JID

USUAL_RANK: Final = 1
"""The rank of commands that say nothing else."""


class AdHocRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The requester of a command and the address that it was sent to.

    `principal` is the bare JID of `requester`; `target` is the component's address; `session`
    identifies a repetition, together with the principal and the target (FAC-006).
    """

    principal: JID
    requester: JID
    target: JID
    session: str
    lang: str | None = None


class Completed(msgspec.Struct, frozen=True):
    """The command is complete: its texts and its outcome."""

    notes: tuple[Note, ...]
    form: Form | None = None


class Misfit(msgspec.Struct, frozen=True):
    """The parameters are invalid: a sentence, and the reason at each invalid field. The form is
    shown again, with the values that were given.
    """

    sentence: str
    reasons: Mapping[str, str]


Outcome: TypeAlias = Completed | Misfit


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its node, the content of its form, and the function that runs it.

    `rank` decides its place in the list of commands: lower ones come first. `run` takes the
    parameters as a JSON object. It raises StanzaError where the command as a whole
    is not there (any more). `prepare` gives the command with the choices that its form shows, where
    they are in the database; it raises StanzaError if the requester has none.
    """

    node: str
    title: str
    about: str
    schema: Schema
    form_type: str | None
    rank: int = USUAL_RANK
    run: Callable[[AdHocRequest, msgspec.Raw], Outcome | Awaitable[Outcome]]
    prepare: "Callable[[AdHocRequest], Awaitable[Offer]] | None" = None


class Offers:
    """A source of commands."""

    def nodes(self, principal: JID) -> Sequence[str]:
        """Return the nodes of the commands for a principal, except those of `listed`."""
        raise NotImplementedError

    def get(self, node: str, principal: JID) -> Offer | None:
        """Return a command by its node; None if the principal has no such command."""
        raise NotImplementedError

    def listed(self, _principal: JID) -> Sequence[str]:
        """Return the nodes of more commands, of the usual rank, which are made when they are
        used. There may be very many of them.
        """
        return ()

    def title(self, _node: str, _principal: JID) -> str:
        """Return the title of one of these commands."""
        raise NotImplementedError


def find_offer(sources: Sequence[Offers], node: str, principal: JID) -> Offer | None:
    """Return a command by its node, from the first source that has it."""
    for source in sources:
        offer = source.get(node, principal)
        if offer is not None:
            return offer
    return None
