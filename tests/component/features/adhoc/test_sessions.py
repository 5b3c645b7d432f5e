"""Sessions of ad-hoc commands: whose they are, how many there may be, how long they last."""

import contextlib
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.adhoc.sessions import CommandSession, CommandSessions
from component.kernel.adhoc import AdHocRequest
from component.skills import skill
from tests.component.features.adhoc.command_bench import CommandBench, go_on
from tests.component.link.router.wire import AGENT, DOMAIN, error_of
from tests.component.world import ALICE, BOB, result
from tests.profiles import examples
from tests.xep.strategies import xml_text
from xep.commands import BadSessionId, Command, SessionExpired
from xep.data_forms import Field, Form
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

PHONE, DESK = JID.parse(ALICE), JID.parse("alice@a.example/desk")
OTHER = JID.parse(BOB)
AT = JID.parse(AGENT)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def begun(sessions: CommandSessions, who: JID = PHONE) -> CommandSession:
    return sessions.begin(who, AT, "n", None)


def refused(
    sessions: CommandSessions, id_: str, who: JID = PHONE, at: JID = AT, node: str = "n"
) -> Any:
    """The condition with which a session is not found."""
    with pytest.raises(StanzaError) as caught:
        sessions.find(id_, who, at, node)
    (condition,) = caught.value.application
    return type(condition)


def test_a_session_belongs_to_one_full_address_at_one_address_with_one_command() -> None:
    sessions = CommandSessions(Clock())
    session = begun(sessions)
    assert sessions.find(session.id, PHONE, AT, "n") is session
    assert refused(sessions, session.id, DESK) is BadSessionId
    assert refused(sessions, session.id, OTHER) is BadSessionId
    assert refused(sessions, session.id, at=JID.parse(DOMAIN)) is BadSessionId
    assert refused(sessions, session.id, node="m") is BadSessionId


def test_ids_cannot_be_guessed_and_never_come_again() -> None:
    sessions = CommandSessions(Clock())
    ids = {begun(sessions).id for _ in range(100)}
    assert len(ids) == 100
    assert all(len(id_) >= 32 for id_ in ids)


def test_a_session_lasts_for_some_minutes_after_its_last_use() -> None:
    clock = Clock()
    sessions = CommandSessions(clock, lifetime_s=600)
    session = begun(sessions)
    clock.now = 599
    sessions.find(session.id, PHONE, AT, "n")
    clock.now = 1198
    assert sessions.find(session.id, PHONE, AT, "n") is session
    clock.now = 1798
    assert refused(sessions, session.id) is SessionExpired
    assert len(sessions) == 0
    # To anybody else it has never been there.
    assert refused(sessions, session.id, DESK) is BadSessionId


def test_work_under_way_does_not_expire() -> None:
    clock = Clock()
    sessions = CommandSessions(clock, lifetime_s=600)
    session = begun(sessions)
    session.stage = "running"
    other = begun(sessions)
    clock.now = 10_000
    assert sessions.find(session.id, PHONE, AT, "n") is session
    assert refused(sessions, other.id) is SessionExpired


@given(st.text(max_size=60))
def test_what_was_never_given_out_is_no_session(id_: str) -> None:
    assert refused(CommandSessions(Clock()), id_) is BadSessionId


def test_the_ids_of_sessions_begin_with_the_tag_of_the_instance() -> None:
    clock = Clock()
    sessions = CommandSessions(clock, lifetime_s=600, tag="40000001.")
    session = begun(sessions)
    assert session.id.startswith("40000001.")
    assert sessions.find(session.id, PHONE, AT, "n") is session
    clock.now = 10_000
    assert refused(sessions, session.id) is SessionExpired
    assert refused(sessions, session.id.replace("40000001", "40000002")) is BadSessionId


def test_a_principal_has_a_few_and_what_has_ended_goes_first() -> None:
    sessions = CommandSessions(Clock(), each=3)
    first, second, third = (begun(sessions, who) for who in (PHONE, DESK, PHONE))
    second.stage = "ended"
    fourth = begun(sessions)
    assert refused(sessions, second.id, DESK) is SessionExpired
    fifth = begun(sessions)
    assert refused(sessions, first.id) is SessionExpired
    assert {each.id for each in (third, fourth, fifth)} == set(sessions._sessions)


def test_a_principal_whose_sessions_all_run_has_to_wait() -> None:
    sessions = CommandSessions(Clock(), each=2)
    for _ in range(2):
        begun(sessions).stage = "running"
    with pytest.raises(StanzaError) as caught:
        begun(sessions)
    assert caught.value.condition == "resource-constraint"
    begun(sessions, OTHER)


def account(number: int) -> JID:
    return JID.parse(f"p{number}@a.example/x")


@given(total=st.integers(2, 60), crowd=st.integers(1, 40))
def test_who_has_no_session_finds_room_while_others_begin_all_they_can(
    total: int, crowd: int
) -> None:
    """None of their sessions ends by itself: they wait for forms, or their work does not end."""
    sessions = CommandSessions(Clock(), each=8, total=total)
    for stage in ("open", "running"):
        for number in range(min(crowd, total - 1)):
            for _ in range(20):
                with contextlib.suppress(StanzaError):
                    begun(sessions, account(number)).stage = stage
    newcomer = begun(sessions, PHONE)
    assert sessions.find(newcomer.id, PHONE, AT, "n") is newcomer


def test_a_form_is_lost_only_to_its_own_principal_while_there_is_room() -> None:
    sessions = CommandSessions(Clock(), each=2, total=6)
    mine = begun(sessions)
    for number in range(3):
        for _ in range(20):
            begun(sessions, account(number))
    assert sessions.find(mine.id, PHONE, AT, "n") is mine


def test_when_all_have_one_what_has_ended_makes_room_and_else_nothing() -> None:
    sessions = CommandSessions(Clock(), total=3)
    ended, *_ = [begun(sessions, account(number)) for number in range(3)]
    with pytest.raises(StanzaError) as caught:
        begun(sessions, account(3))
    assert caught.value.condition == "resource-constraint"
    ended.stage = "ended"
    begun(sessions, account(3))
    assert refused(sessions, ended.id, account(0)) is SessionExpired


def test_admins_find_room_when_nobody_else_does() -> None:
    sessions = CommandSessions(Clock(), total=4, admins=[PHONE.bare], reserved=1)
    for number in range(3):
        begun(sessions, account(number)).stage = "running"
    with pytest.raises(StanzaError):
        begun(sessions, account(3))
    begun(sessions, PHONE)


@examples(20)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["alice@a.example/1", "alice@a.example/2", "bob@b.example/1"]),
            st.sampled_from(["open", "running", "ended"]),
            st.floats(0, 400),
        ),
        max_size=40,
    )
)
def test_the_bounds_always_hold(steps: list[tuple[str, Any, float]]) -> None:
    clock = Clock()
    sessions = CommandSessions(clock, each=3, total=4, lifetime_s=600)
    for who, stage, seconds in steps:
        clock.now += seconds
        try:
            sessions.begin(JID.parse(who), AT, "n", None).stage = stage
        except StanzaError as error:
            assert error.condition == "resource-constraint"  # noqa: PT017
        assert len(sessions) <= 4
        for bare in ("alice@a.example", "bob@b.example"):
            own = [s for s in sessions._sessions.values() if str(s.requester.bare) == bare]
            assert len(own) <= 3


# -- any actions, any forms ----------------------------------------------------------------------


@skill
def work(count: int, words: list[str] = []) -> str:  # noqa: B006
    """Do something once."""
    return "done"


@skill
def plain() -> str:
    """Do something once, without asking."""
    return "done"


_DONE = Result(skill="work", outputs=(Output(name="output", text="done"),))
_ENDINGS: list[Any] = [
    _DONE,
    Result(skill="work", is_error=True),
    Accepted(task="t-1"),
    errors.busy(1),
    errors.invalid_param("count", "too odd"),
    errors.invalid_param("unheard", "of"),
    errors.malformed("does not fit"),
    errors.unknown_skill(),
    RuntimeError("broken"),
]


class Runs:
    """A run that ends as it is told to, at once or after a while, and counts what it did."""

    def __init__(self) -> None:
        self.ending: Any = _DONE
        self.suspends = False
        self.effects: dict[str, int] = {}

    def __call__(self, asked: AdHocRequest, _skill: str, _json_params: bytes) -> Any:
        found = self.ending
        misfit = isinstance(found, StanzaError) and found.condition == "bad-request"
        if not misfit:
            id_ = asked.session.partition("#")[0]
            self.effects[id_] = self.effects.get(id_, 0) + 1
        if self.suspends:
            return self._later(found)
        if isinstance(found, Exception):
            raise found
        return found

    @staticmethod
    async def _later(found: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if isinstance(found, Exception):
            raise found
        return found


_FITS = Form(type="submit", fields=(Field(var="count", values=("1",)),))
_values = st.lists(
    st.sampled_from(["", "1", "2", "x", "urn:fluux:agent:0#execute"]) | xml_text,
    max_size=2,
).map(tuple)
_fields = st.builds(
    Field, var=st.sampled_from(["count", "words", "FORM_TYPE", "other"]), values=_values
)
_forms = (
    st.none()
    | st.builds(
        Form,
        type=st.sampled_from(["submit", "cancel", "form", "result"]),
        fields=st.lists(_fields, max_size=3).map(tuple),
    )
    | st.just(_FITS)
)
_actions = st.sampled_from(["execute", "complete", "next", "prev", "cancel", None])


_steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["skill/work", "skill/plain"]), st.sampled_from([ALICE, BOB])),
        st.tuples(st.sampled_from(_ENDINGS), st.booleans()),
        st.tuples(st.integers(0, 3), _actions, _forms, st.sampled_from([ALICE, BOB, None])),
        st.tuples(st.integers(0, 3), st.just("complete"), st.just(_FITS), st.none()),
        st.sampled_from([1.0, 300.0, 700.0]),
    ),
    max_size=25,
)


@examples(20)
@given(_steps)
async def test_any_actions_with_any_forms_run_nothing_twice(steps: list[Any]) -> None:
    runs, clock = Runs(), Clock()
    bench = CommandBench((work, plain), run=runs, sessions=CommandSessions(clock, each=3, total=5))
    begun: list[tuple[Command, str]] = []
    broke = False

    async def send(command: Command, who: str) -> Command | None:
        """The answer, which is one of XEP-0050; None for an error."""
        nonlocal broke
        broke = broke or isinstance(runs.ending, RuntimeError)
        reply = await bench.asked(command, who)
        if reply.get("type") == "error":
            assert broke or error_of(reply).condition != "internal-server-error"
            return None
        answer = result(Command, reply)
        assert answer.sessionid
        assert (answer.actions is not None) is (answer.status == "executing")
        return answer

    async with bench.bench.running():
        for step in steps:
            match step:
                case float(seconds):
                    clock.now += seconds
                case (str(node), who):
                    answer = await send(Command(node=node), who)
                    begun += [] if answer is None else [(answer, who)]
                case (int(number), action, form, who) if begun:
                    session, owner = begun[number % len(begun)]
                    command = go_on(session, action, form)
                    answer = await send(command, who or owner)
                    assert answer is None or owner == (who or owner)
                    if answer is not None and answer.status == "completed":
                        # The same once more: the same answer.
                        assert await send(command, who or owner) == answer
                case (ending, bool(suspends)):
                    runs.ending, runs.suspends = ending, suspends
            assert all(count == 1 for count in runs.effects.values())
            assert len(bench.sessions) <= 5
