"""The ad-hoc face behind a real router, with real skills and commands."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from component.commands import AnyCommand, Asking, Commands
from component.features.adhoc.handlers import (
    CommandNodes,
    CommandOffers,
    CommandsHandler,
    SkillOffers,
)
from component.features.adhoc.sessions import CommandSessions
from component.features.discovery.handlers import Discovery
from component.features.service_commands.commands import Introduction, everybody
from component.features.service_commands.skill_commands import SkillCommands
from component.kernel.adhoc import AdHocRequest, Offers
from component.kernel.disco import Disco, Facts
from component.link.router.table import Host
from component.policy import Policy, Rule
from component.skills import (
    Context,
    InvalidParam,
    Registry,
    Skill,
    SkillFailed,
    View,
    call,
    call_inline,
    prepare,
)
from component.skills.calling import Threads
from component.tasks.outputs import error_of, result_of
from tests.component.link.router.wire import AGENT, DOMAIN, Bench, iq
from tests.component.world import ALICE, Contacts, result, xml
from xep.commands import Command
from xep.data_forms import Field, Form
from xep.data_forms import field as filled
from xep.fluux_agent.execute import Accepted, Result
from xep.jid import JID

Action = Any


def _noted(by: AdHocRequest, skill: str, json_params: bytes) -> dict[str, Any]:
    return {**msgspec.structs.asdict(by), "skill": skill, "json_params": json_params}


class Calling:
    """Runs skills of a view at once or in a task, and keeps what it was asked for."""

    def __init__(self, view: Callable[[JID], View]) -> None:
        self._view = view
        self._threads = Threads(8, 4)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, by: AdHocRequest, name: str, json_params: bytes) -> Any:
        asked = _noted(by, name, json_params)
        self.asked.append(asked)
        skill = self._view(by.principal).get(name)
        assert skill is not None
        try:
            arguments = prepare(skill, json=json_params)
            if skill.kind == "inline":
                return result_of(skill, call_inline(skill, arguments))
        except (InvalidParam, SkillFailed) as error:
            raise error_of(skill, error) from error
        context = Context(principal=str(by.principal), sender=str(by.requester), skill=skill.name)
        return self._call(skill, arguments, context)

    async def _call(self, skill: Skill, arguments: msgspec.Struct, context: Context) -> Result:
        share = self._threads.share(context.principal)
        return result_of(skill, await call(skill, arguments, context, share))


class Answers:
    """A `Run` that gives what it was told to, one after the other."""

    def __init__(self, *answers: Result | Accepted | Exception | Awaitable[Any]) -> None:
        self._answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, by: AdHocRequest, name: str, json_params: bytes) -> Any:
        self.asked.append(_noted(by, name, json_params))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class CommandBench:
    """What a client sees of the commands of a service.

    Args:
        skills: what is offered.
        run: what runs them.
        sessions: of the handler; on a clock that stands still by default.
        rules: of the policy; everybody of a.example, b.example and example.com is admitted.
        commands: besides those for everybody.
        admins: bare JIDs.
        options: of the router.
    """

    def __init__(
        self,
        skills: Sequence[Skill] = (),
        *,
        run: Any = None,
        sessions: CommandSessions | None = None,
        rules: Sequence[Rule] = (),
        commands: Iterable[AnyCommand] = (),
        admins: Iterable[str] = (),
        **options: Any,
    ) -> None:
        self.policy = Policy(allowed_domains=["a.example", "b.example", "example.com"], rules=rules)
        self._registry = Registry(skills)
        self.run = Calling(self.view) if run is None else run
        self.sessions = CommandSessions(lambda: 0.0) if sessions is None else sessions

        def offered(asking: Asking) -> tuple[AnyCommand, ...]:
            return all_commands.of(asking)

        all_commands = Commands(
            (
                *everybody(
                    Introduction("Assistant", talks=True),
                    offered,
                    SkillCommands(self.view),
                    Contacts(),
                ),
                *commands,
            ),
            [JID.parse(jid) for jid in admins],
        )
        offers: tuple[Offers, ...] = (
            SkillOffers(self.view, self.run),
            CommandOffers(all_commands),
        )
        handler = CommandsHandler(offers, self.sessions)

        def features(host: Host) -> tuple[str, ...]:
            return self.bench.router.table.features(host)

        disco = Disco(
            Facts(domain=JID.parse(DOMAIN), name="Service", node="https://example.org", form={}),
            {"assistant": "Assistant"},
            features,
            has_pubsub=False,
        )
        disco.nodes.append(CommandNodes(offers))
        discovery = Discovery(disco, self.view)
        self.routes = (*handler.routes(), *discovery.routes())
        self.bench = Bench(self.routes, admits=self.policy.admits, **options)

    def view(self, principal: JID) -> View:
        """The skills that a principal sees, as the service decides it."""
        key = self.policy.view_key(principal)
        return self._registry.view(key, lambda name: self.policy.may_use(key, name))

    def reply(
        self, command: Command | str, from_: str = ALICE, to: str = AGENT, **stanza: Any
    ) -> ET.Element:
        """The reply to a command that is answered at once."""
        return self.bench.answer(iq(xml(command), type_="set", from_=from_, to=to, **stanza))

    def ask(self, command: Command, from_: str = ALICE, to: str = AGENT) -> Command:
        """The answer to it."""
        return result(Command, self.reply(command, from_, to))

    async def asked(self, command: Command, from_: str = ALICE) -> ET.Element:
        """The reply to a command that may suspend; the bench must be running."""
        before = len(self.bench.output.sent)
        self.bench.receive(iq(xml(command), type_="set", from_=from_, to=AGENT))
        await self.bench.settled()
        (reply,) = self.bench.replies[before:]
        return reply

    def begin(self, node: str, from_: str = ALICE) -> Command:
        """The first answer of a command."""
        return self.ask(Command(node=node), from_)


def go_on(
    answer: Command, action: Action = "complete", form: Form | None = None, **values: Any
) -> Command:
    """The next request of a session: with values, a form that holds them."""
    if values:
        form = submitted(**values)
    return Command(node=answer.node, sessionid=answer.sessionid, action=action, form=form)


def submitted(**values: Any) -> Form:
    """A form filled in."""
    return Form(type="submit", fields=tuple(filled(var, value) for var, value in values.items()))


def field(answer: Command, var: str) -> Field:
    """A field of an answer's form."""
    assert answer.form is not None
    found = answer.form.field(var)
    assert found is not None, var
    return found


def notes(answer: Command) -> list[tuple[str, str]]:
    """The type and the text of each note."""
    return [(note.type, note.text) for note in answer.notes]
