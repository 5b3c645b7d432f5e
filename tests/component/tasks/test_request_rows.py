"""The request of a task in its row."""

from datetime import UTC
from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from component.policy.flows import AgentLimits
from component.tasks.request import CallerContext, Confirmation, Request
from tests.component.tasks.ledger import AGENT, ALICE, BOB, PHONE
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Param

_TEXT = st.text("abc", min_size=1, max_size=3)


@given(
    st.builds(
        Request,
        skill=_TEXT,
        principal=st.just(ALICE),
        requester=st.just(PHONE),
        target=st.just(AGENT),
        params=st.lists(st.builds(Param, name=_TEXT, text=_TEXT), max_size=2).map(tuple),
        mode=st.sampled_from(["auto", "inline", "async"]),
        name=st.none() | _TEXT,
        stanza_id=_TEXT,
        session=st.none() | _TEXT,
        deadline=st.none() | st.datetimes(timezones=st.just(UTC)),
        priority=st.sampled_from(["low", "normal", "high"]),
        context=st.none() | _TEXT,
        thread=st.none() | _TEXT,
        earlier=st.lists(_TEXT, max_size=2).map(tuple),
        delegation=st.sampled_from(
            [None, Delegation(origin=BOB, max_hops=3, budget_usd=Decimal("0.5"), via=(BOB, ALICE))]
        ),
        caller_context=st.builds(
            CallerContext, _TEXT, limits=st.builds(AgentLimits, st.just(("a*",)))
        ),
        confirmation=st.none() | st.builds(Confirmation, st.just((BOB,))),
        undecided=st.booleans(),
    ),
    st.dictionaries(_TEXT, st.integers(), max_size=2),
)
def test_a_row_keeps_the_request_with_all_its_parameters_in_one_object(
    request: Request, arguments: dict[str, int]
) -> None:
    stored = request.stored(arguments, 5)
    read = msgspec.json.decode(msgspec.json.encode(stored), type=Request)
    assert msgspec.json.decode(read.json) == arguments
    assert msgspec.structs.replace(read, json=request.json) == msgspec.structs.replace(
        request, params=(), stanza_id="", session=None, poll_after=5
    )
