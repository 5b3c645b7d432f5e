"""An agent on another server that does what a test says: it speaks raw XMPP."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tests.kit import Kit
from tests.kit.xmpp import parse
from xep.binding import Payload, encode
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Execute, Result
from xep.fluux_agent.skills import Schema, SkillDescription, SkillsQuery, Title
from xep.fluux_agent.task import Cancel, InputAnswer, Task, Tasks
from xep.jid import JID
from xep.stanza import IQ, Incoming
from xep.stanza_error import StanzaError
from xep.stream import StreamError

AGAIN_S: Final = 6.0
"""Seconds after which a service asks a peer for its skills that was not there when it began."""
OBJECT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}


def described(name: str, schema: Mapping[str, Any] = OBJECT, **more: Any) -> SkillDescription:
    """Return the description of a skill."""
    json = msgspec.Raw(msgspec.json.encode(schema))
    more.setdefault("titles", (Title(text=f"Do {name}"),))
    return SkillDescription(name=name, schemas=(Schema(direction="input", json=json),), **more)


class ScriptedAgent:
    """The agent at a domain.

    Attributes:
        skills: what it offers.
        executed: the execute requests that it got.
        requests: all IQs that it got.
        results: answers each execute request, by the skill: a payload, an error, or a function of
            the request; None for no answer at all.
        tasks: what it answers when it is asked for one of its tasks.
        forgets: whether it knows no task but these.
        cancelled: the cancellations that it got; it answers them with the task.
        replies: the answers and decisions that it got.
    """

    def __init__(self, kit: Kit, domain: str, skills: Sequence[SkillDescription]) -> None:
        self.skills = tuple(skills)
        self.executed: list[Execute] = []
        self.requests: list[Incoming] = []
        self.results: dict[str, Payload | StanzaError | Callable[[Execute], Payload] | None] = {}
        self.tasks: dict[str, Task] = {}
        self.forgets = False
        self.cancelled: list[Cancel] = []
        self.replies: list[InputAnswer | Decision] = []
        self.version = "1"
        self._domain = domain
        kit.xmpp.add_service(domain, "s")
        self._home = kit.xmpp.connect_link(domain, self)

    def send(self, xml: str) -> None:
        """Take a stanza from the server."""
        stanza = parse(xml)
        if stanza.kind != "iq" or stanza.type not in ("get", "set"):
            return
        self.requests.append(stanza)
        try:
            payload = self._answer(stanza)
        except StanzaError as error:
            self.say(self._reply(stanza, "error", error=error))
        else:
            if payload is not None:
                self.say(self._reply(stanza, "result", payload=payload))

    def close(self, error: StreamError) -> None:
        raise AssertionError(f"the stream of {self._domain} has ended: {error}")

    def say(self, xml: str) -> None:
        """Send a stanza."""
        stanza = parse(xml)
        self._home.from_component(JID.parse(stanza.sender or ""), stanza, self)

    def tell(self, to: str, payload: Payload, *, thread: str = "", kind: str = "headline") -> None:
        """Send a message with a payload."""
        within = f"<thread>{thread}</thread>" if thread else ""
        self.say(
            f"<message from='{self._domain}' to='{to}' type='{kind}'>{within}{encode(payload)}"
            "</message>"
        )

    def report(self, task: Task, *, kind: str = "headline", is_kept: bool = True) -> None:
        """Send an event of a task that belongs to the last execute request. If it is kept, it is
        also the answer when somebody asks for the task.
        """
        if is_kept:
            self.tasks[task.id] = task
        thread = self.executed[-1].thread or ""
        self.tell("assistant@agent.a.example", task, thread=thread, kind=kind)

    def accept(self, request: Incoming, task: str) -> None:
        """Answer an execute request late: with a task."""
        self.say(self._reply(request, "result", payload=Accepted(task=task)))

    def _reply(self, stanza: Incoming, kind: Any, **more: Any) -> str:
        return IQ(
            type=kind,
            id=stanza.id or "",
            to=JID.parse(stanza.sender or ""),
            from_=JID.parse(stanza.to or ""),
            **more,
        ).encode()

    def _answer(self, stanza: Incoming) -> Payload | None:
        query = stanza.payload(SkillsQuery)
        if query is not None:
            if query.version == self.version:
                return SkillsQuery(version=self.version, ttl=600, unchanged=True)
            return SkillsQuery(version=self.version, ttl=600, skills=self.skills)
        execute = stanza.payload(Execute)
        if execute is None:
            return self._answer_about_tasks(stanza)
        self.executed.append(execute)
        result = self.results.get(execute.skill, Result(skill=execute.skill))
        if isinstance(result, StanzaError):
            raise result
        return result(execute) if callable(result) else result

    def _answer_about_tasks(self, stanza: Incoming) -> Payload | None:
        asked = stanza.payload(Task)
        if asked is not None and asked.id in self.tasks:
            return self.tasks[asked.id]
        if asked is not None and self.forgets:
            raise errors.unknown_task()
        if stanza.payload(Tasks) is not None:
            waiting = [one for one in self.tasks.values() if one.state == "input-required"]
            return Tasks(tasks=tuple(waiting))
        cancel = stanza.payload(Cancel)
        if cancel is not None:
            self.cancelled.append(cancel)
            if cancel.id is not None and cancel.id not in self.tasks:
                raise errors.unknown_task()
            name = cancel.id or next(iter(self.tasks), None)
            return self._cancelled(name) if name else None
        decision = stanza.payload(Decision)
        if decision is not None:
            self.replies.append(decision)
            for task in tuple(self.tasks.values()):
                if task.confirm is not None and task.confirm.id == decision.id:
                    self._continue(task)
            self.say(self._reply(stanza, "result"))
            return None
        answer = stanza.payload(InputAnswer)
        if answer is not None:
            self.replies.append(answer)
            task = self.tasks[answer.task]
            return self._continue(task) if task.input is not None else task
        raise StanzaError("service-unavailable")

    def _continue(self, task: Task) -> Task:
        made = Task(id=task.id, state="running", revision=(task.revision or 0) + 1)
        self.tasks[task.id] = made
        return made

    def _cancelled(self, name: str) -> Task:
        before = self.tasks[name]
        made = Task(id=name, state="cancelled", revision=(before.revision or 0) + 1)
        self.tasks[name] = made
        return made
