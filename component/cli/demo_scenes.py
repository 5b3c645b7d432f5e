"""What `xmpp-agent demo` shows of the protocol, scene by scene."""

from component.cli.demo_screen import came, sent, step
from component.devserver.visitor import Visitor
from component.tasks.states import TERMINAL
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
    """Discovery, execution, and what is wrong with some of it."""
    step("Juliet", "looks at what the server has")
    await _get(juliet, server, ItemsQuery())
    step("Juliet", "asks what that component is")
    await _get(juliet, agent, InfoQuery())
    step("Juliet", "discovers its skills")
    await _get(juliet, agent, SkillsQuery())
    step("Juliet", "executes one")
    await _set(juliet, agent, _execute("echo", text="hello, agent"))
    step("Juliet", "executes another")
    await _set(juliet, agent, _execute("time", zone="Europe/Paris"))
    step("Juliet", "leaves a parameter out, and is told which")
    await _set(juliet, agent, _execute("echo"))
    step("Juliet", "asks for a skill that is not there, or not for her: nobody can tell which")
    await _set(juliet, agent, _execute("launch-missiles"))
    step("Juliet", "writes to it as a person would")
    await _say(juliet, agent, "/help")


async def a_task(juliet: Visitor, agent: str) -> None:
    """Work that outlives its request, and a message for each of its changes."""
    step("Juliet", "wants something done, does not wait for it, and is told of each change")
    task = await _begin(juliet, agent, Execute(skill="compose", mode="async", params=_TOPIC))
    await _told(juliet, task)
    step("Juliet", "asks what she has missed since a revision, as who was offline would")
    await _get(juliet, agent, Events(id=task, since=4))


async def a_confirmation(juliet: Visitor, agent: str) -> None:
    """A destructive skill: denied in words first, then allowed by IQ."""
    wanted = Execute(skill="empty-folder", thread="tidy-up", params=_FOLDER)
    step("Juliet", "wants something destructive, and is asked first: any client shows the words")
    task = await _begin(juliet, agent, wanted)
    await _asked(juliet, task)
    step("Juliet", "says no, and why, with a client that knows nothing of this")
    await _say(juliet, agent, "No, because Romeo still needs it.", "tidy-up")
    await _told(juliet, task)
    step("Juliet", "wants it again")
    task = await _begin(juliet, agent, wanted)
    question = await _asked(juliet, task)
    step("Juliet", "approves by IQ what she was shown, and only that: so says the digest")
    await _set(juliet, agent, Decision(id=question.id, value="approve", hash=question.hash))
    await _told(juliet, task)


async def a_form(juliet: Visitor, agent: str) -> None:
    """A skill as an ad-hoc command, for clients that know forms and nothing else of this."""
    node = "skill/trip-cost"
    step("Juliet", "runs a skill from a menu of her client: it begins with a form")
    answer = await _set(juliet, agent, Command(node=node, action="execute"))
    session = answer.require(Command).sessionid
    for what, kilometres in (
        ("fills it in wrong, and gets it back with the reason at the field", "far"),
        ("fills it in right", "450"),
    ):
        step("Juliet", what)
        given = {"kilometres": kilometres, "by": "train", "people": "2"}
        fields = tuple([Field(var=var, values=(value,)) for var, value in given.items()])
        filled = Form(type="submit", fields=fields)
        await _set(juliet, agent, Command(node=node, sessionid=session, form=filled))


async def a_stranger(mallory: Visitor, agent: str) -> None:
    """Somebody whom policy refuses."""
    step("Mallory", "is not in allowed_jids, and is refused whatever he asks")
    await _get(mallory, agent, SkillsQuery())


_TOPIC = (Param(name="topic", text="the sea"),)
_FOLDER = (Param(name="folder", text="Archive"),)


def _execute(skill: str, **params: str) -> Execute:
    return Execute(
        skill=skill, params=tuple([Param(name=name, text=text) for name, text in params.items()])
    )


async def _get(who: Visitor, to: str, payload: Payload) -> Incoming:
    return await _iq(who, "get", to, payload)


async def _set(who: Visitor, to: str, payload: Payload) -> Incoming:
    return await _iq(who, "set", to, payload)


async def _iq(who: Visitor, type_: str, to: str, payload: Payload) -> Incoming:
    xml, answer = await who.iq(type_, to, encode(payload))
    sent(xml)
    came(answer)
    return answer


async def _say(who: Visitor, to: str, body: str, thread: str | None = None) -> None:
    """A chat message, and the next that is chat, too."""
    sent(await who.say(to, body, thread))
    came(await who.hear(lambda one: one.kind == "message" and one.type == "chat"))


async def _begin(who: Visitor, to: str, execute: Execute) -> str:
    """The id of the task that a request becomes."""
    return (await _set(who, to, execute)).require(Accepted).task


async def _told(who: Visitor, task: str) -> None:
    """Show the events of a task, up to its last."""
    state = None
    while state not in TERMINAL:
        event = await who.hear(lambda one: (_task_in(one) or Task(id="")).id == task)
        came(event)
        state = event.require(Task).state


async def _asked(who: Visitor, task: str) -> Confirm:
    """Show the event of a question, and the question as any client has it."""
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
