"""The conversation that `xmpp-agent demo` shows: what a person and her client see, without XML.

Every result comes from a skill. What the language model says is shown and decides nothing, because
a very small one says anything.
"""

from typing import Final

from component.cli.demo_scenes import execution, greet, is_about, is_chat, is_tea
from component.cli.demo_screen import note, said, step
from component.tasks.rows import TERMINAL
from demo_server.visitor import Visitor
from xep.binding import Payload, encode
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Accepted, Execute, Param, Result
from xep.fluux_agent.skills import SkillsQuery
from xep.fluux_agent.task import Task
from xep.stanza import Incoming

_JULIET: Final = "Juliet"
_AGENT: Final = "Agent"
_SHOWN: Final = ("trip-cost", "empty-folder", "time")
"""The skills that are described; the others are counted."""


async def tour(juliet: Visitor, agent: str, *, talks: bool) -> None:
    """Show a chat, discovery, execution, a confirmation, and a reminder."""
    if talks:
        step(_JULIET, "says hello, and the language model answers")
        await greet(
            juliet,
            agent,
            lambda words, _: said(_JULIET, words),
            lambda stanza: said(_AGENT, _body(stanza)),
        )
    else:
        step(_JULIET, "writes to the agent for the first time")
        await _say(juliet, agent, "/ping")
        said(_AGENT, _body(await juliet.hear(is_chat)))
        said(_AGENT, _body(await juliet.hear(is_chat)))
    step(_JULIET, "lets her client look which skills the agent has")
    await _discover(juliet, agent)
    step(_JULIET, "runs a skill from the form that her client makes of its parameters")
    await _execute(juliet, agent)
    step(_JULIET, "runs a skill that deletes something: the agent asks her before")
    await _confirm(juliet, agent)
    step(_JULIET, "asks for a reminder, and is reminded after two seconds")
    await _remind(juliet, agent)


async def _discover(juliet: Visitor, agent: str) -> None:
    answer = await _iq(juliet, "get", agent, SkillsQuery())
    skills = {one.name: one for one in answer.require(SkillsQuery).skills}
    for name in _SHOWN:
        text = skills[name].descriptions[0].text.partition("\n")[0]
        said(_AGENT, f"{name} - {text}")
    note(f"and {len(skills) - len(_SHOWN)} others")


async def _execute(juliet: Visitor, agent: str) -> None:
    said(_JULIET, "trip-cost: kilometres 450, by train, people 2")
    request = execution("trip-cost", kilometres="450", by="train", people="2")
    said(_AGENT, _output((await _iq(juliet, "set", agent, request)).require(Result)))


async def _confirm(juliet: Visitor, agent: str) -> None:
    thread = "tidy-up"
    said(_JULIET, "empty-folder: folder Archive")
    folder = (Param(name="folder", text="Archive"),)
    request = Execute(skill="empty-folder", thread=thread, params=folder)
    task = (await _iq(juliet, "set", agent, request)).require(Accepted).task
    question = await juliet.hear(lambda one: one.payload(Confirm) is not None)
    said(_AGENT, _body(question))
    await _say(juliet, agent, "yes", thread)
    said(_AGENT, _body(await juliet.hear(is_chat)))
    while True:
        event = (await juliet.hear(lambda one: is_about(one, task))).require(Task)
        if event.state in TERMINAL:
            break
    assert event.result is not None, "it was approved"
    said(_AGENT, _output(event.result))


async def _remind(juliet: Visitor, agent: str) -> None:
    await _say(juliet, agent, '/schedule add in 2 seconds: run echo text="Time for tea!"')
    said(_AGENT, _body(await juliet.hear(is_chat)))
    said(_AGENT, _body(await juliet.hear(is_tea)))


async def _iq(who: Visitor, type_: str, to: str, payload: Payload) -> Incoming:
    return (await who.iq(type_, to, encode(payload)))[1]


async def _say(who: Visitor, to: str, words: str, thread: str | None = None) -> None:
    said(_JULIET, words)
    await who.say(to, words, thread)


def _body(stanza: Incoming) -> str:
    return stanza.text_of("body") or ""


def _output(result: Result) -> str:
    return "\n".join(output.text for output in result.outputs)
