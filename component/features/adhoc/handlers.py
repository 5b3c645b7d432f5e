"""Ad-hoc commands (XEP-0050): skills and commands for every client that supports forms.

A command has one stage: the form made from its schema (FAC-002), which is returned until it is
valid (FAC-004); then the work, once. A command without parameters runs at once.

In service discovery the commands are a list, and each is a node (XEP-0050 §2).
"""

from collections.abc import Awaitable, Sequence
from inspect import isawaitable
from typing import Final

import anyio
import msgspec

from component.features.adhoc.sessions import (
    CommandSession,
    CommandSessions,
    bad_command,
    expired,
)
from component.kernel.adhoc import AdHocRequest, Misfit, Offer, Offers, Outcome, find_offer
from component.kernel.paging import address_asked, page, sized
from component.link.router.table import IQRoute, ReplyPayload, Request
from component.skills.errors import printable
from component.skills.form_fields import properties_of
from component.skills.forms import InvalidForm, form_values, schema_form
from xep import data_forms, disco
from xep.commands import (
    NAMESPACE,
    Actions,
    BadAction,
    BadPayload,
    Command,
    MalformedAction,
    Note,
)
from xep.data_forms import Form
from xep.fluux_agent import errors
from xep.jid import JID
from xep.result_sets import PAGE_ROOM
from xep.stanza_error import StanzaError

_LANG = "en"
"""The language of all texts here."""


_ACTIONS: Final = frozenset(("execute", "cancel", "prev", "next", "complete"))
_LONGEST: Final = 40


class CommandsHandler:
    """Runs commands, stage by stage.

    Args:
        offers: the sources of commands; the first that has a node serves it.
        sessions: the sessions and their stages.
    """

    def __init__(self, offers: Sequence[Offers], sessions: CommandSessions) -> None:
        self._offers = offers
        self._sessions = sessions

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        features = (NAMESPACE, data_forms.NAMESPACE)
        return (IQRoute("set", Command, self.command, features, place_first=True),)

    def command(self, request: Request[Command]) -> ReplyPayload | Awaitable[ReplyPayload]:
        """Start a command, or continue one.

        Raises StanzaError as in XEP-0050 §4.4; work that fails completes with a note.
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
        if offer.prepare is not None:
            return self._prepared(session, offer.prepare(_asked(session)))
        if properties_of(offer.schema):
            return self._ask(session, offer)
        return self._run(session, offer, msgspec.Raw(b"{}"))

    async def _prepared(self, session: CommandSession, preparing: Awaitable[Offer]) -> Command:
        try:
            return self._ask(session, await preparing)
        except StanzaError as error:
            session.settle("ended", None, error)
            raise

    def _offer(self, node: str, principal: JID) -> Offer:
        offer = find_offer(self._offers, node, principal)
        if offer is None:
            raise StanzaError("item-not-found", "This address has no such command.")
        return offer

    @staticmethod
    def _ask(session: CommandSession, offer: Offer, misfit: Misfit | None = None) -> Command:
        """Return the form; after invalid input with the given values and the reasons."""
        form = schema_form(
            offer.schema,
            offer.form_type,
            title=offer.title,
            instructions=offer.about,
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
        try:
            offer = self._offer(session.node, session.requester.bare)
        except StanzaError as error:
            session.settle("ended", None, error)
            raise
        session.given = form
        try:
            json = form_values(form, offer.schema, offer.form_type)
        except InvalidForm as error:
            return self._ask(session, offer, Misfit(_sentence(error), error.reasons))
        return self._run(session, offer, json)

    def _run(
        self, session: CommandSession, offer: Offer, json: msgspec.Raw
    ) -> ReplyPayload | Awaitable[ReplyPayload]:
        session.stage = "running"
        session.attempts += 1
        try:
            outcome = offer.run(_asked(session), json)
        except BaseException as error:
            session.settle("ended", None, _end(error))
            raise
        if isawaitable(outcome):
            session.done = anyio.Event()
            return self._wait(session, offer, outcome)
        return self._settle(session, offer, outcome)

    async def _wait(
        self, session: CommandSession, offer: Offer, outcome: Awaitable[Outcome]
    ) -> Command:
        try:
            found = await outcome
        except BaseException as error:
            # Cancelled or failed: its effect is unknown, and it is not run again.
            session.settle("ended", None, _end(error))
            raise
        return self._settle(session, offer, found)

    def _settle(self, session: CommandSession, offer: Offer, outcome: Outcome) -> Command:
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
            raise expired()
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
            raise expired()
        return session.answer

    @staticmethod
    def _no_such_stage(session: CommandSession, action: str) -> StanzaError:
        if session.stage == "ended":
            return expired()
        return bad_command(
            BadAction(), f"This command has only one stage, so {action} is not possible."
        )


def _asked(session: CommandSession) -> AdHocRequest:
    return AdHocRequest(
        principal=session.requester.bare,
        requester=session.requester,
        target=session.target,
        session=session.key,
        lang=session.lang,
    )


def _sentence(error: InvalidForm) -> str:
    said = "; ".join(f"{name}: {reason}" for name, reason in error.reasons.items())
    return f"The form is not valid. {said}."


def _content(form: Form | None) -> object:
    return None if form is None else [(field.var, field.values) for field in form.fields]


def _end(error: BaseException) -> StanzaError:
    """Return the error for a repetition after the work has ended in a way that a note cannot
    express.
    """
    if isinstance(error, StanzaError):
        return error
    return errors.internal() if isinstance(error, Exception) else errors.outcome_unknown()


class CommandNodes:
    """Answers disco#info and disco#items at the nodes of commands.

    Args:
        offers: where commands come from.
        room: the bytes that the entries of a page may take.
    """

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
        to, principal = address_asked(request), request.principal

        def item(node: str) -> tuple[disco.Item, int]:
            offer = find_offer(self._offers, node, principal)
            return sized(disco.Item(jid=to, node=node, name=None if offer is None else offer.title))

        nodes = sorted(node for offers in self._offers for node in offers.nodes(principal))
        items, which = page(nodes, query.page, item, self._room)
        return disco.ItemsQuery(node=query.node, items=items, page=which)


def _info(node: str, type_: str, name: str, features: tuple[str, ...]) -> disco.InfoQuery:
    return disco.InfoQuery(
        node=node,
        identities=(disco.Identity(category="automation", type=type_, name=name),),
        features=tuple([disco.Feature(var=feature) for feature in features]),
    )
