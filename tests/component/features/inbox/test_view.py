"""What an inbox is made from, on both databases, and the order of its entries."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.inbox import rows
from component.features.inbox.entries import Entry, Found, Makers, entries, in_order
from component.features.inbox.view import read_found
from component.store import Storage
from component.store.database import Database
from component.store.notifications import Notification, Subject, record
from component.task_messages.questions import Questions
from component.tasks.request import CallerContext
from tests.component.features.task_commands.stored import ALICE, complete, fail, insert
from xep.fluux_agent import errors
from xep.jid import JID

PERSON = JID.parse(ALICE)
AGENT = JID.parse("assistant@agent.example")
OTHER_ADDRESS = JID.parse("agent.example")
MAKERS = Makers(Questions(), lambda name: name.capitalize(), lambda _: None)
START = datetime(2030, 1, 1, tzinfo=UTC)


def notification(id_: str, **more: Any) -> Notification:
    one = {"agent": AGENT, "person": PERSON, "title": id_, "text": f"text of {id_}"}
    return Notification(id=id_, **{**one, **more})


def send(database: Database, id_: str, ago_ms: int = 0) -> None:
    database.execute(
        "UPDATE notifications SET message = ?, sent = ? WHERE id = ?",
        (f"m-{id_}", database.steady - ago_ms, id_),
    )


def fill(database: Database) -> None:
    failed = insert(database, "t-failed", origin="message")
    fail(database, failed, errors.timed_out(repeatable=True))
    fail(database, insert(database, "t-denied", origin="message"), errors.denied())
    fail(database, insert(database, "t-of-model", origin="tool"), errors.internal())
    complete(database, insert(database, "t-done", origin="command"), "All is well.")
    complete(database, insert(database, "t-of-program"))
    for number in ("1", "2"):  # of one source only the last failure counts
        context = CallerContext("assistant", trace="schedule sea")
        trigger = insert(database, f"t-trigger-{number}", origin="trigger", caller_context=context)
        database.execute(
            "UPDATE tasks SET created = created + ? WHERE id = ?", (int(number), trigger.id)
        )
        fail(database, trigger, errors.internal())
    of_trigger = Subject(matter="schedule sea", task="t-trigger-2", taints=("web",))
    for one in (
        notification("n-sent"),
        notification("n-read"),
        notification("n-held"),
        notification("n-failed", subject=of_trigger),
        notification("n-other", person=JID.parse("bob@b.example")),
    ):
        record(database, one, 10)
    send(database, "n-read", 2_000)
    send(database, "n-sent", 1_000)
    send(database, "n-failed")


@pytest.mark.anyio
@pytest.mark.ports
async def test_the_inbox_is_read_from_what_is_stored(storage: Storage) -> None:
    await storage.write(fill)

    async def shown(at: JID = AGENT) -> list[tuple[str, str, bool]]:
        found = await storage.read(lambda database: read_found(database, PERSON, at))
        return sorted((one.kind, one.id, one.is_read) for one in entries(found, PERSON, MAKERS))

    async def displays(message: str) -> bool:
        return await storage.write(
            lambda database: rows.note_displayed(database, OTHER_ADDRESS, PERSON, message, None)
        )

    failures = [("failed", "t-failed", False), ("failed", "t-trigger-2", False)]
    everything = [*failures, ("held", "n-held", False), ("result", "n-read", False)]
    sent = [("result", "n-sent", False), ("result", "t-done", False)]
    assert await shown() == await shown(OTHER_ADDRESS) == [*everything, *sent]
    assert await displays("m-n-read")
    assert not await displays("m-unknown")
    del everything[-1]
    assert await shown() == [*everything, *sent]
    assert await displays("t-done.3")
    assert [one[:2] for one in await shown()] == [one[:2] for one in everything]
    assert not await displays("m-n-other"), "it was sent to somebody else"
    await storage.write(
        lambda database: rows.archive(database, AGENT, PERSON, ["t-failed", "t-trigger-2"], 1_000)
    )
    assert await shown() == [("held", "n-held", False)]
    found = await storage.read(
        lambda database: rows.displayed_until(database, OTHER_ADDRESS, PERSON)
    )
    await displays("m-n-read")
    assert found == await storage.read(
        lambda database: rows.displayed_until(database, AGENT, PERSON)
    ), "a marker that comes late changes nothing"


def test_results_have_the_title_and_the_taints_of_what_they_tell_of() -> None:
    subject = Subject(matter="schedule sea", taints=("web", "person"))
    one = notification("n", title="Sea", subject=subject, message="m", sent=5)
    found = Found(now=10, steady=10, notifications=[(one, "schedule sea")])
    (entry,) = entries(found, PERSON, MAKERS)
    assert (entry.title, entry.matter, entry.taints) == ("Sea", "schedule sea", ("person", "web"))


def made(kind: Any, matter: str, minutes: int, expires: int | None) -> Entry:
    return Entry(
        id=f"{kind}-{matter}-{minutes}",
        kind=kind,
        matter=matter,
        title=matter,
        text="",
        at=START + timedelta(minutes=minutes),
        expires=None if expires is None else START + timedelta(minutes=expires),
        priority="attention" if kind in ("question", "failed") else "normal",
    )


some_entries: Callable[..., Any] = st.builds(
    made,
    st.sampled_from(["failed", "result", "held", "waiting"]),
    st.sampled_from("abc"),
    st.integers(0, 9),
    st.none(),
)
questions = st.builds(
    made, st.just("question"), st.sampled_from("abc"), st.integers(0, 9), st.integers(10, 20)
)


@given(st.lists(some_entries | questions, max_size=12, unique_by=lambda one: one.id), st.randoms())
def test_entries_are_listed_by_matter_and_what_is_urgent_first(
    found: list[Entry], chance: Any
) -> None:
    listed = in_order(found)
    shuffled = [*found]
    chance.shuffle(shuffled)
    assert in_order(shuffled) == listed
    assert sorted(one.id for one in listed) == sorted(one.id for one in found)
    matters = [one.matter for one in listed]
    assert len(set(matters)) == sum(
        one != before for one, before in zip(matters, [None, *matters], strict=False)
    ), "each matter is one group"
    ranks = {"question": 0, "failed": 1}
    best = {one: min(ranks.get(e.kind, 2) for e in listed if e.matter == one) for one in matters}
    assert [best[one] for one in matters] == sorted(best[one] for one in matters)
    for one, following in pairwise(listed):
        if one.matter == following.matter and one.kind == following.kind == "question":
            assert one.expires is not None
            assert following.expires is not None
            assert one.expires <= following.expires
