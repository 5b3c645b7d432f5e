"""The scene of `xmpp-agent demo` about the language model: a person talks with the agent."""

from typing import Final

import anyio

from component.cli.demo_screen import came, note, sent, step, waiting
from demo_server.visitor import Visitor
from xep.fluux_agent.confirm import Action, Confirm
from xep.stanza import Incoming

_PATIENCE_S: Final = 300.0
"""Seconds for one answer: on two busy cores the small model takes a minute rather than seconds."""

_FOLDER: Final = "Archive"
_WISHES: Final = (
    ("asks for something destructive in her own words", "Please empty the folder Archive."),
    ("asks again, in other words", "Use empty-folder for the folder Archive."),
    ("asks once more", "empty-folder Archive"),
)


async def talk(juliet: Visitor, agent: str) -> None:
    """Show a question, a skill that the model uses, one that needs a confirmation, and
    the usage.
    """
    try:
        await _plain(juliet, agent)
        await _a_skill(juliet, agent)
        await _a_destructive_skill(juliet, agent)
    except TimeoutError:
        note("the model is too slow on this machine; the rest of the conversation is skipped")
    step("Juliet", "asks what that has cost; commands do not use the model")
    await _say(juliet, agent, "/usage")
    step("Juliet", "asks for the state of the agent")
    await _say(juliet, agent, "/status")


async def _plain(juliet: Visitor, agent: str) -> None:
    step("Juliet", "greets the agent, and the language model answers")
    await _ask(juliet, agent, "Hello!")
    step("Juliet", "asks a question")
    await _ask(juliet, agent, "What is the capital of France?")


async def _a_skill(juliet: Visitor, agent: str) -> None:
    step("Juliet", "asks something that the model cannot know, so it uses a harmless skill")
    await _ask(juliet, agent, "What time is it in Europe/Paris?")


async def _a_destructive_skill(juliet: Visitor, agent: str) -> None:
    """Ask until the model calls the requested skill: it is a very small model."""
    for how, words in _WISHES:
        step("Juliet", how)
        heard = await _ask(juliet, agent, words)
        question = heard.payload(Confirm)
        if question is None:
            continue
        if _meant(question.action):
            step("Juliet", "has to confirm it: a model alone cannot start a destructive skill")
            await _decide(juliet, agent, "yes", question)
            return
        step("Juliet", "is asked to confirm something that she did not mean")
        await _decide(juliet, agent, f"no, I meant the folder {_FOLDER}", question)
    note("the model did not use the skill, as happens with very small models; nothing was emptied")


def _meant(action: Action) -> bool:
    return action.type == "empty-folder" and any(
        (param.name, param.text) == ("folder", _FOLDER) for param in action.params
    )


async def _ask(juliet: Visitor, agent: str, words: str) -> Incoming:
    """Send a message; show and return the model's reply: an answer, or a question."""
    sent(await juliet.say(agent, words))
    return await _answer(juliet)


async def _decide(juliet: Visitor, agent: str, words: str, question: Confirm) -> None:
    """Answer a question; show the immediate reply, and what the model says after it."""
    sent(await juliet.say(agent, words, question.task))
    came(await juliet.hear(_is_said))
    await _answer(juliet)


async def _answer(juliet: Visitor) -> Incoming:
    with anyio.fail_after(_PATIENCE_S):
        async with waiting("the model is thinking"):
            heard = await juliet.hear(_is_said)
    came(heard)
    return heard


async def _say(juliet: Visitor, agent: str, command: str) -> None:
    sent(await juliet.say(agent, command))
    came(await juliet.hear(_is_said))


def _is_said(stanza: Incoming) -> bool:
    """Return whether a stanza has words, and is not only a task event or a chat state."""
    return stanza.kind == "message" and stanza.type == "chat" and stanza.text_of("body") is not None
