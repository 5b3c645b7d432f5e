"""The common path of tasks, confirmations, inputs and commands once more, on ejabberd."""

import pytest

from tests.servers.base import Server
from tests.servers.test_commands_service import (
    test_a_confirmation_from_a_command,
    test_a_form_filled_in_wrongly_then_rightly,
    test_long_work_goes_on_as_a_task,
    test_pause,
    test_the_commands_are_the_skills_of_the_view,
)
from tests.servers.test_confirm_answers import (
    test_by_a_selected_action,
    test_killed_between_question_and_answer,
    test_no_and_why,
    test_nobody_else_can_answer,
    test_the_question_and_approval_by_iq,
    test_two_who_may_answer,
    test_what_decides_nothing,
    test_which_one,
    test_yes,
)
from tests.servers.test_tasks_crashes import (
    test_no_completed_step_is_repeated,
    test_the_end_waits_for_who_was_away,
)
from tests.servers.test_tasks_inputs import test_by_form, test_by_iq, test_in_words
from tests.servers.test_tasks_life import (
    test_cancelled_from_another_resource,
    test_each_change_is_told_once_and_in_order,
    test_nobody_elses_task_is_there,
    test_the_same_request_after_a_broken_stream,
    test_what_takes_longer_becomes_a_task,
)

# The same tests, with the `desk` of this module.
__all__ = [
    "test_a_confirmation_from_a_command",
    "test_a_form_filled_in_wrongly_then_rightly",
    "test_by_a_selected_action",
    "test_by_form",
    "test_by_iq",
    "test_cancelled_from_another_resource",
    "test_each_change_is_told_once_and_in_order",
    "test_in_words",
    "test_killed_between_question_and_answer",
    "test_long_work_goes_on_as_a_task",
    "test_no_and_why",
    "test_no_completed_step_is_repeated",
    "test_nobody_else_can_answer",
    "test_nobody_elses_task_is_there",
    "test_pause",
    "test_the_commands_are_the_skills_of_the_view",
    "test_the_end_waits_for_who_was_away",
    "test_the_question_and_approval_by_iq",
    "test_the_same_request_after_a_broken_stream",
    "test_two_who_may_answer",
    "test_what_decides_nothing",
    "test_what_takes_longer_becomes_a_task",
    "test_which_one",
    "test_yes",
]

pytestmark = [pytest.mark.servers]


@pytest.fixture(scope="module")
def desk_server(ejabberd_server: Server) -> Server:
    """Where this module has its service."""
    return ejabberd_server
