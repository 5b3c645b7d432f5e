"""The rows of the table `turns`."""

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from component.agent import rows
from component.agent.requests import MessageStarter, OperatorStarter, Outcome, TurnRequest
from component.agent.rows import decoded, encoded
from component.budget.protocol import Payer
from component.link.messages.inbound import Conversation, ReplyAddress
from component.store import waiters
from component.store.database import Database
from tests.direct_database import DirectDatabase
from xep.jid import JID

TEXT = st.text(max_size=20)
BARE = st.builds(JID, st.sampled_from(["ann", "bob"]), st.just("example.org"))
FULL = st.builds(JID, st.just("ann"), st.just("example.org"), st.sampled_from(["a", "b c", "d/e"]))
TAINT = st.sampled_from([None, "person", "peer", "web", "file"])

REQUESTS = st.builds(
    TurnRequest,
    id=TEXT,
    starter=st.one_of(
        st.builds(MessageStarter, FULL, st.none() | TEXT), st.builds(OperatorStarter, TEXT)
    ),
    conversation=st.builds(Conversation, BARE, BARE, st.booleans(), st.none() | TEXT),
    principal=BARE,
    reply_to=st.none()
    | st.builds(
        ReplyAddress,
        TEXT,
        FULL,
        st.sampled_from(["chat", "normal", "groupchat"]),
        st.none() | TEXT,
        st.booleans(),
    ),
    text=TEXT,
    taint=TAINT,
    language=st.none() | TEXT,
    payer=st.none() | st.builds(Payer, st.sampled_from(["agent", "principal", "day"]), TEXT),
)


@given(REQUESTS)
def test_a_request_is_read_as_it_was_written(request: TurnRequest) -> None:
    assert decoded(encoded(request)) == request


# -- the rows ------------------------------------------------------------------------------------


def a_request(id_: str) -> TurnRequest:
    here = JID("assistant", "example.org")
    person = JID("ann", "example.org")
    return TurnRequest(
        id=id_,
        starter=OperatorStarter("ops"),
        conversation=Conversation(here, person),
        principal=person,
        text="Hello.",
    )


def test_a_turn_keeps_the_state_of_its_row_until_its_outcome_is_recorded() -> None:
    database = cast("Database", DirectDatabase(start=1000))
    assert rows.standing(database, "home", "t") is None
    assert rows.insert(database, "home", a_request("t"))
    assert rows.standing(database, "home", "t") == "here"
    assert rows.standing(database, "other", "t") == "elsewhere"
    rows.wait(database, ["t"], rows.Wait(tasks=("task",)))
    assert rows.standing(database, "home", "t") == "waiting"
    rows.conclude(database, "t", Outcome("answered", "Yes."))
    rows.delete(database, ["t"])
    assert rows.standing(database, "home", "t") == Outcome("answered", "Yes.")
    rows.forget_outcome(database, "t")
    assert rows.standing(database, "home", "t") is None


def test_a_turn_that_is_deleted_waits_for_nothing() -> None:
    database = cast("Database", DirectDatabase(start=1000))
    rows.insert(database, "home", a_request("t"))
    waiters.wait_for(database, "t", ["task"], "home")
    assert waiters.ended_tasks(database, "home") == ["task"]
    rows.delete(database, ["t"])
    assert waiters.ended_tasks(database, "home") == []


class Postgres(DirectDatabase):
    """SQLite that is asked as PostgreSQL is, and notes which turns are locked before a write."""

    dialect = "postgresql"

    def __init__(self) -> None:
        super().__init__(start=1000)
        self.locked: list[str] = []
        self.written: list[list[str]] = []

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        if sql.endswith(" FOR UPDATE"):
            assert " FROM turns " in sql
            self.locked += parameters
            sql = sql.removesuffix(" FOR UPDATE")
        elif sql.startswith("INSERT INTO turn_outcomes"):
            self.written.append(list(self.locked))
        return super().execute(sql, parameters)


def test_an_outcome_is_recorded_while_no_task_can_begin_to_wait_for_the_turn() -> None:
    database = Postgres()
    rows.insert(cast("Database", database), "home", a_request("t"))
    rows.conclude(cast("Database", database), "t", Outcome("answered", "Yes."))
    assert database.written == [["t"]]
