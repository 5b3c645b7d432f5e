"""Schedules through ejabberd."""

import pytest

from tests.servers.base import Server
from tests.servers.test_schedules import (
    _fresh,
    chat,
    juliet,
    romeo,
    test_a_goal_from_the_chat_fires_and_its_answer_arrives,
    test_a_kill_between_loses_no_firing_and_repeats_none,
    test_a_skill_from_the_chat_fires,
    test_firings_are_published_to_their_owner_alone,
    test_the_model_proposes_a_schedule_and_the_person_agrees,
)

# The same tests, with the server of this module.
__all__ = [
    "_fresh",
    "chat",
    "juliet",
    "romeo",
    "test_a_goal_from_the_chat_fires_and_its_answer_arrives",
    "test_a_kill_between_loses_no_firing_and_repeats_none",
    "test_a_skill_from_the_chat_fires",
    "test_firings_are_published_to_their_owner_alone",
    "test_the_model_proposes_a_schedule_and_the_person_agrees",
]

pytestmark = [pytest.mark.servers]


@pytest.fixture(scope="module")
def chat_server(ejabberd_server: Server) -> Server:
    """Where this module has its service."""
    return ejabberd_server
