"""The scenes of `xmpp-agent demo` about the protocol."""

from component.cli.demo_screen import came, sent, step
from component.tasks.rows import TERMINAL
from demo_server.visitor import Visitor
from xep.binding import Payload, encode
from xep.commands import Command
from xep.data_forms import Field, Form
from xep.disco import InfoQuery, ItemsQuery
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.execute import Accepted, Execute, Param
from xep.fluux_agent.skills import SkillsQuery
from xep.fluux_agent.task import Events, Task
from xep.stanza import Incoming


async def short_requests(juliet: Visitor, server: str, agent: str) -> None:
    """Show discovery, execution, and some errors."""
    step("Juliet", "asks the server for its services")
    await _get(juliet, server, ItemsQuery())
    step("Juliet", "asks the agent what it is")
    await _get(juliet, agent, InfoQuery())
    step("Juliet", "discovers the agent's skills")
    await _get(juliet, agent, SkillsQuery())
    step("Juliet", "executes a skill")
    await _set(juliet, agent, execute("echo", text="hello, agent"))
    step("Juliet", "executes another skill")
    await _set(juliet, agent, execute("time", zone="Europe/Paris"))
    step("Juliet", "omits a parameter and gets an error that names it")
    await _set(juliet, agent, execute("echo"))
    step(
        "Juliet",
        "asks for a skill that does not exist (a skill she may not use gets the same answer)",
    )
    await _set(juliet, agent, execute("launch-missiles"))
    step("Juliet", "sends the agent a chat message")
    await say(juliet, agent, "/help")  # the answer begins with the notice that this is a machine
    came(await juliet.hear(_is_chat))


async def a_task(juliet: Visitor, agent: str) -> None:
    """Show work that continues after its request, and a message for each of its changes."""
    step("Juliet", "starts a task and gets an event for each change")
    task = await _start_task(juliet, agent, Execute(skill="compose", mode="async", params=_TOPIC))
    await _show_events(juliet, task)
    step("Juliet", "asks for the events since a revision, as a client does that was offline")
    await _get(juliet, agent, Events(id=task, since=4))


async def a_confirmation(juliet: Visitor, agent: str) -> None:
    """Show a destructive skill: denied in words first, then approved by IQ."""
    wanted = Execute(skill="empty-folder", thread="tidy-up", params=_FOLDER)
    step(
        "Juliet",
        "starts a destructive skill and is asked to confirm it; every client shows the question",
    )
    task = await _start_task(juliet, agent, wanted)
    await _show_question(juliet, task)
    step("Juliet", "says no and why, with an ordinary chat client")
    await say(juliet, agent, "No, because Romeo still needs it.", "tidy-up")
    await _show_events(juliet, task)
    step("Juliet", "starts it again")
    task = await _start_task(juliet, agent, wanted)
    question = await _show_question(juliet, task)
    step("Juliet", "approves it by IQ; the digest proves that she approves what she was shown")
    await _set(juliet, agent, Decision(id=question.id, value="approve", hash=question.hash))
    await _show_events(juliet, task)


async def a_form(juliet: Visitor, agent: str) -> None:
    """Show a skill as an ad-hoc command, for clients that support forms and nothing else of the
    protocol.
    """
    node = "skill/trip-cost"
    step("Juliet", "runs a skill from her client's command menu, which shows a form")
    answer = await _set(juliet, agent, Command(node=node, action="execute"))
    session = answer.require(Command).sessionid
    for what, kilometres in (
        ("enters an invalid value and gets the form back with an error at the field", "far"),
        ("enters a valid value", "450"),
    ):
        step("Juliet", what)
        given = {"kilometres": kilometres, "by": "train", "people": "2"}
        fields = tuple([Field(var=var, values=(value,)) for var, value in given.items()])
        filled = Form(type="submit", fields=fields)
        await _set(juliet, agent, Command(node=node, sessionid=session, form=filled))


async def a_schedule(juliet: Visitor, agent: str) -> None:
    """Show work that starts by the clock: its result arrives as a message."""
    step("Juliet", "schedules a skill for every Monday")
    await say(juliet, agent, "/schedule add every monday at 9: run time zone=Europe/Paris")
    step("Juliet", "schedules one for in two seconds: its result arrives when it has run")
    await say(juliet, agent, '/schedule add in 2 seconds: run echo text="Time for tea!"')
    came(await juliet.hear(_is_tea))
    step("Juliet", "lists her schedules: the one that is left fires every Monday")
    await say(juliet, agent, "/schedule")


def _is_tea(stanza: Incoming) -> bool:
    return _is_chat(stanza) and stanza.text_of("body") == "Time for tea!"


async def a_stranger(mallory: Visitor, agent: str) -> None:
    """Show a sender that the policy refuses."""
    step("Mallory", "is not in allowed_jids, so every request is refused")
    await _get(mallory, agent, SkillsQuery())


_TOPIC = (Param(name="topic", text="the sea"),)
_FOLDER = (Param(name="folder", text="Archive"),)


def execute(skill: str, **params: str) -> Execute:
    """Return the request that executes a skill."""
    return Execute(
        skill=skill, params=tuple([Param(name=name, text=text) for name, text in params.items()])
    )


async def _get(who: Visitor, to: str, payload: Payload) -> Incoming:
    return await iq(who, "get", to, payload)


async def _set(who: Visitor, to: str, payload: Payload) -> Incoming:
    return await iq(who, "set", to, payload)


async def iq(who: Visitor, type_: str, to: str, payload: Payload) -> Incoming:
    """Send an IQ, and show it and its answer."""
    xml, answer = await who.iq(type_, to, encode(payload))
    sent(xml)
    came(answer)
    return answer


async def say(who: Visitor, to: str, body: str, thread: str | None = None) -> None:
    """Show a chat message, and the next chat message that arrives."""
    sent(await who.say(to, body, thread))
    came(await who.hear(_is_chat))


def _is_chat(stanza: Incoming) -> bool:
    return stanza.kind == "message" and stanza.type == "chat"


async def _start_task(who: Visitor, to: str, execute: Execute) -> str:
    """Return the id of the task that a request becomes."""
    return (await _set(who, to, execute)).require(Accepted).task


async def _show_events(who: Visitor, task: str) -> None:
    """Show the events of a task, up to its last."""
    state = None
    while state not in TERMINAL:
        event = await who.hear(lambda one: (_task_in(one) or Task(id="")).id == task)
        came(event)
        state = event.require(Task).state


async def _show_question(who: Visitor, task: str) -> Confirm:
    """Show the event of a question, and the question as any client shows it."""
    found = None
    while found is None:
        message = await who.hear(
            lambda one: (
                one.kind == "message"
                and ((_task_in(one) or Task(id="")).id == task or one.payload(Confirm) is not None)
            )
        )
        came(message)
        found = message.payload(Confirm)
    return found


def _task_in(stanza: Incoming) -> Task | None:
    return stanza.payload(Task) if stanza.kind == "message" else None
