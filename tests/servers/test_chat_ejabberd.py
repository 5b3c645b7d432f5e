"""The same talk through ejabberd."""

import pytest

from tests.servers.base import Server
from tests.servers.test_chat import (
    _fresh,
    chat,
    juliet,
    romeo,
    test_a_message_is_acknowledged_and_its_correction_too_late,
    test_a_no_in_plain_chat,
    test_a_reaction_answers_a_question,
    test_a_tool_is_called,
    test_a_yes_in_plain_chat,
    test_an_answer_from_the_model,
    test_each_slash_command_is_answered_without_the_model,
    test_killed_in_the_middle_of_a_turn,
    test_killed_while_it_waits_for_a_word,
    test_people_say_yes_as_they_do,
    test_the_domain_itself_is_answered_by_the_default_agent,
    test_what_cannot_be_read_is_told_so,
)

# The same tests, with the server of this module.
__all__ = [
    "_fresh",
    "chat",
    "juliet",
    "romeo",
    "test_a_message_is_acknowledged_and_its_correction_too_late",
    "test_a_no_in_plain_chat",
    "test_a_reaction_answers_a_question",
    "test_a_tool_is_called",
    "test_a_yes_in_plain_chat",
    "test_an_answer_from_the_model",
    "test_each_slash_command_is_answered_without_the_model",
    "test_killed_in_the_middle_of_a_turn",
    "test_killed_while_it_waits_for_a_word",
    "test_people_say_yes_as_they_do",
    "test_the_domain_itself_is_answered_by_the_default_agent",
    "test_what_cannot_be_read_is_told_so",
]

pytestmark = [pytest.mark.servers]


@pytest.fixture(scope="module")
def chat_server(ejabberd_server: Server) -> Server:
    """Where this module has its service."""
    return ejabberd_server
