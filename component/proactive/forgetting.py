"""Deletes the rows of a person that exist because of work that an agent starts by itself.

It is part of the command `/forget`, which also deletes the conversation and the memories.
"""

from typing import Final

import msgspec

from component.storage.database import Database
from component.storage.forgetting import Forgotten
from xep.jid import JID

_NOTHING: Final = "null"


def forget(database: Database, who: Forgotten) -> None:
    """Delete the rows of a person that belong to an agent.

    Of work whose result was sent, the key is kept, so that its
    trigger does not start it again.
    """
    owner, agent = str(who.person.bare), who.agent
    database.execute("DELETE FROM skill_memories WHERE principal = ?", (owner,))
    for table in ("notifications", "recipients"):
        database.execute(
            f"DELETE FROM {table} WHERE agent = ? AND person = ?",  # noqa: S608 - constants
            (str(who.address.bare), owner),
        )
    find = "instr(details, ?)" if database.dialect == "sqlite" else "strpos(details, ?)"
    database.execute(
        f"UPDATE started_work SET details = ?, failure = NULL WHERE told = 1"  # noqa: S608 - constants
        f" AND {find} > 0 AND {find} > 0",
        (_NOTHING, f'"principal":{_json(who.person.bare)}', f'"agent":{_json(agent)}'),
    )


def _json(value: str | JID) -> str:
    return msgspec.json.encode(value).decode()
