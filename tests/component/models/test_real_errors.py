"""The errors of `real_errors`, sent by a server on a socket in the dialect of the provider."""

import json

import pytest

from component.agent import sentences
from component.agent.engine import excuse_for
from component.agent.protocol import Profile
from component.agent.requests import MessageStarter
from component.agent.run import TurnInput
from component.memory_directory.layout import SessionKey
from component.models.building import Fallback
from component.models.faults import read_fault, text_wait_s
from component.models.protocol import (
    Completion,
    ContentFilteredError,
    ContextOverflowError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
)
from tests.component.models.asking import Make, Slept, asking
from tests.component.models.endpoint import Answer, Chunks, Endpoint, Events, Refuse, Text
from tests.component.models.real_errors import CASES, HEARS, Case
from tests.component.models.scripted import Scripted
from xep.jid import JID

pytestmark = pytest.mark.anyio

CLASSES: dict[str, type[ModelError]] = {
    "TOO_LONG": ContextOverflowError,
    "FILTERED": ContentFilteredError,
    "REFUSED": ModelRefusedError,
    "NO_MODEL": ModelUnavailableError,
}

ASK = TurnInput(
    id="turn",
    key=SessionKey("assistant", JID("juliet", "example.com")),
    profile=Profile(agent="assistant"),
    messages=(),
    starter=MessageStarter(sender=JID("juliet", "example.com")),
)


def answer(case: Case) -> Answer:
    if case.status:
        return Refuse(case.status, body=case.body, headers=case.headers)
    if case.api == "chat":
        return Chunks([case.body])
    return Events([case.body])


def test_there_are_eighty_errors_of_twelve_providers() -> None:
    assert len(CASES) >= 80
    assert len({case.provider for case in CASES}) >= 12


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_real_error_is_read_as_its_kind(case: Case) -> None:
    status = 0 if case.status == 200 else case.status
    body = case.body
    if isinstance(body, dict) and body.get("type") == "response.failed":
        body = body["response"]
    said = body if isinstance(body, str) else json.dumps(body)
    assert read_fault(status, said.encode()).kind == case.kind


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_what_is_done_after_a_real_error_and_what_the_person_hears(
    endpoint: Endpoint, make: Make, slept: Slept, case: Case
) -> None:
    endpoint.answers(answer(case), Text("Noon."))
    model = make(dialect=case.api, retries=1)
    if case.again_s is not None:
        assert (await model.complete(asking())).text == "Noon."
        assert slept.pauses == [pytest.approx(case.again_s)]
        endpoint.answers(answer(case))
        model = make(dialect=case.api, retries=0)
    with pytest.raises(ModelError) as error:
        await model.complete(asking())
    assert type(error.value) is CLASSES[HEARS[case.kind]]
    assert excuse_for(error.value, ASK) == getattr(sentences, HEARS[case.kind])
    if case.left_s is not None:
        assert isinstance(error.value, ModelUnavailableError)
        assert error.value.retry_after_s == case.left_s
    assert len(endpoint.requests) == (3 if case.again_s is not None else 1)


@pytest.mark.parametrize("kind", ["rate_limit", "unpaid", "bad_call", "key", "filtered"])
async def test_another_model_answers_after_an_error_of_each_kind(
    endpoint: Endpoint, make: Make, kind: str
) -> None:
    for case in (case for case in CASES if case.kind == kind):
        endpoint.answers(answer(case))
        other = Scripted(Completion.of("Noon."), name="other")
        chain = Fallback([make(dialect=case.api, retries=0), other])
        assert (await chain.complete(asking())).text == "Noon."


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 1h2m3.5s.", 3723.5),
        ("try again in 120ms", 0.12),
        ("Please retry after 20 seconds.", 20),
        ("please try again after 1 minute", 60),
        ("try again in 3 days", 86_400),
        ("try again in a while, 20 seconds or so", None),
        ("I retry in vain 5s", None),
        ("", None),
    ],
)
def test_the_wait_in_the_text_of_an_error_is_read(text: str, seconds: float | None) -> None:
    assert text_wait_s(text) == seconds
