"""The admins, who may use the admin commands."""

from collections.abc import Sequence

from component.policy.entries import EVERYBODY, BadEntry, EntryReader, PolicyError
from xep.jid import JID

_KEY = "agent.admins"


def read_admins(entries: Sequence[str]) -> frozenset[JID]:
    """Parse the bare JIDs of the admins.

    Raises PolicyError with all invalid entries; `["*"]` is invalid.
    """
    read = EntryReader()
    found = read.jids(_KEY, entries)
    read.finish()
    if found is None:
        raise PolicyError([BadEntry(_KEY, EVERYBODY, "Name each admin in full.")])
    return found
