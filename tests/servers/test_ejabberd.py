"""The common paths once more through ejabberd: chat, tasks, contacts, PubSub, and what it refuses.

`make thorough` runs nearly all other tests on it as well.
"""

from collections.abc import Iterator

import pytest

from tests.servers.base import Server
from tests.servers.chatting import Chat, chatting
from tests.servers.fixtures import CHAT, DESK, PUBSUB, SITE
from tests.servers.owned import owned_by_juliet
from tests.servers.tasking import Desk, open_desk
from tests.servers.test_chat import (
    _fresh,
    juliet,
    test_a_message_is_acknowledged_and_its_correction_too_late,
    test_a_reaction_answers_a_question,
    test_a_yes_in_plain_chat,
    test_an_answer_from_the_model,
)
from tests.servers.test_client_mode_refused import test_the_connection_is_checked_with_the_account
from tests.servers.test_confirm_answers import test_the_question_and_approval_by_iq
from tests.servers.test_harness import (
    test_a_wrong_secret_is_not_authorized,
    test_an_unknown_domain_has_a_different_name_on_each_server,
    test_what_callers_of_an_absent_component_see,
)
from tests.servers.test_pubsub_clients import party, test_a_node_from_its_creation_to_its_deletion
from tests.servers.test_shipped import (
    test_a_client_that_sends_too_fast_is_slowed_down,
    test_what_a_message_gets_on_its_way,
    test_what_a_stream_offers,
    test_what_the_server_serves,
)
from tests.servers.test_tasks_inputs import test_a_form_answers_the_question_of_a_task
from tests.servers.test_tasks_life import test_each_change_is_told_once_and_in_order

# The same tests, on the server of this module.
__all__ = [
    "_fresh",
    "juliet",
    "party",
    "test_a_client_that_sends_too_fast_is_slowed_down",
    "test_a_form_answers_the_question_of_a_task",
    "test_a_message_is_acknowledged_and_its_correction_too_late",
    "test_a_node_from_its_creation_to_its_deletion",
    "test_a_reaction_answers_a_question",
    "test_a_wrong_secret_is_not_authorized",
    "test_a_yes_in_plain_chat",
    "test_an_answer_from_the_model",
    "test_an_unknown_domain_has_a_different_name_on_each_server",
    "test_each_change_is_told_once_and_in_order",
    "test_the_connection_is_checked_with_the_account",
    "test_the_question_and_approval_by_iq",
    "test_what_a_message_gets_on_its_way",
    "test_what_a_stream_offers",
    "test_what_callers_of_an_absent_component_see",
    "test_what_the_server_serves",
]

pytestmark = [pytest.mark.servers]


@pytest.fixture(scope="module")
def xmpp_server(ejabberd_server: Server) -> Server:
    return ejabberd_server


@pytest.fixture(scope="module")
def server(ejabberd_server: Server) -> Server:
    """Where the account of an agent is."""
    return ejabberd_server.on(SITE)


@pytest.fixture(scope="module")
def desk(ejabberd_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    server = ejabberd_server.on(DESK)
    with open_desk(server, tmp_path_factory.mktemp("desk")) as agent:
        agent.connected()
        yield Desk(server, agent)


@pytest.fixture(scope="module")
def chat(ejabberd_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    server = ejabberd_server.on(CHAT)
    with chatting(server, tmp_path_factory.mktemp("chat")) as chat:
        yield chat


@pytest.fixture(scope="module")
def owned(ejabberd_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from owned_by_juliet(ejabberd_server.on(PUBSUB), tmp_path_factory)
