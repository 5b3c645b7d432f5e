"""What agents have told people by themselves, until the next turn of that conversation reads it.

A message that nobody has asked for, such as the result of a schedule, is recorded here in the
transaction that records its sending. The turn that answers the next message of the conversation
writes it to the file of the session, before that message, and deletes it here. So the file is never
written while a turn runs, and of several instances the one that has the conversation writes it.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from component.agent_addresses import canonical_address
from component.store.database import Database
from component.store.forgetting import Forgotten
from component.store.schema import Table
from xep.file_sharing import FileSharing
from xep.jid import JID

TABLES: Final = (
    Table(
        name="told_messages",
        columns="""
            agent TEXT {C} NOT NULL,
            peer TEXT {C} NOT NULL,
            id TEXT {C} NOT NULL,
            told_at BIGINT NOT NULL,
            content TEXT NOT NULL,
            PRIMARY KEY (agent, peer, id)
        """,
    ),
)

_MOST: Final = 100
"""Messages that are kept for one conversation; the oldest are dropped."""
_KEPT_MS: Final = 30 * 86_400_000
"""How long they are kept if the person never writes, in milliseconds."""


class ToldMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent has told a person or a room.

    Attributes:
        id: identifies the message, also when it is sent again.
        text: the text of the message.
        about: what it is, in one sentence for a model.
        taints: the possible authors of the text (`component.policy.taint`).
        turn: the turn whose answer it is; a session that has this turn has the text.
        files: the files of the message.
        at: when it was told, in milliseconds since 1970, UTC; `add` sets it.
    """

    id: str
    text: str
    about: str
    taints: tuple[str, ...] = ()
    turn: str = ""
    files: tuple[FileSharing, ...] = ()
    at: int = 0


_WHERE: Final = "agent = ? AND peer = ?"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ToldMessage).decode


def add(database: Database, agent: JID, peer: JID, told: ToldMessage) -> None:
    """Record what an agent has told `peer`, a bare JID, once."""
    key = _key(agent, peer)
    content = _encode(msgspec.structs.replace(told, at=database.now)).decode()
    made = database.execute(
        "INSERT INTO told_messages (agent, peer, id, told_at, content) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (agent, peer, id) DO NOTHING",
        (*key, told.id, database.steady, content),
    )
    if made.rowcount:
        database.execute(
            f"DELETE FROM told_messages WHERE {_WHERE} AND (told_at <= ? OR id IN (SELECT id"  # noqa: S608 - constants
            f" FROM told_messages WHERE {_WHERE} ORDER BY told_at DESC, id DESC LIMIT ? OFFSET ?))",
            (*key, database.steady - _KEPT_MS, *key, _MOST, _MOST),
        )


def is_any(database: Database, agent: JID, peer: JID) -> bool:
    """Return whether an agent has told `peer` anything that no turn has read."""
    found = database.execute(
        f"SELECT 1 FROM told_messages WHERE {_WHERE} LIMIT 1",  # noqa: S608 - constants
        _key(agent, peer),
    )
    return found.fetchone() is not None


def of_conversation(database: Database, agent: JID, peer: JID) -> Sequence[ToldMessage]:
    """Return what an agent has told `peer` and no turn has read, the oldest first."""
    found = database.execute(
        f"SELECT content FROM told_messages WHERE {_WHERE} ORDER BY told_at, id",  # noqa: S608 - constants
        _key(agent, peer),
    ).fetchall()
    return [_decode(content) for (content,) in found]


def delete(database: Database, agent: JID, peer: JID, ids: Collection[str] | None = None) -> None:
    """Delete these messages of a conversation, or all."""
    key = _key(agent, peer)
    if ids is None:
        database.execute(f"DELETE FROM told_messages WHERE {_WHERE}", key)  # noqa: S608 - constants
        return
    for id_ in ids:
        database.execute(
            f"DELETE FROM told_messages WHERE {_WHERE} AND id = ?",  # noqa: S608 - constants
            (*key, id_),
        )


def forget(database: Database, who: Forgotten) -> None:
    """Delete all messages of a person by an agent."""
    delete(database, who.address, who.person)


def _key(agent: JID, peer: JID) -> tuple[str, str]:
    # One conversation at both addresses of an agent.
    return str(canonical_address(agent)), str(peer)
