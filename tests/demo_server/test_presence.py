"""Presence and subscriptions between accounts and the component (RFC 6121 §3, §4)."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from demo_server.roster import MAX_CONTACTS
from tests.demo_server.fakes import AGENT, Client, Element, World, condition

ROSTER = "{jabber:iq:roster}"
BOT = f"bot@{AGENT}"


@pytest.fixture
def world() -> World:
    return World()


def roster_of(client: Client) -> dict[str, str]:
    """Subscription by contact, and `ask` behind a slash."""
    answer = client.says("<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>")[-1]
    return {
        item.get("jid", ""): item.get("subscription", "")
        + (f"/{ask}" if (ask := item.get("ask")) else "")
        for item in answer.iter(f"{ROSTER}item")
    }


def set_contact(client: Client, item: str) -> list[Element]:
    return client.says(f"<iq type='set' id='s'><query xmlns='jabber:iq:roster'>{item}</query></iq>")


def types(stanzas: list[Element]) -> list[tuple[str | None, str | None]]:
    """Type and sender of each presence."""
    return [(s.get("type"), s.get("from")) for s in stanzas if s.tag.endswith("presence")]


def befriend(one: Client, other: Client) -> None:
    for asking, asked in ((one, other), (other, one)):
        bare = asked.jid.partition("/")[0]
        asking.says(f"<presence type='subscribe' to='{bare}'/>")
        asked.says(f"<presence type='subscribed' to='{asking.jid.partition('/')[0]}'/>")
    one.take()
    other.take()


def test_two_accounts_become_contacts_and_see_each_other_come_and_go(world: World) -> None:
    juliet = world.client("juliet", "balcony", "<presence/>")
    romeo = world.client("romeo", "orchard", "<presence><show>away</show></presence>")
    juliet.says("<presence type='subscribe' to='romeo@localhost'/>")
    assert roster_of(juliet) == {"romeo@localhost": "none/subscribe"}
    assert types(romeo.take()) == [("subscribe", "juliet@localhost")]
    romeo.says("<presence type='subscribed' to='juliet@localhost'/>")
    assert roster_of(romeo) == {"juliet@localhost": "from"}
    told = [s for s in juliet.take() if s.tag.endswith("presence")]
    assert types(told) == [("subscribed", "romeo@localhost"), (None, romeo.jid)]
    assert told[1].findtext("{jabber:client}show") == "away"
    assert roster_of(juliet) == {"romeo@localhost": "to"}

    romeo.leaves()
    assert types(juliet.take()) == [("unavailable", romeo.jid)]
    again = world.client("romeo", "orchard", "<presence/>")
    assert types(juliet.take()) == [(None, again.jid)]
    assert types(again.take()) == []


def test_each_change_is_pushed_to_who_has_asked_for_the_roster(world: World) -> None:
    juliet, silent = world.client("juliet", "a"), world.client("juliet", "b")
    roster_of(juliet)
    push, result = set_contact(
        juliet, "<item jid='romeo@localhost/x' name='R'><group>M</group></item>"
    )
    assert result.get("type") == "result"
    (item,) = push.iter(f"{ROSTER}item")
    assert (push.get("type"), push.get("from")) == ("set", "juliet@localhost")
    assert (item.get("jid"), item.get("name")) == ("romeo@localhost", "R")
    assert item.findtext(f"{ROSTER}group") == "M"
    assert silent.take() == []


def test_a_request_waits_for_the_contacts_next_login(world: World) -> None:
    juliet = world.client("juliet", "balcony", "<presence/>")
    juliet.says("<presence type='subscribe' to='romeo@localhost'><status>me</status></presence>")
    romeo = world.client("romeo", "orchard")
    request = romeo.says("<presence/>")[-1]
    assert types([request]) == [("subscribe", "juliet@localhost")]
    assert request.findtext("{jabber:client}status") == "me"


def test_a_client_may_answer_a_request_before_it_has_the_next_one(world: World) -> None:
    class Eager(Client):
        def send(self, xml: str) -> None:
            super().send(xml)
            if self.sent[-1].get("type") == "subscribe":
                self.says(f"<presence type='subscribed' to='{self.sent[-1].get('from')}'/>")

    juliet = world.client("juliet", "balcony", "<presence/>")
    juliet.says("<presence type='subscribe' to='romeo@localhost'/>")
    world.component().says(f"<presence type='subscribe' from='{BOT}' to='romeo@localhost'/>")
    romeo = Eager(world, "romeo", "orchard")
    romeo.says("<presence/>")
    assert roster_of(romeo) == {"juliet@localhost": "from", BOT: "from"}


def test_a_new_client_learns_who_is_there(world: World) -> None:
    juliet = world.client("juliet", "balcony", "<presence/>")
    romeo = world.client("romeo", "orchard", "<presence/>")
    befriend(juliet, romeo)
    second = world.client("juliet", "garden")
    seen = types(second.says("<presence/>"))
    assert set(seen) == {(None, second.jid), (None, juliet.jid), (None, romeo.jid)}


def test_removing_a_contact_ends_both_subscriptions(world: World) -> None:
    juliet = world.client("juliet", "balcony", "<presence/>")
    romeo = world.client("romeo", "orchard", "<presence/>")
    befriend(juliet, romeo)
    assert roster_of(romeo) == {"juliet@localhost": "both"}
    set_contact(juliet, "<item jid='romeo@localhost' subscription='remove'/>")
    assert (roster_of(juliet), roster_of(romeo)) == ({}, {"juliet@localhost": "none"})
    romeo.take()
    juliet.says("<presence><show>dnd</show></presence>")
    assert romeo.take() == []
    (answer,) = set_contact(juliet, "<item jid='romeo@localhost' subscription='remove'/>")
    assert condition(answer) == "item-not-found"


def test_a_component_is_subscribed_to_and_sees_presence(world: World) -> None:
    component = world.component()
    juliet = world.client("juliet", "balcony", "<presence/>")
    juliet.says(f"<presence type='subscribe' to='{BOT}'/>")
    assert types(component.take()) == [("subscribe", "juliet@localhost")]
    component.says(f"<presence type='subscribed' from='{BOT}' to='juliet@localhost'/>")
    component.says(f"<presence from='{BOT}' to='juliet@localhost'/>")
    assert types(juliet.take()) == [("subscribed", BOT), (None, BOT)]
    component.says(f"<presence type='subscribe' from='{BOT}' to='juliet@localhost'/>")
    juliet.says(f"<presence type='subscribed' to='{BOT}'/>")
    assert types(component.take()) == [("subscribed", "juliet@localhost"), (None, juliet.jid)]
    assert roster_of(juliet) == {BOT: "both"}

    juliet.leaves()
    assert types(component.take()) == [("unavailable", juliet.jid)]
    juliet = world.client("juliet", "balcony", "<presence/>")
    assert set(types(component.take())) == {(None, juliet.jid), ("probe", juliet.jid)}


def test_a_refused_request_does_not_disclose_who_is_there(world: World) -> None:
    component = world.component()
    juliet = world.client("juliet", "balcony", "<presence/>")
    component.says(f"<presence type='subscribe' from='{BOT}' to='juliet@localhost'/>")
    juliet.says(f"<presence type='unsubscribed' to='{BOT}'/>")
    assert types(component.take()) == [("unsubscribed", "juliet@localhost")]


def test_a_probe_is_answered_for_subscribers_alone(world: World) -> None:
    component = world.component()
    juliet = world.client("juliet", "balcony", "<presence/>")
    probe = f"<presence type='probe' from='{BOT}' to='juliet@localhost'/>"
    assert types(component.says(probe)) == [("unsubscribed", "juliet@localhost")]
    component.says(f"<presence type='subscribe' from='{BOT}' to='juliet@localhost'/>")
    juliet.says(f"<presence type='subscribed' to='{BOT}'/>")
    component.take()
    assert types(component.says(probe)) == [(None, juliet.jid)]
    juliet.leaves()
    component.take()
    assert types(component.says(probe)) == [("unavailable", "juliet@localhost")]


def test_directed_presence_is_taken_back_at_the_end(world: World) -> None:
    component = world.component()
    juliet = world.client("juliet", "balcony", "<presence/>")
    juliet.says(f"<presence to='room@{AGENT}/nick'/>")
    juliet.leaves()
    stanzas = component.take()
    assert types(stanzas) == [(None, juliet.jid), ("unavailable", juliet.jid)]
    assert {stanza.get("to") for stanza in stanzas} == {f"room@{AGENT}/nick"}


def test_an_approval_that_nobody_asked_for_goes_nowhere(world: World) -> None:
    juliet = world.client("juliet", "balcony", "<presence/>")
    romeo = world.client("romeo", "orchard", "<presence/>")
    juliet.says("<presence type='subscribed' to='romeo@localhost'/>")
    assert romeo.take() == []
    assert roster_of(juliet) == {}


def test_who_does_not_exist_declines(world: World) -> None:
    juliet = world.client("juliet", "balcony", "<presence/>")
    roster_of(juliet)
    got = juliet.says("<presence type='subscribe' to='nobody@localhost'/>")
    assert types(got) == [("unsubscribed", "nobody@localhost")]
    assert roster_of(juliet) == {"nobody@localhost": "none"}
    (answer,) = juliet.says("<presence type='subscribe' to='x@far.example'/>")
    assert condition(answer) == "remote-server-not-found"


def test_a_roster_and_its_requests_stay_bounded(world: World) -> None:
    component = world.component()
    juliet = world.client("juliet", "balcony", "<presence/>")
    for i in range(MAX_CONTACTS + 5):
        answers = juliet.says(f"<presence type='subscribe' to='u{i}@{AGENT}'/>")
        component.says(f"<presence type='subscribe' from='v{i}@{AGENT}' to='juliet@localhost'/>")
    assert condition(answers[-1]) == "resource-constraint"
    assert len(roster_of(juliet)) == MAX_CONTACTS
    assert len(world.table.accounts["juliet"].roster.requests) == MAX_CONTACTS


class Subscriptions(RuleBasedStateMachine):
    """Whatever two accounts do in whatever order, their rosters tell the same story."""

    ACCOUNTS = ("juliet", "romeo")
    account = st.sampled_from(ACCOUNTS)

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.clients: dict[str, Client] = {}

    @rule(account=account)
    def log_in(self, account: str) -> None:
        self.clients[account] = self.world.client(account, "x", "<presence/>")

    @precondition(lambda self: self.clients)
    @rule(account=account)
    def log_out(self, account: str) -> None:
        if client := self.clients.pop(account, None):
            client.leaves()

    @rule(
        account=account,
        type_=st.sampled_from(["subscribe", "subscribed", "unsubscribe", "unsubscribed", "probe"]),
    )
    def subscription(self, account: str, type_: str) -> None:
        if client := self.clients.get(account):
            client.says(f"<presence type='{type_}' to='{self.other(account)}@localhost'/>")

    @rule(account=account, removed=st.booleans())
    def change_roster(self, account: str, removed: bool) -> None:
        if client := self.clients.get(account):
            how = "subscription='remove'" if removed else "name='x'"
            set_contact(client, f"<item jid='{self.other(account)}@localhost' {how}/>")

    @invariant()
    def both_sides_agree(self) -> None:
        accounts = self.world.table.accounts
        for name in self.ACCOUNTS:
            mine, theirs = accounts[name].roster, accounts[self.other(name)].roster
            me, them = accounts[name].jid, accounts[self.other(name)].jid
            assert mine.sees(them) == theirs.seen_by(me)
            contact = mine.contacts.get(them)
            assert (contact is not None and contact.asked) == (me in theirs.requests)

    @invariant()
    def presence_reaches_exactly_who_may_see_it(self) -> None:
        for name, client in self.clients.items():
            other = self.clients.get(self.other(name))
            if other is not None:
                other.take()
                client.says("<presence/>")
                may = self.world.table.accounts[name].roster.seen_by(
                    self.world.table.accounts[self.other(name)].jid
                )
                assert bool(other.take()) == may

    def other(self, account: str) -> str:
        return self.ACCOUNTS[1 - self.ACCOUNTS.index(account)]


TestSubscriptions = Subscriptions.TestCase
