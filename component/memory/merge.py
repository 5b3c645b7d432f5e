"""A three-way merge of one memory in two stores, without I/O.

The base is the last common state of both stores. A store has changed if its memory differs from
it. If both have changed, the person's own store, the *remote* one, decides
(specification, MEM-007 and MEM-009).
"""

import hashlib
from typing import Final, Literal, TypeAlias

import msgspec

from component.memory.knowledge_lines import Item

Action: TypeAlias = Literal[
    "settled", "put-remote", "forget-remote", "put-local", "forget-local", "keep-both"
]
"""The action that makes the stores equal: none, a change of one of them, or a second memory for the
text that would be lost."""

_ABSENT: Final = ""
_CONFLICT: Final = " (conflict)"
_LONGEST_KEY: Final = 200


class Synced(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last common state of a memory: digests for both stores, empty for no memory.

    They differ if a store returns texts in another form than it received them. `removing` says that
    the agent has since asked the person's store to delete the memory, perhaps without an answer: if
    it is gone there, the person has not changed it.
    """

    local: str = _ABSENT
    remote: str = _ABSENT
    removing: bool = False


class Decision(msgspec.Struct, frozen=True):
    """The action, and whether it overrules a change that should be reported to the person."""

    action: Action
    overruled: bool = False


def decide(
    local: Item | None, remote: Item | None, synced: Synced, *, own_change: bool | None = None
) -> Decision:
    """Decide how to make both stores equal.

    Args:
        local: the memory here.
        remote: the memory in the person's store.
        synced: the last common state.
        own_change: whether the memory here was changed by the agent; None if any change counts,
            including edits by hand.
    """
    here, there = digest(local), digest(remote)
    if here == there:
        return Decision("settled")
    is_changed = here != synced.local
    is_own_change = is_changed and own_change is not False
    if there == synced.remote or (synced.removing and remote is None):
        if is_own_change:
            return Decision("forget-remote" if local is None else "put-remote")
        if not is_changed:
            return Decision("settled")
    if remote is None:
        return Decision("forget-local", overruled=is_own_change)
    if local is None or not is_own_change:
        return Decision("put-local", overruled=is_own_change)
    return Decision("keep-both", overruled=True)


def digest(item: Item | None) -> str:
    """Return a digest of the contents of a memory, without its version and times."""
    if item is None:
        return _ABSENT
    said = (item.body, item.title, item.topic, item.tags, item.taint, item.expires)
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()


def conflict_key(key: str, number: int) -> str:
    """The key under which the overruled text of a memory is kept; `number` counts from 1."""
    suffix = _CONFLICT if number == 1 else f"{_CONFLICT[:-1]} {number})"
    return key[: _LONGEST_KEY - len(suffix)].rstrip() + suffix
