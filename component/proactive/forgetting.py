"""Deletes the rows of a person that exist because of work that an agent starts by itself.

It is part of the command `/forget`, which also deletes the conversation and the memories.
"""

from typing import Final

import msgspec

from component.storage.database import Database
from component.storage.forgetting import Forgotten
from xep.jid import JID

FORGOTTEN: Final = frozenset(
    (
        *("notifications", "recipients", "schedules", "skill_memories", "started_work"),
        *("watch_events", "watches"),
    )
)
"""Tables in which the rows of a person are deleted, or emptied if their keys are still needed."""

KEPT: Final = {
    "account_consents": "where the person allows memories; `/memory-home stop` deletes it",
    "agents": "about agents, not about people",
    "asked": "part of a task",
    "audit_heads": "the state of the audit log, which is kept",
    "budget_allotments": "sums",
    "clock": "the clock",
    "deliveries": "ids of deliveries, so that none starts work twice",
    "events": "part of a task",
    "inputs": "part of a task",
    "instances": "processes",
    "journal": "part of a task",
    "notices": "whether the person has got the notice that the agent is a machine",
    "notification_preferences": "the person's preferences for all agents",
    "parts": "part of a task",
    "pubsub_affiliations": "the node of memories is kept, empty",
    "pubsub_items": "memories are deleted by the memory, other items by their publisher",
    "pubsub_nodes": "the node of memories is kept, empty",
    "pubsub_retractions": "deleted when the agent has deleted the memories as well",
    "pubsub_subscriptions": "the person ends a subscription by unsubscribing",
    "queues": "queues",
    "recent_questions": "part of a task",
    "replay": "part of a task",
    "skill_approvals": "about skills, not about people",
    "skill_descriptions": "about skills, not about people",
    "spending": "sums",
    "stopped": "whether the person wants no messages",
    "subscriptions": "contacts, which the person ends by unsubscribing",
    "switches": "switches of admins",
    "task_counts": "counts",
    "tasks": "stored for `tasks.retention_s`, as promised to their callers",
    "turn_outcomes": "deleted when the person has got the outcome",
    "turns": "deleted when the conversation is stopped",
    "waiters": "part of a task",
    "watch_chains": "addresses of agents",
    "watch_items": "digests; deleted with the last watch of the source",
    "watch_sources": "digests; deleted with the last watch of the source",
}
"""Tables that are left unchanged, and why."""

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
