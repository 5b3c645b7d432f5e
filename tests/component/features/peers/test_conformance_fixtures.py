"""The skills with which the conformance kit sees how this service delegates work."""

from pathlib import Path
from typing import Any

import pytest

from component.task_messages.sentences import preferred
from tests.component.features.peers.scripted import ScriptedAgent
from tests.component.features.peers.test_calls import ended, text_of
from tests.component.features.peers.test_incoming import (
    ROMEO,
    SETTINGS,
    ask,
    bot_of,
    condition,
    execute,
    path,
)
from tests.kit import AGENT, Kit, anyio_backend, service
from xep.binding import encode
from xep.disco import InfoQuery
from xep.fluux_agent.execute import Output, Result
from xep.fluux_agent.task import Question

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

OFFERED: dict[str, Any] = {
    **SETTINGS,
    "conformance": {"enabled": True},
    "peer": [
        {"name": "kit", "jid": "agent.montague.example", "offers": ["conformance.*"]},
        {"name": "other", "jid": "bot@agent.other.example", "skills": ["echo"]},
    ],
}


def scripted(kit: Kit) -> ScriptedAgent:
    """The agent to which work is delegated."""
    other = ScriptedAgent(kit, "agent.other.example", ())
    other.results["echo"] = Result(skill="echo", outputs=(Output(name="output", text="x"),))
    return other


async def test_work_is_delegated_to_the_peer_at_an_address(tmp_path: Path) -> None:
    async with service(tmp_path, OFFERED) as kit:
        other = scripted(kit)
        bot = bot_of(kit)
        params = {"peer": "bot@agent.other.example", "text": "x"}
        await ask(bot, execute("conformance.delegate", path(), **params))
        assert text_of((await ended(bot)).result) == "x"
        (sent,) = other.executed
        assert sent.skill == "echo"
        assert sent.delegation is not None
        assert [str(each) for each in sent.delegation.via] == [
            "assistant@agent.montague.example",
            f"assistant@{AGENT}",
        ]
        assert sent.delegation.origin == ROMEO


@pytest.mark.parametrize("address", ["nobody@agent.other.example", "@@"])
async def test_work_is_delegated_to_peers_only(tmp_path: Path, address: str) -> None:
    async with service(tmp_path, OFFERED) as kit:
        answer = await ask(
            bot_of(kit), execute("conformance.delegate", path(), peer=address, text="x")
        )
        result = answer.require(Result)
        assert result.is_error
        assert address in text_of(result)


async def test_tokens_are_spent_until_the_budget_is(tmp_path: Path) -> None:
    async with service(tmp_path, OFFERED) as kit:
        bot = bot_of(kit)
        poor = path(budget_tokens=10)
        answer = await ask(bot, execute("conformance.spend", poor, tokens="11"))
        assert condition(answer) == "budget-exhausted"
        answer = await ask(bot, execute("conformance.spend", poor, tokens="10"))
        usage = answer.require(Result).usage
        assert usage is not None
        assert usage.tokens_in == 10


async def test_agents_with_peers_say_how_long_a_path_may_be(tmp_path: Path) -> None:
    for number, (peers, expected) in enumerate(((OFFERED["peer"], ("16",)), ([], None))):
        async with service(tmp_path / str(number), {**OFFERED, "peer": peers}) as kit:
            juliet = kit.peer("juliet@capulet.example/balcony")
            info = (await juliet.iq("get", encode(InfoQuery()))).require(InfoQuery)
            fields = {one.var: one.values for form in info.forms for one in form.fields}
            assert fields.get("max_hops") == expected


def test_a_question_of_a_peer_is_shown_in_the_language_of_the_request() -> None:
    english, german = Question(text="Which?", lang="en"), Question(text="Welche?", lang="de")
    questions = (english, german)
    assert preferred(questions, "de") == german
    assert preferred(questions, "tlh") == preferred(questions, "") == english
