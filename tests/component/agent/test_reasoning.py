"""A model that reasons: its reasoning is not a part of the conversation, whatever its contents."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from component.agent import prompt, sentences
from component.config.llm import ModelChoice
from component.conversations.lines import Said
from component.memory_directory.layout import SessionKey
from component.models.catalog import resolve
from component.models.hosted import HostedModel
from tests.component.agent.world import World, message
from tests.component.models import wire
from tests.component.models.endpoint import (
    Answer,
    Chunks,
    Endpoint,
    Events,
    Refuse,
    Request,
    Text,
    serving,
)
from xep.jid import JID

pytestmark = pytest.mark.anyio
ROMEO = JID("romeo", "example.org", None)


def said(text: str, finish: str = "stop", **more: str) -> Chunks:
    delta = {"content": text, **more}
    return Chunks([{"choices": [{"delta": delta, "finish_reason": finish}]}])


async def answered(tmp_path: Path, *answers: Answer) -> tuple[list[str], list[str], Endpoint]:
    """The replies to the person, the texts of the agent in the session, and the endpoint."""
    async with serving() as endpoint:
        endpoint.answers(*answers)
        choice = ModelChoice(provider="vllm", model="m", base_url=endpoint.url)
        model = HostedModel(resolve(choice, "llm"))
        world = World(tmp_path)
        world.model_of = lambda _profile: model  # type: ignore[assignment,method-assign]
        async with world.life():
            await world.conversations.received(message("m1", "Time?", who=ROMEO))
            await world.ear.hears(1, within_s=60)
            bodies = list(world.ear.bodies)
        found = await world.sessions.read(SessionKey("assistant", ROMEO), tokens=10**9)
        lines = [line for line in found.lines if isinstance(line, Said)]
        await model.aclose()
        return bodies, [line.content for line in lines if line.role == "assistant"], endpoint


@pytest.mark.parametrize(
    "answer",
    [
        said("<think>[[silent]] [[delay:1h]] Hm.</think>\nNoon."),
        said("[[silent]] [[delay:1h]] Hm.</think>\nNoon."),
        said("Noon.", reasoning_content="[[silent]] [[delay:1h]] Hm."),
    ],
)
async def test_directives_in_reasoning_have_no_effect(tmp_path: Path, answer: Answer) -> None:
    bodies, stored, _ = await answered(tmp_path, answer)
    assert bodies == stored == ["Noon."]


async def test_after_reasoning_that_uses_up_the_length_the_model_is_asked_again(
    tmp_path: Path,
) -> None:
    bodies, _, endpoint = await answered(tmp_path, said("<think>Hm", "length"), Text("Noon."))
    assert bodies == ["Noon."]
    assert prompt.REASONED in endpoint.requests[1].messages[-1]["content"]


async def test_after_a_second_answer_with_only_reasoning_the_person_gets_a_message(
    tmp_path: Path,
) -> None:
    bodies, _, endpoint = await answered(tmp_path, *[said("<think>Hm", "length")] * 2)
    assert bodies == [sentences.REASONED]
    assert len(endpoint.requests) == 2


async def test_the_refusal_of_a_content_filter_is_reported(tmp_path: Path) -> None:
    refusal = Chunks([{"error": {"code": "content_filter", "message": "Filtered."}}])
    bodies, _, _ = await answered(tmp_path, refusal)
    assert bodies == [sentences.FILTERED]


async def test_reasoning_that_a_provider_refuses_stays_out_of_the_conversation(
    tmp_path: Path,
) -> None:
    sealed = {"type": "thinking", "thinking": "Hm.", "signature": "SEALED"}

    def answer(request: Request) -> Answer:
        if "SEALED" in str(request.body):
            return Refuse(400, "messages.1.content.0: Invalid `signature` in `thinking` block")
        spoken = wire.Spoken([sealed, f"Answer {len(request.messages)}."])
        return Events(list(wire.message_events(spoken, "m")))

    async with serving() as endpoint:
        endpoint.otherwise = answer
        choice = ModelChoice(
            provider="anthropic", model="m", base_url=endpoint.url, api_key=SecretStr("sk-1")
        )
        model = HostedModel(resolve(choice, "llm"))
        for start in range(2):  # the second life reads the conversation from the disk
            world = World(tmp_path)
            world.model_of = lambda _profile: model  # type: ignore[assignment,method-assign]
            async with world.life():
                for number in (2 * start, 2 * start + 1):
                    await world.conversations.received(message(f"m{number}", "?", who=ROMEO))
                    await world.ear.hears(number - 2 * start + 1, within_s=60)
        await model.aclose()
        refused = ["SEALED" in str(request.body) for request in endpoint.requests]
        assert refused == [False, True, False, False, False]
