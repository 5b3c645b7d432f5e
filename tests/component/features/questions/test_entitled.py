"""Which occupants of a room may decide, by what its presence shows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.questions.checks import check_rooms
from component.features.questions.room_votes import RANKS, is_entitled, ranks_from
from component.kernel.check import Check
from component.kernel.rooms.occupants import RoomOccupant, RoomPresence, RoomView
from component.policy import Policy, Rule
from component.tasks.votes import Vote, outcome
from xep.disco import Feature, InfoQuery
from xep.fluux_agent.confirm import Approvals, ApproverRoom
from xep.jid import JID
from xep.muc import NAMESPACE as MUC
from xep.muc import Item, Status, User
from xep.stanza_error import StanzaError

ROOM = JID.parse("ops@rooms.example")
HAT = "urn:example:oncall"


@given(
    st.builds(
        RoomOccupant,
        nick=st.just("x"),
        jid=st.sampled_from(("", "alice@a.example")),
        affiliation=st.sampled_from((*RANKS, "outcast")),
        role=st.sampled_from(("moderator", "participant", "visitor")),
        hats=st.sampled_from(((), (HAT,), ("urn:other",))),
        is_agent=st.booleans(),
    ),
    st.sampled_from(RANKS),
    st.sampled_from((None, HAT)),
)
def test_an_occupant_decides_with_account_affiliation_and_hat(
    occupant: RoomOccupant, least: str, hat: str | None
) -> None:
    room = ApproverRoom(jid=ROOM, affiliation=least, hat=hat)  # type: ignore[arg-type]
    ranks = ["none", "member", "admin", "owner"]
    expected = (
        bool(occupant.jid)
        and not occupant.is_agent
        and occupant.affiliation in ranks
        and ranks.index(occupant.affiliation) >= ranks.index(least)
        and (hat is None or hat in occupant.hats)
    )
    assert is_entitled(occupant, room) is expected


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("enter"),
            st.sampled_from(("A", "B", "C")),
            st.sampled_from(("alice", "bob", "")),
            st.sampled_from(("none", "member", "admin")),
        ),
        st.tuples(st.just("leave"), st.sampled_from(("A", "B", "C"))),
        st.tuples(
            st.sampled_from(("approve", "approve", "withdraw", "deny")),
            st.sampled_from(("A", "B", "C", "Agent")),
        ),
    ),
    max_size=20,
)


@given(steps, st.integers(1, 2))
def test_any_story_of_a_room_counts_the_accounts_that_may_decide(
    story: list[tuple[str, ...]], need: int
) -> None:
    room = ApproverRoom(jid=ROOM, affiliation="member")
    view = RoomView()
    view.join("Agent")
    view.take(presence("Agent", "agent", "none", 110))
    there: dict[str, tuple[str, str]] = {}
    approved: set[str] = set()
    denied = False
    votes: dict[str, Vote] = {}
    for act, nick, *more in story:
        if act == "enter":
            view.take(presence(nick, *more))
            there[nick] = (more[0], more[1])
        elif act == "leave":
            view.take(presence(nick, "", "none", show="offline"))
            there.pop(nick, None)
        else:
            occupant = view.occupants.get(nick)
            if occupant is not None and is_entitled(occupant, room):
                if act == "withdraw":
                    votes.pop(occupant.jid, None)
                else:
                    value: Any = act
                    votes[occupant.jid] = Vote(JID.parse(occupant.jid), value, "digest")
            account, affiliation = there.get(nick, ("", "none"))
            if account and affiliation != "none":
                approved.discard(account)
                approved |= {account} if act == "approve" else set()
                denied = denied or act == "deny"
        found = outcome(list(votes.values()), Approvals(need=need), "digest")
        expected = "approve" if len(approved) >= need else None
        assert found == ("deny" if denied else expected)
        if found is not None:
            return


def presence(
    nick: str, account: str, affiliation: Any, *codes: int, show: Any = "online"
) -> RoomPresence:
    jid = JID.parse(f"{account}@a.example/desk") if account else None
    user = User(
        items=(Item(affiliation=affiliation, jid=jid),),
        statuses=tuple(Status(code=code) for code in codes),
    )
    return RoomPresence(nick=nick, user=user, show=show)


def test_the_lists_of_a_room_that_name_approvers() -> None:
    assert list(ranks_from("admin")) == ["admin", "owner"]
    assert list(ranks_from("none")) == ["member", "admin", "owner"], "there is no list of all"


@pytest.mark.anyio
async def test_doctor_says_that_a_room_gives_no_hats() -> None:
    async def ask(_room: JID) -> InfoQuery:
        return InfoQuery(features=(Feature(var=MUC), Feature(var="muc_nonanonymous")))

    rule = Rule(("pay",), approvers=(f"room:{ROOM}",), hat=HAT)
    (found,) = await check_rooms(Policy(allowed_domains=["a.example"], rules=[rule]), ask)
    assert found.verdict == "warning"
    assert "gives no hats" in found.text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        ((MUC, "muc_nonanonymous"), "ok", "shows the accounts"),
        ((MUC, "muc_semianonymous"), "warning", "Make it non-anonymous, or the agent a moderator"),
        (("urn:xmpp:ping",), "warning", "not that of a room"),
        ("item-not-found", "warning", "there is no such room. Create it"),
        ("remote-server-timeout", "warning", "cannot be asked"),
    ],
)
async def test_doctor_says_who_decides_and_whether_the_room_shows_accounts(
    answer: tuple[str, ...] | str, verdict: str, words: str
) -> None:
    async def ask(room: JID) -> InfoQuery:
        assert room == ROOM
        if isinstance(answer, str):
            raise StanzaError(answer)  # type: ignore[arg-type]
        return InfoQuery(features=tuple(Feature(var=var) for var in answer))

    policy = Policy(
        allowed_domains=["a.example"],
        rules=[Rule(("pay",), approvers=(f"room:{ROOM}",), affiliation="owner", need=2)],
    )
    (found,) = await check_rooms(policy, ask)
    assert isinstance(found, Check)
    assert found.verdict == verdict
    assert found.text.startswith(f"policy.rules[0]: 2 of the owners of {ROOM} decide; ")
    assert words in found.text
