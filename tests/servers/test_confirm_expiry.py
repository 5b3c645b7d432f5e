"""Questions on a real server that nobody answers in time."""

from collections.abc import Iterator

import pytest

from tests.servers.base import Server
from tests.servers.clients import SlixClient
from tests.servers.talk import login
from tests.servers.tasking import (
    Desk,
    answer,
    asks,
    begin,
    decision,
    failed,
    heard,
    in_state,
    open_desk,
    params,
    refusal,
    select,
    waits,
    why,
)

pytestmark = [pytest.mark.servers]

EXPIRED = ("not-acceptable", "expired")


@pytest.fixture(scope="module")
def desk(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A service that is in a hurry."""
    directory = tmp_path_factory.mktemp("desk")
    with open_desk(xmpp_server, directory, policy__confirm_expires_s=0.3) as agent:
        agent.connected()
        yield Desk(xmpp_server, agent)


def test_nobody_answered_in_time(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "wipe", path="late")
    _, confirm = asks(caller, task)
    id_ = confirm.attrib["id"]
    assert failed(caller, task)[0] == "confirmation-expired"
    # To whom was asked, too late is not the same as never; and never is it a denial.
    for value in ("approve", "deny"):
        late = caller.iq(desk.assistant, decision(id_, value), "set")
        assert refusal(late) == EXPIRED
    select(caller, desk.assistant, f"approve:{id_}")
    heard(caller, desk.assistant, "had lapsed")
    with login(desk.server, "romeo") as romeo:
        foreign = romeo.iq(desk.assistant, decision(id_, "approve"), "set")
        assert refusal(foreign) == ("item-not-found", "unknown-confirmation")
    found = in_state(caller, desk.assistant, task, "failed")
    assert why(found)[0] == "confirmation-expired"
    assert desk.effects() == []


@pytest.mark.thorough
def test_nobody_answered_while_it_was_away(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "wipe", path="away")
    asks(caller, task)
    desk.agent.kill()
    desk.agent.start().connected()
    assert failed(caller, task)[0] == "confirmation-expired"


def test_an_input_that_lapses(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "word", seconds=0.3)
    asked = waits(caller, task)
    assert failed(caller, task)[0] == "input-expired"
    late = caller.iq(desk.assistant, answer(asked, task, params({"word": "x"})), "set")
    assert refusal(late) == EXPIRED
