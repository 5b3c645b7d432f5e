"""The scenes of `xmpp-agent demo --xml`: each stanza that is sent and received."""

from collections.abc import Callable
from typing import Final

import anyio

from component.cli.demo_screen import came, note, sent, spinner, step
from component.tasks.rows import TERMINAL
from demo_server.visitor import Visitor
from xep.atom import Entry
from xep.binding import Payload, encode, keep
from xep.commands import Command
from xep.data_forms import Field, Form, field, form_type_field
from xep.disco import InfoQuery, ItemsQuery
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.execute import Accepted, Execute, Param
from xep.fluux_agent.memory import NAMESPACE, Content, Memory
from xep.fluux_agent.skills import SkillsQuery
from xep.fluux_agent.task import Events, Task
from xep.pubsub import NODE_CONFIG, Configure, Create, Item, Items, Publish, Pubsub, Retract
from xep.stanza import Incoming


async def short_requests(juliet: Visitor, server: str, agent: str) -> None:
    """Show discovery, execution, and some errors."""
    step("Juliet", "asks the server for its services")
    await iq(juliet, "get", server, ItemsQuery())
    step("Juliet", "asks the agent what it is")
    await iq(juliet, "get", agent, InfoQuery())
    step("Juliet", "discovers the agent's skills")
    await iq(juliet, "get", agent, SkillsQuery())
    step("Juliet", "executes a skill")
    await iq(juliet, "set", agent, execution("echo", text="hello, agent"))
    step("Juliet", "executes another skill")
    await iq(juliet, "set", agent, execution("time", zone="Europe/Paris"))
    step("Juliet", "omits a parameter and gets an error that names it")
    await iq(juliet, "set", agent, execution("echo"))
    step(
        "Juliet",
        "asks for a skill that does not exist (a skill she may not use gets the same answer)",
    )
    await iq(juliet, "set", agent, execution("launch-missiles"))
    step("Juliet", "sends the agent a chat message")
    await chat(juliet, agent, "/help")  # the answer begins with the notice that this is a machine
    came(await juliet.hear(is_chat))


async def a_task(juliet: Visitor, agent: str) -> None:
    """Show work that continues after its request, and a message for each of its changes."""
    step("Juliet", "starts a task and gets an event for each change")
    task = await _start_task(juliet, agent, Execute(skill="compose", mode="async", params=_TOPIC))
    await _show_events(juliet, task)
    step("Juliet", "asks for the events since a revision, as a client does that was offline")
    await iq(juliet, "get", agent, Events(id=task, since=4))


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
    await chat(juliet, agent, "No, because Romeo still needs it.", "tidy-up")
    await _show_events(juliet, task)
    step("Juliet", "starts it again")
    task = await _start_task(juliet, agent, wanted)
    question = await _show_question(juliet, task)
    step("Juliet", "approves it by IQ; the digest proves that she approves what she was shown")
    await iq(juliet, "set", agent, Decision(id=question.id, value="approve", hash=question.hash))
    await _show_events(juliet, task)


async def a_form(juliet: Visitor, agent: str) -> None:
    """Show a skill as an ad-hoc command, for clients that support forms and nothing else of the
    protocol.
    """
    node = "skill/trip-cost"
    step("Juliet", "runs a skill from her client's command menu, which shows a form")
    answer = await iq(juliet, "set", agent, Command(node=node, action="execute"))
    session = answer.require(Command).sessionid
    for what, kilometres in (
        ("enters an invalid value and gets the form back with an error at the field", "far"),
        ("enters a valid value", "450"),
    ):
        step("Juliet", what)
        given = {"kilometres": kilometres, "by": "train", "people": "2"}
        fields = tuple([Field(var=var, values=(value,)) for var, value in given.items()])
        filled = Form(type="submit", fields=fields)
        await iq(juliet, "set", agent, Command(node=node, sessionid=session, form=filled))


async def a_schedule(juliet: Visitor, agent: str) -> None:
    """Show work that starts by the clock: its result arrives as a message."""
    step("Juliet", "schedules a skill for every Monday")
    await chat(juliet, agent, "/schedule add every monday at 9: run time zone=Europe/Paris")
    step("Juliet", "schedules one for in two seconds: its result arrives when it has run")
    await chat(juliet, agent, '/schedule add in 2 seconds: run echo text="Time for tea!"')
    came(await juliet.hear(is_tea))
    step("Juliet", "lists her schedules: the one that is left fires every Monday")
    await chat(juliet, agent, "/schedule")


def is_tea(stanza: Incoming) -> bool:
    """Return whether it is the result of the schedule that fires."""
    return is_chat(stanza) and stanza.text_of("body") == "Time for tea!"


async def a_stranger(mallory: Visitor, agent: str) -> None:
    """Show a sender that the policy refuses."""
    step("Mallory", "is not in allowed_jids, so every request is refused")
    await iq(mallory, "get", agent, SkillsQuery())


_TOPIC = (Param(name="topic", text="the sea"),)
_ARCHIVE = "Archive"
_FOLDER = (Param(name="folder", text=_ARCHIVE),)


def execution(skill: str, **params: str) -> Execute:
    """Return the request that executes a skill."""
    return Execute(
        skill=skill, params=tuple([Param(name=name, text=text) for name, text in params.items()])
    )


async def iq(who: Visitor, type_: str, to: str, payload: Payload) -> Incoming:
    """Send an IQ, and show it and its answer."""
    xml, answer = await who.iq(type_, to, encode(payload))
    sent(xml)
    came(answer)
    return answer


async def chat(who: Visitor, to: str, body: str, thread: str | None = None) -> None:
    """Show a chat message, and the next chat message that arrives."""
    sent(await who.say(to, body, thread))
    came(await who.hear(is_chat))


def is_chat(stanza: Incoming) -> bool:
    """Return whether it is a chat message."""
    return stanza.kind == "message" and stanza.type == "chat"


async def _start_task(who: Visitor, to: str, execute: Execute) -> str:
    return (await iq(who, "set", to, execute)).require(Accepted).task


async def _show_events(who: Visitor, task: str) -> None:
    state = None
    while state not in TERMINAL:
        event = await who.hear(lambda one: is_about(one, task))
        came(event)
        state = event.require(Task).state


async def _show_question(who: Visitor, task: str) -> Confirm:
    """Show the event of a question, and the question as any client shows it."""
    found = None
    while found is None:
        message = await who.hear(
            lambda one: (
                one.kind == "message" and (is_about(one, task) or one.payload(Confirm) is not None)
            )
        )
        came(message)
        found = message.payload(Confirm)
    return found


def is_about(stanza: Incoming, task: str) -> bool:
    """Return whether it is a message about a task."""
    event = stanza.payload(Task) if stanza.kind == "message" else None
    return event is not None and event.id == task


NODE = "news"
"""The node that the demo's agent watches."""


async def a_watch(juliet: Visitor, nurse: Visitor, service: str) -> None:
    """Show a node of the agent's own PubSub service, an item, and the reaction of the watch."""
    step("Nurse", "creates a PubSub node, as an admin may; the agent watches it for Juliet")
    fields = (form_type_field(NODE_CONFIG), field("pubsub#access_model", "open"))
    form = Form(type="submit", fields=fields)
    create = Pubsub(create=Create(node=NODE), configure=Configure(form=form))
    await iq(nurse, "set", service, create)
    step("Juliet", "asks what is watched")
    sent(await juliet.say(service, "/watch"))
    came(await juliet.hear(is_chat))
    step("Nurse", "publishes an item, which starts work; the agent tells Juliet the result")
    item = Item(id="1", payloads=(keep(Entry(title="the tide")),))
    await iq(nurse, "set", service, Pubsub(publish=Publish(node=NODE, items=(item,))))
    came(await juliet.hear(is_chat))


_KEY: Final = "favourite_tea"


async def a_memory(juliet: Visitor, agent: str, address: str) -> None:
    """Show that a memory is an item of a node that the person owns; `address` is that of the
    person.
    """
    node = f"{NAMESPACE}/{address}"
    step("Juliet", "has the agent remember something")
    text = "Juliet likes green tea."
    await iq(juliet, "set", agent, execution("memory_store", key=_KEY, body=text))
    step("Juliet", "finds it on a PubSub node that she owns, with any client for XEP-0060")
    await iq(juliet, "get", agent, Pubsub(items=Items(node=node)))
    step("Juliet", "corrects it")
    memory = Memory(key=_KEY, version=2, contents=(Content(text="Juliet likes coffee."),))
    item = Item(id=_KEY, payloads=(keep(memory),))
    await iq(juliet, "set", agent, Pubsub(publish=Publish(node=node, items=(item,))))
    step("Juliet", "asks in the chat: the agent uses her text at once")
    await chat(juliet, agent, "/memory")
    step("Juliet", "deletes it")
    gone = Retract(node=node, items=(Item(id=_KEY),))
    await iq(juliet, "set", agent, Pubsub(retract=gone))
    step("Juliet", "asks again: the agent knows nothing of it any more")
    await chat(juliet, agent, "/memory")


async def talk(juliet: Visitor, agent: str) -> None:
    """Show a message that a language model answers, and what that has cost."""
    step("Juliet", "greets the agent, and the language model answers")
    await greet(juliet, agent, lambda _, xml: sent(xml), came)
    for what, command in (
        ("asks what that has cost; commands do not use the model", "/usage"),
        ("asks for the state of the agent", "/status"),
    ):
        step("Juliet", what)
        await chat(juliet, agent, command)


_MODEL_S: Final = 300.0
"""Seconds for one answer: on two busy cores the small model takes a minute rather than seconds."""
NOTICE: Final = "I am Demo agent, an automated agent"
"""How the agent's first message begins, which is not an answer."""


async def greet(
    juliet: Visitor,
    agent: str,
    show_sent: Callable[[str, str], None],
    show_came: Callable[[Incoming], None],
) -> None:
    """Greet the agent, and show what it says; `show_sent` gets the words and their XML.

    If the model wants to use a skill that needs a confirmation, which nobody asked it to do, Juliet
    denies that.
    """
    show_sent("Hello!", await juliet.say(agent, "Hello!"))
    try:
        with anyio.fail_after(_MODEL_S):
            while True:
                async with spinner("the model is thinking"):
                    heard = await juliet.hear(is_said)
                show_came(heard)
                question = heard.payload(Confirm)
                if question is not None:
                    show_sent("no", await juliet.say(agent, "no", question.task))
                    show_came(await juliet.hear(is_said))
                elif not (heard.text_of("body") or "").startswith(NOTICE):
                    return
    except TimeoutError:
        note("the model is too slow on this machine; the demonstration goes on without it")


def is_said(stanza: Incoming) -> bool:
    """Return whether it is a chat message with a text."""
    return is_chat(stanza) and stanza.text_of("body") is not None
