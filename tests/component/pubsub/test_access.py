"""Who may do what at a node, and what a change of it has others wait for."""

from typing import Any, cast

import pytest

from component.pubsub import access
from component.store.database import Database
from xep.stanza_error import StanzaError

SERVICE = "agent.example.com"
OWNER = access.Requester(service=SERVICE, principal=SERVICE, jid=SERVICE)


class Postgres:
    """A database with one node, which keeps what it is asked."""

    dialect = "postgresql"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def execute(self, sql: str, _values: Any = ()) -> Any:
        self.asked.append(sql)
        return self

    def fetchone(self) -> tuple[Any, ...]:
        return SERVICE, "n", "{}", SERVICE, 0


def test_an_owner_who_changes_a_node_has_other_instances_wait_and_one_who_reads_does_not() -> None:
    for locks in ({}, {"lock": True}, {"lock": False}):
        database = Postgres()
        at = access.NodeAccess(cast("Database", database), OWNER, "n")
        assert at.owned(**locks).name == "n"
        (asked,) = database.asked
        assert asked.endswith(" FOR UPDATE") == locks.get("lock", True)


@pytest.mark.parametrize("id_", ["x" * 1023, "x" + "é" * 511])
def test_an_id_has_at_most_1023_bytes(id_: str) -> None:
    access.check_id("an item", id_)
    with pytest.raises(StanzaError, match="the id of an item is longer than 1023 bytes"):
        access.check_id("an item", id_ + "x")
