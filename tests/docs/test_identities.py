"""The table of identities in the explanation of grants: each row is shown by tests."""

from typing import Final

import pytest

from tests.servers.guides import DOCS

FOLDERS: Final = [
    DOCS.parent / "tests" / "component" / name for name in ("features/peers", "policy")
]
SHOWN_BY: Final = {
    "which skills are seen and executed": (
        "test_a_peer_sees_and_uses_what_it_is_offered_and_nothing_else",
        "test_an_origin_restricts_only_if_the_lists_say_who_of_its_domain_may_use_what",
    ),
    "in whose name work is done (`origins`)": (
        "test_an_agent_speaks_for_people_of_its_own_domain_only",
        "test_an_account_that_publishes_keys_speaks_for_nobody",
    ),
    "the path": ("test_a_delegation_that_cannot_be_true_is_refused",),
    "a chain of grants": (
        "test_an_agent_cannot_give_more_than_it_has",
        "test_grants_for_one_person_are_of_no_use_for_another",
        "test_keys_are_those_at_the_address_of_the_first_agent",
    ),
    "what another agent was granted": ("test_an_agent_cannot_use_what_was_granted_to_another_one",),
    "a repeated request": ("test_the_same_request_with_other_grants_is_a_conflict",),
    "questions, results, events and cancelling": (
        "test_a_question_of_a_peer_reaches_the_person_and_her_answer_the_peer",
        "test_cancelling_reaches_every_agent",
    ),
    "a confirmation further on": (
        "test_an_agent_decides_about_delegated_work_by_iq_with_the_digest_only",
        "test_a_confirmation_passes_all_agents_up_to_the_person_with_its_digest",
    ),
    "a confirmation that counts twice": (
        "test_what_a_person_has_approved_here_is_not_asked_again_for_the_peer",
    ),
    "places and tasks at a time": ("test_one_person_behind_a_peer_does_not_shut_out_the_others",),
    "a budget": (
        "test_calls_that_begin_together_do_not_spend_the_same_rest",
        "test_a_budget_that_was_granted_twice_is_spent_once",
    ),
    "a receipt": (
        "test_each_agent_signs_what_it_has_done_and_what_others_have_done_for_it",
        "test_a_receipt_about_other_work_does_not_count",
    ),
    "revoking": (
        "test_a_revocation_cancels_the_call_at_all_agents",
        "test_a_grant_ends_as_soon_as_its_task_or_one_above_it_is_cancelled",
    ),
}


def rows() -> list[str]:
    """The first cells of the table."""
    page = (DOCS / "explanation" / "grants.md").read_text("utf-8")
    table = page.partition("| rule | compares |\n|---|---|\n")[2].partition("\n\n")[0]
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()]


def test_each_row_is_shown_by_tests() -> None:
    assert rows() == list(SHOWN_BY)


@pytest.mark.parametrize("test", [test for tests in SHOWN_BY.values() for test in tests])
def test_the_tests_exist(test: str) -> None:
    files = [path for folder in FOLDERS for path in folder.glob("test_*.py")]
    assert any(f"def {test}(" in path.read_text("utf-8") for path in files)
