"""What a principal is shown of its tasks, whatever their history, and nothing of anybody else's."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.tasks import queries, rows
from component.tasks.changes import EVENTS_KEPT, TRANSITIONS, change
from component.tasks.protocol import TaskLimits
from component.tasks.rows import TERMINAL, milliseconds, moment
from tests import schemas
from tests.component.tasks.ledger import (
    AGENT,
    ALICE,
    BOB,
    DAY,
    NOON,
    OTHER,
    Ledger,
    asked_for,
    event_in,
    question,
)
from tests.profiles import examples
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.errors import Malformed
from xep.fluux_agent.execute import Output, Result, State
from xep.fluux_agent.task import Events, Failure, Gap, Progress, Task, Tasks
from xep.jid import JID
from xep.result_sets import First, ResultSet
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.ports

NewLedger = Callable[[], Ledger]


def shown(database: Ledger, task: str = "t-1") -> Task:
    """The task as `get` shows it."""
    found = queries.get(database, ALICE, AGENT, task)
    assert found is not None
    assert schemas.check(encode(found)) == 1
    return found


def listed(database: Ledger, **asked: Any) -> Tasks:
    found = queries.list_(database, ALICE, AGENT, Tasks(**asked), TaskLimits())
    assert schemas.check(encode(found)) == 1
    return found


def told(database: Ledger, since: int = 0, page: ResultSet | None = None) -> Events:
    found = queries.events(database, ALICE, AGENT, Events(id="t-1", since=since, page=page))
    assert found is not None
    assert schemas.check(encode(found)) == 1
    assert found.page is not None
    return found


def ids(tasks: Tasks) -> list[str]:
    return [task.id for task in tasks.tasks]


# -- one task ------------------------------------------------------------------------------------


def test_a_task_is_shown_whole(new_ledger: NewLedger) -> None:
    database = new_ledger()
    request = asked_for(name="r-1", thread="rivers", poll_after=5)
    database.add(request=request, context="x-1", deadline=NOON + 9_500)
    assert shown(database) == Task(
        id="t-1",
        skill="report",
        state="accepted",
        revision=0,
        created=moment(NOON),
        updated=moment(NOON),
        retain_until=moment(NOON + DAY),
        deadline=moment(NOON + 9_500),
        poll_after=5,
        request="r-1",
        context="x-1",
        thread="rivers",
    )


def test_artifacts_are_joined_until_the_end(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.add(state="running", revision=4)
    for number in range(12):
        text = f"line {number}\n"
        database.part("t-1", Output(name="log", part=number, last=False, text=text))
    database.part("t-1", Output(name="sum", type="text/html", part=0, text="<b>"))
    log = "".join(f"line {number}\n" for number in range(12))
    assert shown(database).outputs == (
        Output(name="log", part=11, last=False, text=log),
        Output(name="sum", type="text/html", part=0, text="<b>"),
    )
    whole = Result(skill="report", outputs=(Output(name="log", text=log),))
    change(database, database.row(), "completed", whole)
    assert (shown(database).outputs, shown(database).result) == ((), whole)


def test_what_has_ended_needs_no_asking_again(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.add(state="running", request=asked_for(poll_after=5))
    change(database, database.row(), "failed", Failure.of(errors.internal()))
    assert shown(database).poll_after is None


ABSENT: dict[str, tuple[JID, JID, str]] = {
    "unknown": (ALICE, AGENT, "t-0"),
    "of somebody else": (BOB, AGENT, "t-1"),
    "at another address": (ALICE, OTHER, "t-1"),
    "past its time": (ALICE, AGENT, "t-old"),
    "still an inline call": (ALICE, AGENT, "t-inline"),
}


@pytest.mark.parametrize("who_at_task", ABSENT.values(), ids=ABSENT)
def test_what_is_not_there_is_looked_for_in_one_and_the_same_way(
    new_ledger: NewLedger,
    who_at_task: tuple[JID, JID, str],
) -> None:
    who, at, task = who_at_task
    database = new_ledger()
    database.add("t-1")
    database.add("t-old", state="completed", retain_until=NOON - 1)
    database.add("t-inline", promoted=0)
    asks: Sequence[Callable[[], object]] = (
        lambda: queries.get(database, who, at, task),
        lambda: queries.events(database, who, at, Events(id=task, since=0)),
        lambda: rows.find(database, who, at, task),
        lambda: queries.earlier(database, who, at, [task]) or None,
    )
    statements = set()
    for ask in asks:
        database.asked.clear()
        assert ask() is None
        (statement,) = database.asked
        statements.add(statement)
    assert len(statements) == 1


def test_a_task_is_there_until_its_time_and_beyond_it_while_it_is_open(
    new_ledger: NewLedger,
) -> None:
    database = new_ledger()
    database.add("t-last-moment", state="completed", retain_until=NOON)
    database.add("t-open", state="input-required", retain_until=NOON - DAY)
    assert shown(database, "t-last-moment").state == "completed"
    assert shown(database, "t-open").state == "input-required"
    assert sorted(ids(listed(database))) == ["t-last-moment", "t-open"]


def test_earlier_tasks_are_all_ones_own(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.add("t-1")
    database.add("t-2", state="failed")
    database.add("t-bob", principal=BOB)
    assert queries.earlier(database, ALICE, AGENT, [])
    assert queries.earlier(database, ALICE, AGENT, ["t-2", "t-1", "t-2"])
    assert not queries.earlier(database, ALICE, AGENT, ["t-1", "t-bob"])
    assert not queries.earlier(database, ALICE, AGENT, ["t-0"])


# -- any history ---------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["plain", "progress", "part"]), st.integers(0, 31), st.booleans()),
    max_size=70,
)


def grow(database: Ledger, steps: Sequence[tuple[str, int, bool]]) -> list[Task]:
    """Take the task where the steps say, as far as its states allow; every event it had."""
    events: list[Task] = []
    parts = 0
    for kind, choice, late in steps:
        row = database.row()
        ways = sorted(TRANSITIONS[row.state])
        # Ends are rare, or no history would be long.
        if choice < 30:
            ways = [
                state for state in ways if state not in TERMINAL and state != "cancelling"
            ] or ways
        if not ways:
            break
        to: State = ways[choice % len(ways)]
        database.now += -500 if late else 1_500
        detail: Any = None
        if to == "completed":
            detail = Result(skill="report", outputs=(Output(name="text", text="done"),))
        elif to in ("failed", "rejected"):
            detail = Failure.of(errors.internal())
        elif to == "input-required":
            detail = question(f"q-{row.revision}", row.revision + 1)
            database.ask("t-1", detail, row.revision + 1)
        elif to == row.state and kind == "part":
            detail = Output(name="log", part=parts, last=False, text=f"{parts}\n")
            database.part("t-1", detail)
            parts += 1
        elif kind == "progress":
            detail = Progress(fraction=Decimal(choice) / 32, text=f"at {row.revision}")
        events.append(event_in(change(database, row, to, detail)))
    return events


@examples(12)
@given(STEPS)
def test_the_whole_task_is_what_its_events_imply(
    new_ledger: NewLedger, steps: Sequence[tuple[str, int, bool]]
) -> None:
    database = new_ledger()
    database.add()
    for event in grow(database, steps):
        assert schemas.check(encode(event)) == 1
    events = grow(database, [])  # from here on nothing changes
    assert events == []
    events = list(told(database, page=ResultSet(max=50)).tasks)
    while len(events) < database.row().revision:
        events += told(database, page=ResultSet(after=str(len(events)))).tasks
    now = shown(database)
    assert [event.revision for event in events] == list(range(1, (now.revision or 0) + 1))
    if not events:
        assert now.state == "accepted"
        return
    last = events[-1]
    assert (now.state, now.revision, now.updated) == (last.state, last.revision, last.updated)
    assert (now.retain_until, now.created) == (last.retain_until, last.created)
    progress = [event.progress for event in events if event.progress]
    assert now.progress == (progress[-1] if progress else None)
    assert (now.result, now.failure) == (last.result, last.failure)
    asked = [event.input for event in events if event.input]
    assert now.input == (asked[-1] if now.state == "input-required" else None)
    parts = [part.text for event in events for part in event.outputs]
    assert [output.text for output in now.outputs] == (
        [] if now.state in TERMINAL or not parts else ["".join(parts)]
    )
    times = [event.updated for event in events if event.updated]
    assert times == sorted(times)


@examples(12)
@given(
    steps=STEPS,
    dropped=st.sets(st.integers(1, 70)),
    since=st.integers(0, 75),
    most=st.none() | st.integers(1, 60),
    backwards=st.booleans(),
)
def test_every_revision_is_an_event_or_in_one_gap(
    new_ledger: NewLedger,
    steps: Sequence[tuple[str, int, bool]],
    dropped: set[int],
    since: int,
    most: int | None,
    backwards: bool,
) -> None:
    database = new_ledger()
    database.add()
    sent = {event.revision: event for event in grow(database, steps)}
    present = database.row().revision
    for revision in dropped - {present}:
        database.execute("DELETE FROM events WHERE revision = ?", (revision,))
    found: list[Task] = []
    gaps: list[Gap] = []
    while True:
        edge = (found[0] if backwards else found[-1]) if found else None
        key = None if edge is None else str(edge.revision)
        answer = told(
            database,
            since,
            ResultSet(
                max=most,
                after=None if backwards else key,
                before=(key or "") if backwards else None,
            ),
        )
        assert answer.revision == present
        assert answer.page is not None
        assert not (gaps and answer.gaps)
        gaps += answer.gaps
        page = list(answer.tasks)
        found = page + found if backwards else found + page
        if len(found) == answer.page.count:
            break
        assert 1 <= len(page) <= min(most or 50, 50)
        assert len(found) < answer.page.count
        assert answer.page.last == str(page[-1].revision)
    # Each as it was sent, in order.
    assert found == [sent[event.revision] for event in found]
    assert [event.revision for event in found] == sorted(event.revision or 0 for event in found)
    covered = [event.revision or 0 for event in found]
    for gap in gaps:
        covered += range(gap.first, gap.last + 1)
    assert sorted(covered) == list(range(since + 1, present + 1))


def test_gaps_stand_in_the_page_that_begins_with_the_first_event(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.add(state="running")
    for _ in range(5):
        change(database, database.row(), "running", Progress(text="x"))
    database.execute("DELETE FROM events WHERE revision IN (1, 3)")
    gaps = (Gap(first=1, last=1), Gap(first=3, last=3))
    first = told(database, page=ResultSet(max=1))
    assert (first.gaps, first.page) == (
        gaps,
        ResultSet(first=First(key="2", index=0), last="2", count=3),
    )
    assert told(database, page=ResultSet(max=1, after="2")).gaps == ()
    assert told(database, page=ResultSet(max=1, index=0)).gaps == gaps
    assert told(database, page=ResultSet(max=1, index=1)).gaps == ()
    assert told(database, page=ResultSet(max=0)) == Events(
        id="t-1", since=0, revision=5, page=ResultSet(count=3)
    )
    assert told(database, since=5).gaps == told(database, since=9).gaps == ()


def test_work_that_reports_for_days_keeps_its_last_events_in_one_run(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.add(state="running")
    for _ in range(2 * EVENTS_KEPT + 120):
        change(database, database.row(), "running", Progress(text="on and on"))
    assert EVENTS_KEPT <= database.count("events") < EVENTS_KEPT + 50
    answer = told(database)
    (gap,) = answer.gaps
    assert answer.page is not None
    assert (gap.first, gap.last + 1) == (1, answer.tasks[0].revision)
    assert gap.last + (answer.page.count or 0) == answer.revision


# -- the list ------------------------------------------------------------------------------------


@examples(12)
@given(
    ages=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=60),
    added=st.lists(st.integers(0, 20), max_size=8),
    most=st.integers(1, 12),
    backwards=st.booleans(),
    theirs=st.integers(0, 3),
)
def test_following_the_pages_gives_every_task_once_while_others_come(
    new_ledger: NewLedger,
    ages: list[tuple[int, bool]],
    added: list[int],
    most: int,
    backwards: bool,
    theirs: int,
) -> None:
    database = new_ledger()
    created: dict[str, int] = {}
    for number, (age, running) in enumerate(ages):
        task = f"t-{number:02}"
        created[task] = NOON - age
        state = "running" if running else "completed"
        database.add(task, created=NOON - age, state=state)
    for number in range(theirs):
        database.add(f"bob-{number}", principal=BOB)
        database.add(f"inline-{number}", promoted=0)
        database.add(f"elsewhere-{number}", target=str(OTHER))
    expected = sorted(created, key=lambda task: (-created[task], task))
    found: list[str] = []
    key: str | None = None
    coming = list(added)
    while True:
        answer = listed(
            database,
            page=ResultSet(
                max=most,
                after=None if backwards else key,
                before=(key or "") if backwards else None,
            ),
        )
        page = ids(answer)
        assert len(page) <= most
        if not page:
            break
        assert answer.page is not None
        assert answer.page.first is not None
        assert answer.page.last is not None
        # Whoever counts the tasks reads them all, so only who shows them all says how many.
        everything = key is None and len(page) == len(created) + len(added) - len(coming)
        assert answer.page.count == (len(page) if everything else None)
        from_start = everything or (key is None and not backwards)
        assert answer.page.first.index == (0 if from_start else None)
        found = page + found if backwards else found + page
        assert len(found) == len(set(found))
        key = answer.page.first.key if backwards else answer.page.last
        if coming:
            # Later than all there are, as it is with a clock that was not set back.
            number = len(coming)
            database.add(f"new-{number}", created=NOON + 30 - number + coming.pop())
    assert [task for task in found if task in created] == expected


def test_the_filters_narrow_the_list(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.add("t-1", state="running", updated=NOON - 1)
    database.add("t-2", state="running", context="x", updated=NOON)
    database.add("t-3", state="completed", context="x", created=NOON + 1, updated=NOON + 1)
    assert ids(listed(database)) == ["t-3", "t-1", "t-2"]
    assert ids(listed(database, state="running")) == ["t-1", "t-2"]
    assert ids(listed(database, context="x")) == ["t-3", "t-2"]
    assert ids(listed(database, since=moment(NOON))) == ["t-3", "t-2"]
    found = listed(database, state="running", context="x", since=moment(NOON))
    assert ids(found) == ["t-2"]
    assert (found.state, found.context, found.since) == ("running", "x", moment(NOON))
    assert found.page == ResultSet(
        first=First(key=f"{NOON}-t-2", index=0), last=f"{NOON}-t-2", count=1
    )


@given(st.integers(0, 10**14))
def test_what_changed_at_that_very_time_is_listed(new_ledger: NewLedger, updated: int) -> None:
    assert milliseconds(moment(updated)) == updated
    database = new_ledger()
    database.add(updated=updated)
    since = shown(database).updated
    assert ids(listed(database, since=since)) == ["t-1"]
    assert ids(listed(database, since=moment(updated + 1))) == []


def test_in_a_list_a_task_holds_its_attributes_and_progress_only(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.add(state="running", context="x", request=asked_for(thread="rivers"))
    change(database, database.row(), "running", Progress(text="half", fraction=Decimal("0.5")))
    database.part("t-1", Output(name="log", part=0, last=False, text="a"))
    (task,) = listed(database).tasks
    assert task == Task(
        **{name: getattr(shown(database), name) for name in Task.__struct_fields__}
        | {"outputs": ()}
    )
    assert task.progress == Progress(text="half", fraction=Decimal("0.5"))
    change(database, database.row(), "completed", Result(skill="report"))
    (task,) = listed(database).tasks
    assert (task.state, task.result, task.progress) == ("completed", None, task.progress)
    database.add("t-2", state="running")
    change(database, database.row("t-2"), "failed", Failure.of(errors.internal()))
    assert [task.failure for task in listed(database).tasks] == [None, None]


@examples(12)
@given(
    sizes=st.lists(st.sampled_from([0, 100, 2_000, 30_000, 70_000]), max_size=60),
    backwards=st.booleans(),
)
def test_no_page_is_larger_than_anybody_has_to_take(
    new_ledger: NewLedger, sizes: list[int], backwards: bool
) -> None:
    database = new_ledger()
    database.add(state="running")
    for number, size in enumerate(sizes):
        change(database, database.row(), "running", Progress(text="é" * (size // 2)))
        progress = encode(Progress(text="&" * (size // 5)))
        database.add(f"p-{number:02}", progress=progress, principal=BOB)
    listing: list[str] = []
    history: list[int | None] = []
    key: str | None = None
    while len(listing) < len(sizes):
        asked = ResultSet(
            after=None if backwards else key, before=(key or "") if backwards else None
        )
        answer = queries.list_(database, BOB, AGENT, Tasks(page=asked), TaskLimits())
        assert len(encode(answer).encode()) <= 65_536 or len(answer.tasks) == 1
        assert answer.tasks
        listing += reversed(ids(answer)) if backwards else ids(answer)
        assert answer.page is not None
        assert answer.page.first is not None
        key = answer.page.first.key if backwards else answer.page.last
    assert len(set(listing)) == len(sizes)
    key = None
    while len(history) < len(sizes):
        asked = ResultSet(
            after=None if backwards else key, before=(key or "") if backwards else None
        )
        answered = told(database, page=asked)
        assert len(encode(answered).encode()) <= 65_536 or len(answered.tasks) == 1
        page = [task.revision for task in answered.tasks]
        assert page
        history += reversed(page) if backwards else page
        key = str(page[0] if backwards else page[-1])
    assert len(set(history)) == len(sizes)


MEANINGLESS = (
    ResultSet(max=-1),
    ResultSet(index=-1),
    ResultSet(index=0, after="1"),
    ResultSet(after="never"),
    ResultSet(before="never"),
    ResultSet(after=""),
    ResultSet(after="\u0661"),
    ResultSet(after="1" * 5_000),
)


@pytest.mark.parametrize("page", MEANINGLESS)
def test_a_page_that_cannot_be_meant_is_malformed(new_ledger: NewLedger, page: ResultSet) -> None:
    database = new_ledger()
    database.add()
    for ask in (lambda: listed(database, page=page), lambda: told(database, page=page)):
        with pytest.raises(StanzaError) as refused:
            ask()
        assert refused.value.condition == "bad-request"
        assert refused.value.application == (Malformed(),)


@given(
    key=st.integers(0, 10**16 - 1),
    index=st.integers(0, 10**19 - 1),
    since=st.integers(0, 10**19 - 1),
)
def test_no_number_is_too_large_to_be_asked_with(
    new_ledger: NewLedger, key: int, index: int, since: int
) -> None:
    database = new_ledger()
    database.add(state="running")
    change(database, database.row(), "running")
    assert listed(database, page=ResultSet(after=f"{key}-t")).page is not None
    assert told(database, since, ResultSet(after=str(key))).revision == 1
    assert told(database, since, ResultSet(before=str(key))).revision == 1
    assert told(database, since, ResultSet(index=index)).revision == 1


def test_a_list_is_not_asked_for_by_index(new_ledger: NewLedger) -> None:
    """Finding the hundred thousandth task by its number reads all before it."""
    database = new_ledger()
    database.add()
    assert ids(listed(database, page=ResultSet(index=0))) == ["t-1"]
    with pytest.raises(StanzaError) as refused:
        listed(database, page=ResultSet(index=1))
    assert refused.value.condition == "feature-not-implemented"


@examples(12)
@given(
    tasks=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12),
    since=st.integers(0, 20),
    most=st.integers(1, 4),
    backwards=st.booleans(),
)
def test_what_changed_since_is_listed_in_the_order_of_the_list(
    new_ledger: NewLedger,
    tasks: list[tuple[int, int]],
    since: int,
    most: int,
    backwards: bool,
) -> None:
    database = new_ledger()
    wanted: list[tuple[int, str]] = []
    for number, (age, took) in enumerate(tasks):
        created = NOON + 10 - age
        task = f"t-{number:02}"
        database.add(task, created=created, updated=created + took, state="completed")
        if created + took >= NOON + since:
            wanted.append((-created, task))
    found: list[str] = []
    key: str | None = None
    while True:
        asked = ResultSet(
            max=most, after=None if backwards else key, before=(key or "") if backwards else None
        )
        answer = listed(database, since=moment(NOON + since), page=asked)
        page = ids(answer)
        if not page:
            break
        found = page + found if backwards else found + page
        assert answer.page is not None
        assert answer.page.first is not None
        key = answer.page.first.key if backwards else answer.page.last
    assert found == [task for _, task in sorted(wanted)]


def test_a_key_says_where_to_go_on_when_its_task_has_gone(new_ledger: NewLedger) -> None:
    database = new_ledger()
    for number in range(4):
        database.add(f"t-{number}", created=NOON - number)
    page = listed(database, page=ResultSet(max=2)).page
    assert page is not None
    database.execute("DELETE FROM tasks WHERE id = 't-1'")
    assert ids(listed(database, page=ResultSet(after=page.last))) == ["t-2", "t-3"]
