"""Discovers agents and calls them, on any XMPP library that lives on asyncio.

`Agents` is the base of both adapters: they send IQs, pass on messages, and say when the stream is
there. Every request may be repeated, so one without an answer is sent again, with the same content.
"""

import asyncio
import contextlib
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, Unpack
from weakref import WeakSet
from xml.etree.ElementTree import Element

from xep.fluux_agent.execute import State
from xmpp_agent_client import stanzas
from xmpp_agent_client.errors import AgentError, CallError, InvalidAnswerError, NoAnswerError
from xmpp_agent_client.following import Follower, News
from xmpp_agent_client.model import AgentInfo, Confirmation, Question, Result, Skill, Task
from xmpp_agent_client.stanzas import Options, Page, Request

_POLL_S = 60.0
"""How long a follower waits for a message of a task that does not say how long."""
_MOST_LOST = 3
"""How often a stream may end while a request waits: a server may end it because of the request."""
_MOST_WAITING = 1000
"""How many messages wait to be read. Of more, a follower drops those before, and requests the task.
"""
T = TypeVar("T")
_Heard: TypeAlias = Task | Confirmation | None
"""What a follower hears: an event, a confirmation, or that messages may have been missed."""


class Agents(ABC):
    """The agents that an XMPP client can call.

    Attributes:
        lang: the preferred language of titles and questions.
        answer_timeout: the number of seconds after which a request without an answer is repeated.
        give_up_after: the number of seconds after which it fails, and after which a task is not
            followed any more whose agent cannot be reached.
    """

    lang: str = "en"
    answer_timeout: float = 60.0
    give_up_after: float = 600.0

    def __init__(self) -> None:
        self._is_settled = asyncio.Event()  # whether there is a stream, or will be none
        self._failure = ""
        self._executions: WeakSet[Execution] = WeakSet()
        self._inboxes: set[asyncio.Queue[Confirmation]] = set()
        self._held: list[tuple[str | None, list[Task | Confirmation]]] = []

    # -- what an adapter does --------------------------------------------------------------------

    @property
    @abstractmethod
    def own_domain(self) -> str:
        """The domain of the account."""

    @abstractmethod
    async def send_iq(self, type_: Literal["get", "set"], to: str, payload: str) -> Element | None:
        """Send an IQ with this payload, and return that of its result.

        Raises:
            AgentError: the answer is an error.
            ConnectionError: the stream ended before the answer.
            TimeoutError: there is no answer after `answer_timeout` seconds.
            InvalidAnswerError: the answer is not valid.
        """

    def connected(self) -> None:
        """Note that there is a stream; what was sent before it may have been lost."""
        self._failure = ""
        self._is_settled.set()
        for execution in list(self._executions):
            execution.hear(None)

    def disconnected(self) -> None:
        """Note that there is no stream; requests wait for another one."""
        if not self._failure:
            self._is_settled.clear()

    def failed(self, reason: str) -> None:
        """Note that there will be no stream, so that requests fail; ``reason`` is a sentence."""
        self._failure = reason
        self._is_settled.set()

    def hear(self, message: Element) -> None:
        """Take a message."""
        for news in stanzas.read_message(message, self.lang):
            self.pass_on(news)

    def pass_on(self, news: Task | Confirmation) -> None:
        """Pass an event or a confirmation to those who follow its task.

        One that nobody follows waits for the answers to the execute requests that are under way: it
        may be about a task that one of them is about to become.
        """
        followed = [one for one in list(self._executions) if one.is_about(news)]
        for execution in followed:
            execution.hear(news)
        if followed:
            return
        for agent, held in self._held:
            if agent == news.agent and len(held) < _MOST_WAITING:
                held.append(news)
                return
        if isinstance(news, Confirmation):
            for inbox in self._inboxes:
                if not inbox.full():
                    inbox.put_nowait(news)

    @contextlib.contextmanager
    def holding(self, address: str) -> Iterator[None]:
        """Hold what an agent says of tasks that are not known, and pass it on afterwards."""
        held: list[Task | Confirmation] = []
        entry = (stanzas.bare(address), held)
        self._held.append(entry)
        try:
            yield
        finally:
            self._held.remove(entry)
            for news in held:
                self.pass_on(news)

    # -- calls -----------------------------------------------------------------------------------

    def at(self, address: str) -> "Agent":
        """Return the agent at a JID. Raises ValueError if it is not one."""
        if stanzas.bare(address) is None:
            raise ValueError(f"{address!r} is not an address")
        return Agent(self, address)

    async def discover(self, domain: str | None = None) -> list[AgentInfo]:
        """Return the agents that a server lists, by default that of the account.

        An item that answers with an error, or not in time, is left out.
        """
        domain = domain or self.own_domain
        items = await self.read_all(domain, stanzas.items_request, stanzas.read_items)
        addresses = dict.fromkeys([domain, *items])
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(self._info(address)) for address in addresses]
        infos = [one.result() for one in asking]
        return [info for info in infos if info is not None]

    async def _info(self, address: str) -> AgentInfo | None:
        with contextlib.suppress(CallError, TimeoutError, ConnectionError):
            request = stanzas.info_request()
            return stanzas.read_info(
                await self.send_iq(request.type, address, request.xml), address
            )
        return None

    async def decide(
        self,
        confirmation: Confirmation,
        *,
        approve: bool,
        standing: bool = False,
        reason: str | None = None,
    ) -> None:
        """Decide a confirmation. A repetition changes nothing. With `standing`, an approval also
        accepts the offer of a standing approval.

        Raises:
            ValueError: there is no such offer.
            ConflictError: somebody has decided otherwise.
            ExpiredError: it is too late.
            AgentError: the agent refuses it for another reason.
            NoAnswerError: no answer came.
        """
        request = stanzas.decision_request(
            confirmation, approve=approve, standing=standing, reason=reason
        )
        await self.request(confirmation.agent, request)

    async def confirmations(self) -> AsyncGenerator[Confirmation, None]:
        """Yield what this account is asked to confirm, except for tasks that are followed here.

        Anybody can send such a message: decide those of agents that you know.
        """
        inbox: asyncio.Queue[Confirmation] = asyncio.Queue(_MOST_WAITING)
        self._inboxes.add(inbox)
        try:
            while True:
                yield await inbox.get()
        finally:
            self._inboxes.discard(inbox)

    async def request(self, to: str, request: Request) -> Element | None:
        """Send a request, and again until it is answered; return the payload of the result.

        Raises:
            AgentError: the answer is an error.
            NoAnswerError: there was none within `give_up_after` seconds, or there is no stream
                and will be none.
        """
        lost = 0
        try:
            async with asyncio.timeout(self.give_up_after):
                while lost < _MOST_LOST:
                    await self._is_settled.wait()
                    if self._failure:
                        raise NoAnswerError(self._failure)
                    try:
                        return await self.send_iq(request.type, to, request.xml)
                    except TimeoutError:
                        continue
                    except ConnectionError:
                        lost += 1
        except TimeoutError:
            raise NoAnswerError(
                f"{to} has not answered within {self.give_up_after:g} seconds. Whether the request"
                " had an effect is not known."
            ) from None
        raise NoAnswerError(
            f"The stream ended {lost} times before {to} answered. The server may refuse the"
            " request, for example because of its size."
        )

    async def read_all(
        self,
        to: str,
        ask: Callable[..., Request],
        read: Callable[[Element | None], tuple[list[T], Page]],
    ) -> list[T]:
        """Return the entries of all pages of a list; ``ask`` makes the request for one."""
        entries: list[T] = []
        after: str | None = None
        while True:
            found, page = read(await self.request(to, ask(after=after)))
            entries += found
            if page.after is None or page.after == after:
                return entries
            after = page.after

    def follow(self, execution: "Execution") -> None:
        """Pass on to it what is heard, as long as it exists."""
        self._executions.add(execution)


class Agent:
    """An agent.

    Attributes:
        address: its JID.
        agents: what it is called through.
    """

    def __init__(self, agents: Agents, address: str) -> None:
        self.address = address
        self.agents = agents

    async def info(self) -> AgentInfo | None:
        """Return what it says about itself; None if there is no agent at the address."""
        return stanzas.read_info(await self._ask(stanzas.info_request()), self.address)

    async def skills(self, *, search: str | None = None, schemas: bool = False) -> list[Skill]:
        """Return the skills that you may use; with ``search`` those that contain all its words.

        With ``schemas``, they have the JSON Schemas of their inputs and outputs.
        """
        return await self.agents.read_all(
            self.address,
            partial(stanzas.skills_request, search=search, schemas=schemas),
            partial(stanzas.read_skills, lang=self.agents.lang),
        )

    async def skill(self, name: str) -> Skill:
        """Return a skill with its schemas. Raises UnknownSkillError if you may not use it."""
        answer = await self._ask(stanzas.skills_request(skill=name))
        skills, _ = stanzas.read_skills(answer, self.agents.lang)
        if not skills:
            raise InvalidAnswerError(f"{self.address} has answered without the skill {name}")
        return skills[0]

    async def execute(
        self, skill: str, params: Mapping[str, Any] | None = None, **options: Unpack[Options]
    ) -> "Execution":
        """Execute a skill; return the result, or the task to follow.

        Args:
            skill: its name.
            params: the parameters, as values of JSON.
            options: see `Options`.

        Raises:
            AgentError: the agent refuses it.
            NoAnswerError: no answer came; its `request` is for another attempt.
            ValueError: a parameter cannot be sent.
        """
        request = options.setdefault("request", str(uuid.uuid4()))
        made = stanzas.execute_request(skill, params, **options)
        with self.agents.holding(self.address):
            try:
                answer = await self._ask(made)
            except NoAnswerError as error:
                error.request = request
                raise
            executed = stanzas.read_executed(answer, self.address)
            return Execution(self, executed, request=request)

    async def call(
        self, skill: str, params: Mapping[str, Any] | None = None, **options: Unpack[Options]
    ) -> Result:
        """Execute a skill as `execute` does, and wait for its result as `Execution.result` does."""
        return await (await self.execute(skill, params, **options)).result()

    def task(self, task: str) -> "Execution":
        """Return a task by its id, to follow it or to answer it, as after a restart."""
        return Execution(self, Task(agent=self.address, id=task, revision=-1))

    async def tasks(
        self,
        *,
        state: State | None = None,
        context: str | None = None,
        since: datetime | None = None,
    ) -> list[Task]:
        """Return your tasks with their progress, the latest first.

        Args:
            state: only those in this state.
            context: only those of this context.
            since: only those that have changed since then.
        """
        return await self.agents.read_all(
            self.address,
            partial(stanzas.tasks_request, state=state, context=context, since=since),
            partial(stanzas.read_tasks, agent=self.address, lang=self.agents.lang),
        )

    async def events(self, task: str, since: int = 0) -> list[Task]:
        """Return the events of a task after a revision that the agent still stores."""
        return await self.agents.read_all(
            self.address,
            partial(stanzas.events_request, task, since),
            partial(stanzas.read_events, agent=self.address, lang=self.agents.lang),
        )

    async def get(self, task: str) -> Task:
        """Return the complete state of a task. Raises UnknownTaskError if it is not stored."""
        answer = await self._ask(stanzas.task_request(task))
        return stanzas.read_task(answer, self.address, self.agents.lang)

    async def _ask(self, request: Request) -> Element | None:
        return await self.agents.request(self.address, request)


class Execution:
    """An execution of a skill: a result, or a task that goes on.

    Iterate over it to follow the task. Each revision is returned as a `Task`, and each question and
    confirmation once, until the task has ended. One iteration at a time, please.

    Attributes:
        request: the id of the request; None if the task was found by its id.
    """

    def __init__(
        self, agent: Agent, executed: Result | Task, *, request: str | None = None
    ) -> None:
        self.request = request
        self._agent = agent
        self._inbox: deque[_Heard] = deque()
        self._has_heard = asyncio.Event()
        self._result = executed if isinstance(executed, Result) else None
        self._follower: Follower | None = None
        if isinstance(executed, Task):
            # Without a revision nothing is known but its id.
            self._follower = Follower(executed, is_complete=executed.revision >= 0)
            agent.agents.follow(self)

    @property
    def task(self) -> Task | None:
        """The newest known state of the task; None if there is no task."""
        return None if self._follower is None else self._follower.task

    async def __aiter__(self) -> AsyncIterator[News]:
        """Follow the task.

        Raises:
            UnknownTaskError: it is not stored any more.
            AgentError: the agent could not be asked for `Agents.give_up_after` seconds.
            NoAnswerError: it did not answer for so long.
        """
        follower = self._follower
        while follower is not None:  # otherwise the result is there
            if follower.is_complete:
                for news in follower.news():
                    yield news
            if self._inbox:
                self._take(follower)
            elif not follower.is_complete:
                await self._refresh(follower)
            elif follower.task.ended:
                return
            elif not await self._has_news(follower):
                await self._refresh(follower)

    async def result(self) -> Result:
        """Wait for the end, and return the result.

        Raises:
            AgentError: the task failed, was rejected or cancelled, or is no longer stored.
            NoAnswerError: the agent cannot be reached.
        """
        async for _ in self:
            pass
        if self._follower is None:
            assert self._result is not None, "an execution has a result or a task"
            return self._result
        task = self._follower.task
        if task.result is not None:
            return task.result
        raise task.error or InvalidAnswerError(f"task {task.id} is {task.state} without a result")

    async def answer(self, question: Question, values: Mapping[str, Any] | None) -> None:
        """Answer a question of the task with an object that matches its schema; None declines.

        Raises:
            InvalidParamError: the values do not match; the question is still open.
            ExpiredError: it is too late.
            ConflictError: it was answered otherwise.
            AgentError: the agent refuses the answer for another reason.
            NoAnswerError: no answer came.
        """
        await self._change(stanzas.answer_request(question, values))

    async def cancel(self, reason: str | None = None) -> None:
        """Request the cancellation of the task. It may still complete: follow it to its end.

        Raises:
            AgentError: the agent refuses it.
            NoAnswerError: no answer came.
        """
        if self._follower is not None:
            await self._change(stanzas.cancel_request(self._follower.task.id, reason))

    def is_about(self, news: Task | Confirmation) -> bool:
        """Return whether an event or a confirmation is about this task."""
        task = news.id if isinstance(news, Task) else news.task
        return (
            self._follower is not None
            and task == self._follower.task.id
            and news.agent == stanzas.bare(self._agent.address)
        )

    def hear(self, news: _Heard) -> None:
        """Keep what was heard until the task is followed."""
        if len(self._inbox) == _MOST_WAITING:
            self._inbox.clear()
            self._inbox.append(None)
        self._inbox.append(news)
        self._has_heard.set()

    def _take(self, follower: Follower) -> None:
        match self._inbox.popleft():
            case Task() as event:
                follower.take_event(event)
            case Confirmation() as confirmation:
                follower.take_confirmation(confirmation)
            case None:
                follower.is_complete = False

    async def _refresh(self, follower: Follower) -> None:
        """Request the task, and again while a server answers that the agent is not there."""
        agents = self._agent.agents
        clock = asyncio.get_running_loop().time
        until = clock() + agents.give_up_after
        while True:
            try:
                follower.take_answer(await self._agent.get(follower.task.id))
            except AgentError as error:
                if error.condition or clock() >= until:
                    raise
                await self._has_news(follower)
            else:
                return

    async def _has_news(self, follower: Follower) -> bool:
        """Wait for messages; return False if it is time to request the task."""
        self._has_heard.clear()
        try:
            async with asyncio.timeout(follower.task.poll_after or _POLL_S):
                await self._has_heard.wait()
        except TimeoutError:
            return False
        return True

    async def _change(self, request: Request) -> None:
        """Send a request that is answered with the task, and take that."""
        agent = self._agent
        payload = await agent.agents.request(agent.address, request)
        task = stanzas.read_task(payload, agent.address, agent.agents.lang)
        if self._follower is not None:
            self._follower.take_answer(task)
