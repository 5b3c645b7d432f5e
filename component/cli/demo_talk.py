"""What `xmpp-agent demo` shows of the language model: somebody talks with the agent."""

from typing import Final

import anyio

from component.cli.demo_screen import came, note, sent, step, waiting
from component.devserver.visitor import Visitor
from xep.fluux_agent.confirm import Action, Confirm
from xep.stanza import Incoming

_PATIENCE_S: Final = 300.0
"""Seconds for one answer: on two busy cores the small model takes a minute rather than seconds."""

_FOLDER: Final = "Archive"
_WISHES: Final = (
    ("asks for something destructive, in her own words", "Please empty the folder Archive."),
    ("asks again, in other words", "Use empty-folder for the folder Archive."),
    ("asks once more", "empty-folder Archive"),
)


async def talk(juliet: Visitor, agent: str) -> None:
    """A question, a skill that the model uses, one that is asked about first, and what it took."""
    try:
        await _plain(juliet, agent)
        await _a_skill(juliet, agent)
        await _a_destructive_skill(juliet, agent)
    except TimeoutError:
        note("the model takes too long on this machine; the rest of the conversation is left out")
    step("Juliet", "asks what that took, and the model is not asked: commands answer at once")
    await _say(juliet, agent, "/usage")
    step("Juliet", "asks how the agent is")
    await _say(juliet, agent, "/status")


async def _plain(juliet: Visitor, agent: str) -> None:
    step("Juliet", "greets the agent, and its language model answers")
    await _ask(juliet, agent, "Hello!")
    step("Juliet", "asks it something")
    await _ask(juliet, agent, "What is the capital of France?")


async def _a_skill(juliet: Visitor, agent: str) -> None:
    step("Juliet", "asks what the model cannot know, so it uses a skill that is harmless")
    await _ask(juliet, agent, "What time is it in Europe/Paris?")


async def _a_destructive_skill(juliet: Visitor, agent: str) -> None:
    """Until the model wants what was asked for: it is a very small one."""
    for how, words in _WISHES:
        step("Juliet", how)
        heard = await _ask(juliet, agent, words)
        question = heard.payload(Confirm)
        if question is None:
            continue
        if _meant(question.action):
            step("Juliet", "was asked first, since nothing destructive runs on a model's word")
            await _decide(juliet, agent, "yes", question)
            return
        step("Juliet", "was asked about something that she did not mean")
        await _decide(juliet, agent, f"no, I meant the folder {_FOLDER}", question)
    note("this model has not done it, as happens with very small ones; nothing was emptied")


def _meant(action: Action) -> bool:
    return action.type == "empty-folder" and any(
        (param.name, param.text) == ("folder", _FOLDER) for param in action.params
    )


async def _ask(juliet: Visitor, agent: str, words: str) -> Incoming:
    """Say something; show and return what the model makes of it: an answer, or a question."""
    sent(await juliet.say(agent, words))
    return await _answer(juliet)


async def _decide(juliet: Visitor, agent: str, words: str, question: Confirm) -> None:
    """Answer a question; show what comes at once, and what the model then says."""
    sent(await juliet.say(agent, words, question.task))
    came(await juliet.hear(_is_said))
    await _answer(juliet)


async def _answer(juliet: Visitor) -> Incoming:
    with anyio.fail_after(_PATIENCE_S):
        async with waiting("the model reads and writes"):
            heard = await juliet.hear(_is_said)
    came(heard)
    return heard


async def _say(juliet: Visitor, agent: str, command: str) -> None:
    sent(await juliet.say(agent, command))
    came(await juliet.hear(_is_said))


def _is_said(stanza: Incoming) -> bool:
    """Whether there are words in it, not only news of a task or that somebody is writing."""
    return stanza.kind == "message" and stanza.type == "chat" and stanza.text_of("body") is not None
