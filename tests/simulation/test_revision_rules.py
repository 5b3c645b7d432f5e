"""The rules about corrections and retractions find what breaks them; see `test_rules`."""

from tests.simulation.areas.revision_rules import OneAnswer, Revised, RevisedReplies
from tests.simulation.history import Effect, Fault, Prompt, Stanza
from tests.simulation.test_rules import ROMEO, asks, found, hears, received, says, sent

FIRST = says(5000, ROMEO, "c1.v0 note, please.", "romeo-c1")
RECEIPT = "<received xmlns='urn:xmpp:receipts' id='romeo-c1-revision-1'/>"
TAKEN = received(5010, ROMEO, f"<message id='r'>{RECEIPT}</message>")
LATE = hears(5010, ROMEO, "Your correction came too late: I have already acted.")


def revises(payload: str, text: str = "c1.v1 talk, please.") -> Stanza:
    return sent(
        5010,
        ROMEO,
        f"<message id='romeo-c1-revision-1'><body>{text}</body>{payload}</message>",
    )


CORRECTS = revises("<replace xmlns='urn:xmpp:message-correct:0' id='romeo-c1'/>")
RETRACTS = revises("<retract xmlns='urn:xmpp:message-retract:1' id='romeo-c1'/>")


def test_an_earlier_text_that_is_carried_out_is_found() -> None:
    noted = Effect(5011, "c1.v0", "noted", "k")
    assert found(Revised, FIRST, noted, CORRECTS, TAKEN, LATE) == ""
    assert found(Revised, FIRST, CORRECTS, TAKEN, LATE, noted) == ""
    assert found(Revised, FIRST, CORRECTS, noted, Fault(5012, "kill")) == ""
    assert found(Revised, FIRST, CORRECTS, TAKEN, Effect(5011, "c1.v1", "noted", "k")) == ""
    for revision in (CORRECTS, RETRACTS):
        assert "1.000 s later it was done: noted" in found(Revised, FIRST, revision, TAKEN, noted)
        assert found(Revised, FIRST, revision, Fault(5010, "kill"), TAKEN, noted) == ""


def test_an_earlier_text_that_is_shown_asked_about_or_answered_is_found() -> None:
    revised = FIRST, RETRACTS, TAKEN
    assert found(Revised, *revised, Prompt(6000, "My secret is secret-romeo-1-1.")) == ""
    shown = Prompt(6000, "My secret is secret-romeo-1-0.")
    assert "was shown to a model" in found(Revised, *revised, shown)
    answered = hears(6000, ROMEO, "re m1, c1.v0: indeed")
    assert "was answered" in found(Revised, *revised, answered)
    question = asks(6000, ROMEO)
    about = Stanza(6000, ROMEO, "received", question.xml.replace("x1", "c1.v0"))
    assert "was asked about" in found(Revised, *revised, about)
    again = Stanza(4000, ROMEO, "received", about.xml)
    assert found(Revised, again, *revised, about) == ""


def test_a_message_that_is_not_answered_in_any_version_is_found() -> None:
    assert "nobody has answered" in found(RevisedReplies, FIRST)
    assert "nobody has answered" in found(RevisedReplies, FIRST, CORRECTS, TAKEN, LATE)
    assert found(RevisedReplies, FIRST, CORRECTS, hears(5011, ROMEO, "re c1.v1: indeed")) == ""
    assert found(RevisedReplies, FIRST, RETRACTS, TAKEN) == ""
    assert "'c1.p0'" in found(RevisedReplies, says(5000, ROMEO, "c1.p0 talk"), RETRACTS)


def test_a_message_that_is_answered_in_two_versions_is_found() -> None:
    first = hears(5000, ROMEO, "re c1.v0: indeed", "one")
    assert found(OneAnswer, first, first) == ""
    second = hears(5020, ROMEO, "re c1.p0, c1.v1: indeed", "two")
    assert "c1.v1, which replaces it, too" in found(OneAnswer, first, second)
