"""Ad-hoc commands (XEP-0050): skills and commands for every client that supports forms.

A command has one stage: the form made from its schema (FAC-002), which is returned until it is
valid (FAC-004); then the work, once. A command without parameters runs at once.

Every skill of a view (FAC-001) and every command of the service becomes an `Offer`, so the handler
only deals with forms and stages. In service discovery the commands are a list, and each is a node
(XEP-0050 §2).
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, Final, TypeAlias

import anyio
import msgspec
import structlog

from component.commands import AnyCommand, CommandError, CommandResult, Commands
from component.features.adhoc.sessions import (
    CommandSession,
    CommandSessions,
    bad_command,
    expired_session,
)
from component.kernel.adhoc import (
    USUAL_RANK,
    AdHocRequest,
    Completed,
    Misfit,
    Offer,
    Offers,
    Outcome,
    find_offer,
)
from component.kernel.errors import unavailable
from component.kernel.paging import address_asked, items_page, sized
from component.link.router.table import IQRoute, ReplyPayload, Request
from component.skills.errors import printable
from component.skills.form_fields import NEWLINE, Schema, properties_of
from component.skills.forms import InvalidForm, form_values, schema_form
from component.skills.registry import ListedSkill, View
from component.skills.skill import Skill
from component.skills.spec import title_of
from component.store import StorageError
from component.store.outages import log_failure
from component.tasks.admission import Answer
from component.tasks.outputs import sent_file, text_of, texts_of
from component.tasks.refusals import with_help
from xep import data_forms, disco
from xep.binding.escaping import without_forbidden
from xep.commands import NAMESPACE, Actions, BadAction, BadPayload, Command, MalformedAction, Note
from xep.data_forms import Field, Form, form_type_field
from xep.file_sharing import FileSharing
from xep.fluux_agent import errors
from xep.fluux_agent.execute import NAMESPACE as EXECUTE
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.task import NAMESPACE as TASK
from xep.jid import JID
from xep.media_element import Media, MediaUri
from xep.result_sets import PAGE_ROOM
from xep.stanza_error import StanzaError

_LANG = "en"
"""The language of all texts here."""


_ACTIONS: Final = frozenset(("execute", "cancel", "prev", "next", "complete"))
_LONGEST: Final = 40
_SECONDS: Final = "_s"


class CommandsHandler:
    """Runs commands, stage by stage. `offers` are the sources of commands; the first that has a
    node serves it.
    """

    def __init__(
        self, offers: Sequence[Offers], sessions: CommandSessions, retry_after_s: int = 5
    ) -> None:
        self._offers = offers
        self._sessions = sessions
        self._retry_after_s = retry_after_s

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        features = (NAMESPACE, data_forms.NAMESPACE)
        return (IQRoute("set", Command, self.command, features, place_first=True),)

    def command(self, request: Request[Command]) -> ReplyPayload | Awaitable[ReplyPayload]:
        """Start a command, or continue one. Raises StanzaError as in XEP-0050 §4.4; work that fails
        completes with a note.
        """
        asked = request.payload
        action = asked.action or "execute"
        if action not in _ACTIONS:
            raise bad_command(
                MalformedAction(), f"There is no action {printable(action, _LONGEST)}."
            )
        if not asked.sessionid:
            if action != "execute":
                raise bad_command(BadAction(), f"Start a command with execute, not with {action}.")
            return self._begin(request)
        session = self._sessions.find(asked.sessionid, request.sender, request.to.bare, asked.node)
        if action == "cancel":
            return self._cancel(session)
        if action in ("prev", "next"):
            raise self._no_such_stage(session, action)
        if session.stage == "open":
            return self._submit(session, asked.form)
        return self._repeat(session, asked.form)

    def _begin(self, request: Request[Command]) -> ReplyPayload | Awaitable[ReplyPayload]:
        asked = request.payload
        offer = self._offer(asked.node, request.principal)
        lang = asked.lang or request.stanza.lang
        session = self._sessions.begin(request.sender, request.to.bare, offer.node, lang)
        if offer.prepare is not None or properties_of(offer.schema):
            return self._ask(session, offer)
        return self._run(session, offer, msgspec.Raw(b"{}"))

    def _ask(
        self, session: CommandSession, offer: Offer, misfit: Misfit | None = None
    ) -> Command | Awaitable[Command]:
        """Return the form; with `misfit` again, and what is wrong with it."""
        if offer.prepare is None:
            return self._show(session, offer, misfit)
        return self._prepare(session, offer.prepare(_asked(session)), misfit)

    async def _prepare(
        self, session: CommandSession, preparing: Awaitable[Offer], misfit: Misfit | None
    ) -> Command:
        with self._ended_by_error(session):
            return self._show(session, await preparing, misfit)

    def _offer(self, node: str, principal: JID) -> Offer:
        offer = find_offer(self._offers, node, principal)
        if offer is None:
            raise StanzaError("item-not-found", "This address has no such command.")
        return offer

    @staticmethod
    def _show(session: CommandSession, offer: Offer, misfit: Misfit | None) -> Command:
        # Some clients do not show the note of a command that is executing.
        said = () if misfit is None else (misfit.sentence,)
        form = schema_form(
            offer.schema,
            offer.form_type,
            title=offer.title,
            instructions="\n".join((*said, offer.about)),
            given=session.given,
            errors={} if misfit is None else misfit.reasons,
        )
        answer = Command(
            node=offer.node,
            sessionid=session.id,
            status="executing",
            actions=Actions(execute="complete", complete=True),
            notes=() if misfit is None else (Note(type="error", text=misfit.sentence),),
            form=form,
            lang=_LANG,
        )
        session.settle("open", answer, None)
        return answer

    def _submit(
        self, session: CommandSession, form: Form | None
    ) -> ReplyPayload | Awaitable[ReplyPayload]:
        # A form of type cancel counts as submitted (XEP-0050 §3.6.1).
        if form is None or form.type not in ("submit", "cancel"):
            raise bad_command(BadPayload(), "Fill in the form, and send it with the type submit.")
        with self._ended_by_error(session):
            offer = self._offer(session.node, session.requester.bare)
        session.given = form
        try:
            json = form_values(form, offer.schema, offer.form_type)
        except InvalidForm as error:
            return self._ask(session, offer, _misfit_of(offer.schema, error.reasons))
        return self._run(session, offer, json)

    def _run(
        self, session: CommandSession, offer: Offer, json: msgspec.Raw
    ) -> ReplyPayload | Awaitable[ReplyPayload]:
        session.stage = "running"
        session.attempts += 1
        with self._ended_by_error(session):
            outcome = offer.run(_asked(session), json)
        if isawaitable(outcome):
            session.done = anyio.Event()
            return self._wait(session, offer, outcome)
        return self._settle(session, offer, outcome)

    async def _wait(
        self, session: CommandSession, offer: Offer, outcome: Awaitable[Outcome]
    ) -> Command:
        with self._ended_by_error(session):
            answer = self._settle(session, offer, await outcome)
        return await answer if isawaitable(answer) else answer

    @contextmanager
    def _ended_by_error(self, session: CommandSession) -> Iterator[None]:
        """End a session by the errors raised within, which its repetitions get as well. What was
        cancelled or has failed is not run again: its effect is unknown.
        """
        try:
            yield
        except BaseException as error:
            found = errors.outcome_unknown()
            if isinstance(error, StanzaError):
                found = error
            elif isinstance(error, StorageError):
                found = unavailable(self._retry_after_s)
            elif isinstance(error, Exception):
                found = errors.internal()
            session.settle("ended", None, found)
            raise

    def _settle(
        self, session: CommandSession, offer: Offer, outcome: Outcome
    ) -> Command | Awaitable[Command]:
        if isinstance(outcome, Misfit):
            if properties_of(offer.schema):
                return self._ask(session, offer, outcome)
            notes: tuple[Note, ...] = (Note(type="error", text=outcome.sentence),)
            form = None
        else:
            notes, form = outcome.notes, outcome.form
        answer = Command(
            node=offer.node,
            sessionid=session.id,
            status="completed",
            notes=notes,
            form=form,
            lang=_LANG,
        )
        session.settle("ended", answer, None)
        return answer

    def _repeat(
        self, session: CommandSession, form: Form | None
    ) -> ReplyPayload | Awaitable[ReplyPayload]:
        """Answer a repetition like the original (FAC-006); refuse anything else."""
        if session.answer is not None and session.answer.status == "canceled":
            raise expired_session()
        if _content(form) != _content(session.given):
            raise errors.conflict("This session has been completed with another form.")
        if session.done is not None:
            return self._join(session, session.done)
        return session.repeated()

    @staticmethod
    async def _join(session: CommandSession, done: anyio.Event) -> Command:
        await done.wait()
        return session.repeated()

    def _cancel(self, session: CommandSession) -> Command:
        if session.stage == "running":
            raise bad_command(BadAction(), "The command is already running.")
        if session.stage == "open":
            answer = Command(node=session.node, sessionid=session.id, status="canceled", lang=_LANG)
            session.settle("ended", answer, None)
            return answer
        if session.answer is None or session.answer.status != "canceled":
            raise expired_session()
        return session.answer

    @staticmethod
    def _no_such_stage(session: CommandSession, action: str) -> StanzaError:
        if session.stage == "ended":
            return expired_session()
        return bad_command(
            BadAction(), f"This command has only one stage, so {action} is not possible."
        )


def _misfit_of(schema: Schema, reasons: Mapping[str, str]) -> Misfit:
    """Return what is wrong with a form, with the labels of its fields."""
    labels = {each.name: each.label for each in properties_of(schema)}
    said = [f"{labels.get(name, name)}: {reason}" for name, reason in reasons.items()]
    return Misfit(f"The form is not valid. {'; '.join(said).rstrip('.')}.", reasons)


def _asked(session: CommandSession) -> AdHocRequest:
    return AdHocRequest(
        principal=session.requester.bare,
        requester=session.requester,
        target=session.target,
        session=session.key,
        lang=session.lang,
    )


def _content(form: Form | None) -> object:
    return None if form is None else [(field.var, field.values) for field in form.fields]


class CommandNodes:
    """Answers disco#info and disco#items at the nodes of commands."""

    def __init__(self, offers: Sequence[Offers], room: int = PAGE_ROOM) -> None:
        self._room = room
        self._offers = offers

    def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery | None:
        """Return the list of commands, or one of them (XEP-0050 §2.2, §2.3)."""
        node = request.payload.node
        if node is None:
            return None
        if node == NAMESPACE:
            return _info(node, "command-list", "Commands", (disco.INFO, disco.ITEMS))
        offer = find_offer(self._offers, node, request.principal)
        if offer is None:
            return None
        return _info(node, "command-node", offer.title, (NAMESPACE, data_forms.NAMESPACE))

    def items(self, request: Request[disco.ItemsQuery]) -> disco.ItemsQuery | None:
        """Return a page of the commands for this principal; a command has no items."""
        query = request.payload
        if query.node is None:
            return None
        if query.node != NAMESPACE:
            found = find_offer(self._offers, query.node, request.principal)
            return None if found is None else disco.ItemsQuery(node=query.node)
        to, offers = address_asked(request), self._offers_of(request.principal)
        titles = Counter(offer.title.casefold() for offer in offers.values())
        more = {
            f"{USUAL_RANK}{node}": source
            for source in self._offers
            for node in source.listed(request.principal)
        }

        def item(key: str) -> tuple[disco.Item, int]:
            offer, node = offers.get(key), key[1:]
            name = more[key].title(node, request.principal) if offer is None else offer.title
            if offer is None or titles[name.casefold()] > 1:
                name += f" ({node.rpartition('/')[2]})"
            return sized(disco.Item(jid=to, node=node, name=name))

        return items_page(query, sorted((*offers, *more)), item, self._room)

    def _offers_of(self, principal: JID) -> Mapping[str, Offer]:
        """Return the commands of a principal by a key of a page: those of every day come first."""
        nodes = {node for offers in self._offers for node in offers.nodes(principal)}
        offers = [find_offer(self._offers, node, principal) for node in nodes]
        return {f"{offer.rank}{offer.node}": offer for offer in offers if offer is not None}


def _info(node: str, type_: str, name: str, features: tuple[str, ...]) -> disco.InfoQuery:
    return disco.InfoQuery(
        node=node,
        identities=(disco.Identity(category="automation", type=type_, name=name),),
        features=tuple([disco.Feature(var=feature) for feature in features]),
    )


_log = structlog.get_logger("component.commands")

_SKILL = "skill/"
_COMMAND = "command/"

RunSkill: TypeAlias = Callable[[AdHocRequest, str, bytes], Answer | Awaitable[Answer]]
"""Runs a skill as an execute request of the same principal would (FAC-005), with JSON parameters.

It may raise StanzaError, and so may its awaitable.
"""


class SkillOffers(Offers):
    """The skills of a view."""

    def __init__(self, view: Callable[[JID], View], run: RunSkill, retry_after_s: int = 5) -> None:
        self._view = view
        self._run = run
        self._retry_after_s = retry_after_s

    def nodes(self, principal: JID) -> Sequence[str]:
        """Return a node for each skill of the principal's view, and no other (FAC-001)."""
        return [_SKILL + skill.name for skill in self._view(principal).made()]

    def listed(self, principal: JID) -> Sequence[str]:
        """Return a node for each skill of a catalogue."""
        entries = self._view(principal).entries()
        return [_SKILL + one.name for one in entries if isinstance(one, ListedSkill)]

    def title(self, node: str, principal: JID) -> str:
        """Return the title of a skill."""
        skill = self._view(principal).entry(node.removeprefix(_SKILL))
        return "" if skill is None else skill.title

    def get(self, node: str, principal: JID) -> Offer | None:
        """Return the skill of a node."""
        if not node.startswith(_SKILL):
            return None
        skill = self._view(principal).get(node.removeprefix(_SKILL))
        if skill is None:
            return None
        return Offer(
            node=node,
            title=skill.title,
            about=skill.description,
            schema=skill.input_schema,
            form_type=EXECUTE,
            run=lambda asked, json: self._begin(skill, asked, json),
        )

    def _begin(
        self, skill: Skill, asked: AdHocRequest, json: msgspec.Raw
    ) -> Outcome | Awaitable[Outcome]:
        try:
            found = self._run(asked, skill.name, bytes(json))
        except StanzaError as error:
            return _refusal(skill, error)
        if isawaitable(found):
            return self._wait(skill, found)
        return _outcome(skill, found)

    async def _wait(self, skill: Skill, found: Awaitable[Answer]) -> Outcome:
        try:
            return _outcome(skill, await found)
        except StanzaError as error:
            return _refusal(skill, error)
        except StorageError as error:
            log_failure(_log, "the database refused", error)
            return _refusal(skill, unavailable(self._retry_after_s))


class CommandOffers(Offers):
    """The commands that are also slash commands."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def nodes(self, principal: JID) -> Sequence[str]:
        """Return a node for each command of the principal that is in menus. Those that list and
        run skills are not: each skill has a node of its own.
        """
        commands = self._commands.of(self._commands.asking(principal))
        return [_COMMAND + each.name for each in commands if each.in_menu]

    def get(self, node: str, principal: JID) -> Offer | None:
        """Return the command of a node."""
        if not node.startswith(_COMMAND):
            return None
        name = node.removeprefix(_COMMAND)
        command = self._commands.get(name, self._commands.asking(principal))
        if command is None:
            return None
        offer = Offer(
            node=node,
            title=command.title,
            about=f"{command.about[:1].upper()}{command.about[1:]}.",
            schema=command.schema,
            form_type=None,
            rank=0 if command.group == "everyday" else 2 if command.who == "everybody" else 3,
            run=lambda asked, json: self._do(command, asked, json),
        )
        if not command.choices:
            return offer
        return msgspec.structs.replace(offer, prepare=partial(self._prepare, command, offer))

    async def _prepare(self, command: AnyCommand, offer: Offer, asked: AdHocRequest) -> Offer:
        """Return a command with the values that a person can choose. Raises StorageError."""
        asking = self._commands.asking(asked.principal, asked.target, asked.lang, asked.requester)
        properties = dict(command.schema["properties"])
        for param, choices in command.choices.items():
            found = await choices(asking)
            titles = Counter(found.values())
            constants = [
                {"const": id_, "title": title if titles[title] == 1 else f"{title} ({id_})"}
                for id_, title in found.items()
            ]
            if constants:
                words = ("title", "description")
                kept = {key: properties[param][key] for key in words if key in properties[param]}
                properties[param] = {**kept, "anyOf": constants}
        return msgspec.structs.replace(offer, schema={**command.schema, "properties": properties})

    async def _do(self, command: AnyCommand, asked: AdHocRequest, json: msgspec.Raw) -> Outcome:
        asking = self._commands.asking(asked.principal, asked.target, asked.lang, asked.requester)
        asking = msgspec.structs.replace(asking, session=asked.session)
        try:
            answer: CommandResult = await command.run(asking, command.read(json=bytes(json)))
        except CommandError as error:
            if command.readers:
                return Misfit(str(error), {} if error.param is None else {error.param: str(error)})
            return Completed((Note(type="error", text=str(error)),))
        except StorageError as error:
            log_failure(_log, "a command failed", error, command=command.name)
            return Completed((Note(type="error", text=errors.internal().text),))
        return Completed(*of_answer(command.title, answer))


def _outcome(skill: Skill, found: Answer) -> Completed:
    if isinstance(found, Accepted):
        return Completed(*of_accepted(skill.title, found))
    return Completed(*of_result(skill.title, found))


def _refusal(skill: Skill, error: StanzaError) -> Outcome:
    """Return the outcome of a refusal. Raises StanzaError if the skill no longer exists."""
    text = error.text or error.condition.replace("-", " ")
    for condition in error.application:
        if isinstance(condition, errors.UnknownSkill):
            raise error
        if isinstance(condition, errors.InvalidParam):
            reason = text.removeprefix(f"{condition.name}: ")
            return _misfit_of(skill.input_schema, {condition.name: reason})
        if isinstance(condition, errors.Malformed):
            return Misfit(text, {})
    return Completed((Note(type="error", text=with_help(text, error.application)),))


# -- results: a note in words, and a form of type result for the rest -----------------------------

_SHOWN: Final = ("image/", "audio/", "video/")
CommandContent: TypeAlias = tuple[tuple[Note, ...], Form | None]


def of_result(title: str, result: Result) -> CommandContent:
    """Return the outputs of a skill, one field each; an error has a note of type error."""
    said = "\n".join(texts_of(result.outputs))
    if result.is_error:
        note = Note(type="error", text=without_forbidden(said or f"{title}: refused."))
    else:
        note = Note(type="info", text=f"{title}: done.")
    if not result.outputs:
        return (note,), None
    fields = (form_type_field(EXECUTE), *map(_output_field, result.outputs))
    return (note,), Form(type="result", title=title, fields=fields)


def _output_field(output: Output) -> Field:
    file = sent_file(output)
    if file is not None:
        return _file_field(output.name, file)
    # Converse shows what was entered again where a result has a field of the same type.
    field = _field(output.name, title_of(output.name), text_of(output))
    return msgspec.structs.replace(field, type="text-multi")


def _file_field(var: str, file: FileSharing) -> Field:
    """Return a field with the address of a file, which clients can also show (XEP-0221)."""
    about, url = file.file, file.sources.urls[0].target
    label = about.name or title_of(var)
    field = msgspec.structs.replace(_field(var, label, url), type="text-single")
    if not (about.media_type or "").startswith(_SHOWN):
        return field
    uri = MediaUri(type=about.media_type or "", target=url)
    media = Media(width=about.width, height=about.height, uris=(uri,))
    return msgspec.structs.replace(field, media=media)


def of_accepted(title: str, accepted: Accepted) -> CommandContent:
    """Return the result for work that continues as a task, with its id (FAC-007)."""
    text = f"{title}: this continues as a task. You will get messages about its progress."
    if accepted.state == "input-required":
        text += " It is waiting for an answer: see the message with the question."
    fields = (
        form_type_field(TASK),
        _field("task", "Task", accepted.task),
        _field("state", "State", accepted.state),
    )
    return (Note(type="info", text=text),), Form(type="result", title=title, fields=fields)


def of_answer(title: str, answer: CommandResult) -> CommandContent:
    """Return the text of a command's result, and its value if that is one row.

    A text of several lines is in a field, which clients scroll. Several rows are in the text alone:
    Gajim 1.7 shows nothing of a form with a table.
    """
    text = without_forbidden(answer.text)
    fields = _row(answer.value) if isinstance(answer.value, msgspec.Struct) else ()
    if "\n" in text:
        fields = (_field("answer", "Answer", text), *fields)
        text = f"{title}: done."
    files = [_file_field(f"file-{n}", file) for n, file in enumerate(answer.files, 1)]
    fields, text = (*fields, *files), text or f"{title}: done."
    form = Form(type="result", title=title, fields=fields) if fields else None
    return (Note(type="info", text=text),), form


def _field(var: str, label: str, text: str) -> Field:
    values: Sequence[str] = NEWLINE.split(without_forbidden(text))
    type_ = "text-multi" if len(values) > 1 else "text-single"
    return Field(var=var, type=type_, label=label, values=tuple(values))


def _row(row: msgspec.Struct) -> tuple[Field, ...]:
    values: dict[str, Any] = msgspec.to_builtins(row, enc_hook=str, str_keys=True)
    return tuple(
        [
            _field(name, _label(name), _text(values.get(name)))
            for name in (field.encode_name for field in msgspec.structs.fields(row))
        ]
    )


def _label(name: str) -> str:
    label = title_of(name.removesuffix(_SECONDS))
    return f"{label} in seconds" if name.endswith(_SECONDS) else label


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
