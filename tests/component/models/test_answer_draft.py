"""An answer that arrives in pieces: whether it has begun, and whether it is complete."""

from collections.abc import Callable

import pytest

from component.models.answer_draft import AnswerDraft


@pytest.mark.parametrize(
    "produce",
    [
        lambda draft: draft.opaque(b"{}"),
        lambda draft: draft.reasoning("Hm."),
    ],
)
def test_parts_that_people_do_not_see_begin_an_answer(
    produce: Callable[[AnswerDraft], None],
) -> None:
    draft = AnswerDraft(None)
    assert not draft.began
    produce(draft)
    assert draft.began


def test_an_answer_is_finished_once_the_provider_says_that_the_model_stopped() -> None:
    draft = AnswerDraft(None)
    assert not draft.finished
    draft.finish(None, calls_whole=True)
    assert draft.finished


def test_a_piece_of_an_unknown_call_makes_an_answer_incoherent() -> None:
    draft = AnswerDraft(None)
    draft.call("1", "look").pieces.append("{}")
    assert not draft.incoherent
    draft.lost = True
    assert draft.incoherent
    nameless = AnswerDraft(None)
    nameless.call("1", "").pieces.append("{}")
    assert nameless.incoherent
