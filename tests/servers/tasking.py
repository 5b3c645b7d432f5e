"""A service with durable skills on a real server, and what clients say to it about tasks.

The whole run shares one service, `desk`; a module that needs another one has a `desk` of its own.
Juliet is the `caller` whose tasks they are; Romeo is the `other` account, and an admin.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
import rfc8785

from component.tasks.question_rows import STANDS_MS
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.clients import Element, SlixClient
from tests.servers.fixtures import DESK
from tests.servers.talk import (
    ERRORS,
    EXECUTE,
    FLUUX,
    application,
    condition,
    execute,
    from_,
    login,
    result,
)

TASK = f"{FLUUX}#task"
CONFIRM = f"{FLUUX}#confirm"
FORMS = "jabber:x:data"
RESPONSES = "urn:xmpp:tmp:quick-response"
INLINE_S = 2
"""Longer than a busy machine takes for what is to stay inline."""
FOR_EVER = 3000.0  # seconds; long enough that it cannot be what ends a test

# Everything a skill does outside is a line in `effects`; it waits for files that the test makes.
SKILLS = '''
from pathlib import Path

import anyio
import msgspec

from component.skills import Context, SkillError, skill

HERE = Path(__file__).parent


def effect(line: str) -> None:
    with (HERE / "effects").open("a") as file:
        file.write(line + "\\n")


async def gate(name: str) -> None:
    while not (HERE / name).exists():
        await anyio.sleep(0.02)


@skill(name="steps", destructive=False, durable=True)
async def steps(run: str, context: Context) -> str:
    """Do two steps, and wait for a file between them."""

    async def first(key: str) -> str:
        effect(f"{run} first {key}")
        return key

    async def second(key: str) -> int:
        effect(f"{run} second {key}")
        return 2

    key = await context.step("first", first, str)
    await context.progress(0.5, "between")
    await gate(f"{run}.go")
    return f"{key} {await context.step('second', second, int)}"


@skill(name="stuck", destructive=False, durable=True)
async def stuck(run: str, context: Context) -> str:
    """Do one step that waits for a file after its effect."""

    async def only(key: str) -> str:
        effect(f"{run} only")
        await context.progress(0.5, "inside")
        await gate(f"{run}.go")
        return key

    return await context.step("only", only, str)


@skill(name="slow", destructive=False, durable=True)
async def slow(run: str, context: Context) -> str:
    """Wait for a file, and say so."""
    await gate(f"{run}.go")
    return f"{run} is done"


@skill(name="grow", read_only=True)
async def grow(context: Context) -> str:
    """Show a text in three parts."""
    await context.output("poem", "one ")
    await context.output("poem", "two ")
    await context.output("poem", "three", last=True)
    return "that was it"


class Trip(msgspec.Struct):
    city: str
    nights: int


class Word(msgspec.Struct):
    word: str


@skill(name="trip", destructive=False, durable=True)
async def trip(context: Context) -> str:
    """Ask where to, and for how long."""
    answer = await context.ask("Where to, and for how long?", Trip)
    return f"{answer.nights} nights in {answer.city}"


@skill(name="word", destructive=False, durable=True)
async def word(context: Context, seconds: float = 3600.0) -> str:
    """Ask for a word."""
    answer = await context.ask("Which word?", Word, expires_s=seconds)
    return f"the word is {answer.word}"


@skill(name="wipe", version="2.1", inline=True)
def wipe(path: str, days: int = 30, deep: bool = False) -> str:
    """Claim to wipe something, of which there is one line."""
    effect(f"wiped {path}")
    return f"wiped {path}"


@skill(name="shared-wipe", inline=True)
def shared_wipe(path: str) -> str:
    """Claim to wipe something that two people may allow."""
    return f"wiped {path}"


@skill(name="counted", inline=True, destructive=False)
def counted(key: str) -> str:
    """Something that may not happen twice, and is a line."""
    effect(f"counted {key}")
    return f"counted {key}"


@skill(name="broken", destructive=False, durable=True)
async def broken(context: Context) -> str:
    """Fail as skills with a mistake in them do."""
    raise RuntimeError("what nobody outside may read")
'''


@dataclass
class Desk:
    """One service, at its bare address and at that of its agent."""

    server: Server
    agent: AgentProcess

    @property
    def domain(self) -> str:
        """The component."""
        return self.server.component_domain

    @property
    def assistant(self) -> str:
        """The agent that it hosts."""
        return f"assistant@{self.domain}"

    @property
    def clerk(self) -> str:
        """Another agent that it hosts."""
        return f"clerk@{self.domain}"

    def open_gate(self, run: str) -> None:
        """Let the skill that waits for this file go on."""
        (self.agent.directory / f"{run}.go").touch()

    def effects(self, run: str = "") -> list[str]:
        """What skills have done outside."""
        file = self.agent.directory / "effects"
        return [line for line in file.read_text().splitlines() if run in line]


def open_desk(server: Server, directory: Any, **settings: object) -> AgentProcess:
    """A service with the skills above, not yet started."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "own.py").write_text(SKILLS)
    (directory / "effects").touch()
    both = [server.jid("juliet"), server.jid("romeo")]
    defaults: dict[str, object] = {
        "conformance__enabled": True,
        "skills__modules": ["./own.py"],
        "agents": [{"name": "clerk"}],
        "agent__admins": [server.jid("romeo")],
        "policy__rules": [{"skills": ["shared-wipe"], "approvers": both}],
        "limits__inline_s": INLINE_S,
    }
    return AgentProcess(server, directory, **defaults | settings)


@pytest.fixture(scope="session")
def desk(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The service that the run shares."""
    server = xmpp_server.on(DESK)
    with open_desk(server, tmp_path_factory.mktemp("desk")) as agent:
        agent.connected()
        yield Desk(server, agent)


@pytest.fixture(scope="module")
def caller(desk: Desk) -> Iterator[SlixClient]:
    """Juliet, for as long as the module."""
    with login(desk.server) as client:
        yield client


@pytest.fixture(scope="module")
def other(desk: Desk) -> Iterator[SlixClient]:
    """Romeo, who is somebody else and an admin."""
    with login(desk.server, "romeo") as client:
        yield client


# What is said.


def get(task: str) -> str:
    """The question for a task."""
    return f"<task xmlns='{TASK}' id='{task}'/>"


def listed(attributes: str = "", inside: str = "") -> str:
    """The question for tasks."""
    return f"<tasks xmlns='{TASK}' {attributes}>{inside}</tasks>"


def events(task: str, since: int, inside: str = "") -> str:
    """The question for the events of a task."""
    return f"<events xmlns='{TASK}' id='{task}' since='{since}'>{inside}</events>"


def cancel(task: str) -> str:
    """The wish that a task end."""
    return f"<cancel xmlns='{TASK}' id='{task}'/>"


def decision(id_: str, value: str, inside: str = "") -> str:
    """The answer to a confirmation."""
    return f"<decision xmlns='{CONFIRM}' id='{id_}' value='{value}'>{inside}</decision>"


def answer(asked: Element, task: str, inside: str) -> str:
    """The answer to an input, with whatever is inside."""
    id_, revision = asked.get("id"), asked.get("revision")
    return (
        f"<answer xmlns='{TASK}' task='{task}' input='{id_}' revision='{revision}'>"
        f"{inside}</answer>"
    )


def params(values: object) -> str:
    """JSON as an answer holds it."""
    return f"<params type='application/json'>{json.dumps(values)}</params>"


def say(client: SlixClient, to: str, body: str, inside: str = "") -> None:
    """Send a chat message."""
    client.send_raw(f"<message to='{to}' type='chat'><body>{body}</body>{inside}</message>")


def select(client: SlixClient, to: str, action: str) -> None:
    """Choose one of the actions that a message offers."""
    inside = f"<action-selected xmlns='{RESPONSES}' id='{action}'/>"
    client.send_raw(f"<message to='{to}' type='chat'>{inside}</message>")


def reply(client: SlixClient, to: str, question: Element, body: str) -> None:
    """Reply to the message of a question, as clients do (XEP-0461)."""
    quoted = "> May I?\n"
    inside = (
        f"<reply xmlns='urn:xmpp:reply:0' to='{to}' id='{question.get('id')}'/>"
        "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'>"
        f"<body start='0' end='{len(quoted)}'/></fallback>"
    )
    say(client, to, escape(quoted) + body, inside)


def let_stand(client: SlixClient, desk: Desk) -> None:
    """Wait as long as a question has to stand before a yes without a name counts."""
    seconds = STANDS_MS / 1000
    task = begin(client, desk.assistant, "conformance.sleep", "mode='async'", seconds=seconds)
    completed(client, task)


def heard(client: SlixClient, address: str, words: str) -> Element:
    """The next chat message of an address with these words in its body."""
    of = from_(address, "chat")
    return client.messages.take(lambda m: of(m) and words in m.findtext("{*}body", ""))


# What is answered.


def begin(client: SlixClient, to: str, skill: str, attributes: str = "", **given: Any) -> str:
    """Have a task begun, and return its id."""
    return accepted(client.iq(to, execute(skill, attributes=attributes, **given), "set"))


def accepted(stanza: Element) -> str:
    """The task of an answer that is `<accepted/>`."""
    answer = result(stanza)
    assert answer.tag == f"{{{EXECUTE}}}accepted", ET.tostring(stanza, "unicode")
    assert answer.get("revision") == "0"
    return answer.attrib["task"]


def in_state(client: SlixClient, to: str, task: str, state: str) -> Element:
    """The task as get shows it; it has to be in that state."""
    found = result(client.iq(to, get(task)))
    assert found.get("state") == state, ET.tostring(found, "unicode")
    return found


def event(task: str, *states: str) -> Callable[[Element], bool]:
    """A test for event messages of a task, in one of the states."""

    def of(message: Element) -> bool:
        found = message.find(f"{{{TASK}}}task")
        return (
            found is not None
            and found.get("id") == task
            and (not states or found.get("state") in states)
        )

    return of


TERMINAL = ("completed", "failed", "rejected", "cancelled")


def ended(client: SlixClient, task: str) -> tuple[Element, Element]:
    """The message that says how a task ended, and the task in it."""
    message = client.messages.take(event(task, *TERMINAL))
    assert message.get("type", "normal") == "normal"
    found = message.find(f"{{{TASK}}}task")
    assert found is not None
    return message, found


def completed(client: SlixClient, task: str) -> str:
    """The output of a task that has to end well."""
    _, found = ended(client, task)
    assert found.get("state") == "completed", ET.tostring(found, "unicode")
    said = found.find(f"{{{EXECUTE}}}result")
    assert said is not None
    assert said.get("is-error") == "false"
    return said.findtext(f"{{{EXECUTE}}}output", "")


def failed(client: SlixClient, task: str) -> tuple[str, str]:
    """The condition and the text of a task that has to fail."""
    _, found = ended(client, task)
    assert found.get("state") == "failed", ET.tostring(found, "unicode")
    return why(found)


def why(task: Element) -> tuple[str, str]:
    """The condition of a failure, and its text."""
    failure = task.find(f"{{{TASK}}}failure")
    assert failure is not None, ET.tostring(task, "unicode")
    (name,) = [c.tag.rpartition("}")[2] for c in failure if c.tag.startswith(f"{{{ERRORS}}}")]
    return name, failure.findtext(f"{{{TASK}}}text", "")


def refusal(stanza: Element) -> tuple[str, str]:
    """The stanza error and the application condition of a refusal."""
    said = application(stanza)
    return condition(stanza), "" if said is None else said.tag.rpartition("}")[2]


def asks(client: SlixClient, task: str) -> tuple[Element, Element]:
    """The message that asks whether the action of a task is allowed, and its `<confirm/>`."""

    def of(message: Element) -> bool:
        found = message.find(f"{{{CONFIRM}}}confirm")
        return message.get("type") == "chat" and found is not None and found.get("task") == task

    message = client.messages.take(of)
    confirm = message.find(f"{{{CONFIRM}}}confirm")
    assert confirm is not None
    return message, confirm


def waits(client: SlixClient, task: str) -> Element:
    """The `<input/>` by which a task says what it waits for."""
    message = client.messages.take(event(task, "input-required"))
    asked = message.find(f"{{{TASK}}}task/{{{TASK}}}input")
    assert asked is not None, ET.tostring(message, "unicode")
    return asked


def digest_of(message: Element) -> str:
    """The digest that the message of a question has to hold (CNF-018), from the message alone."""
    confirm = message.find(f"{{{CONFIRM}}}confirm")
    assert confirm is not None
    action = confirm.find(f"{{{CONFIRM}}}action")
    assert action is not None
    values = {p.attrib["name"]: p.text or "" for p in action.findall(f"{{{CONFIRM}}}param")}
    covered = {
        "agent": message.attrib["from"],
        "confirmation": confirm.attrib["id"],
        "expires": confirm.findtext(f"{{{CONFIRM}}}expires"),
        "params": values | json.loads(action.findtext(f"{{{CONFIRM}}}params", "{}")),
        "principal": confirm.attrib["principal"],
        "skill": action.attrib["type"],
        "task": confirm.attrib["task"],
        "version": action.get("version"),
    }
    return base64.b64encode(hashlib.sha256(rfc8785.dumps(covered)).digest()).decode()
