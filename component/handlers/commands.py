"""Ad-hoc commands (XEP-0050): skills and commands for every client that can show a form.

A command has one stage: the form that its schema makes (FAC-002), which comes back until it fits
(FAC-004); then the work, once. One without parameters runs at once.
"""

from collections.abc import Awaitable, Sequence
from inspect import isawaitable

import anyio
import msgspec

from component.handlers.command_offers import (
    Asked,
    Misfit,
    Offer,
    Offers,
    Outcome,
)
from component.handlers.command_sessions import Session, Sessions, expired, refused
from component.router.table import Answer, IQRoute, Request
from component.skills.forms import InvalidForm, form_of, values_of
from component.skills.schema_properties import properties_of
from xep import data_forms
from xep.commands import (
    NAMESPACE,
    Actions,
    BadAction,
    BadPayload,
    Command,
    Note,
)
from xep.data_forms import Form
from xep.fluux_agent import errors
from xep.jid import JID
from xep.stanza_error import StanzaError

_LANG = "en"
"""Of all that is said here."""


class CommandsHandler:
    """Runs commands, stage by stage.

    Args:
        offers: where commands come from; the first that knows a node has it.
        sessions: who is at which stage.
    """

    def __init__(self, offers: Sequence[Offers], sessions: Sessions) -> None:
        self._offers = offers
        self._sessions = sessions

    def routes(self) -> tuple[IQRoute, ...]:
        """The routes of this handler."""
        features = (NAMESPACE, data_forms.NAMESPACE)
        return (IQRoute("set", Command, self.command, features, place_first=True),)

    def command(self, request: Request[Command]) -> Answer | Awaitable[Answer]:
        """Begin a command, or go on with one.

        Raises StanzaError as XEP-0050 §4.4 says; work that fails completes with a note.
        """
        asked = request.payload
        action = asked.action or "execute"
        if asked.sessionid is None:
            if action != "execute":
                raise refused(BadAction(), f"A command begins with execute, not with {action}.")
            return self._begin(request)
        session = self._sessions.find(asked.sessionid, request.sender, request.to.bare, asked.node)
        if action == "cancel":
            return self._cancel(session)
        if action in ("prev", "next"):
            raise self._no_such_stage(session, action)
        if session.stage == "open":
            return self._submit(session, asked.form)
        return self._repeat(session, asked.form)

    def _begin(self, request: Request[Command]) -> Answer | Awaitable[Answer]:
        asked = request.payload
        offer = self._offer(asked.node, request.principal)
        lang = asked.lang or request.stanza.lang
        session = self._sessions.begin(request.sender, request.to.bare, offer.node, lang)
        if properties_of(offer.schema):
            return self._ask(session, offer)
        return self._run(session, offer, msgspec.Raw(b"{}"))

    def _offer(self, node: str, principal: JID) -> Offer:
        for offers in self._offers:
            offer = offers.get(node, principal)
            if offer is not None:
                return offer
        raise StanzaError("item-not-found", "There is no such command here.")

    @staticmethod
    def _ask(session: Session, offer: Offer, misfit: Misfit | None = None) -> Command:
        """The form, or the form once more with what was given and why it does not fit."""
        form = form_of(
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

    def _submit(self, session: Session, form: Form | None) -> Answer | Awaitable[Answer]:
        # A form of type cancel counts as submitted (XEP-0050 §3.6.1).
        if form is None or form.type not in ("submit", "cancel"):
            raise refused(BadPayload(), "Fill in the form, and send it with the type submit.")
        try:
            offer = self._offer(session.node, session.requester.bare)
        except StanzaError as error:
            session.settle("ended", None, error)
            raise
        session.given = form
        try:
            json = values_of(form, offer.schema, offer.form_type)
        except InvalidForm as error:
            return self._ask(session, offer, Misfit(_sentence(error), error.reasons))
        return self._run(session, offer, json)

    def _run(self, session: Session, offer: Offer, json: msgspec.Raw) -> Answer | Awaitable[Answer]:
        session.stage = "running"
        session.attempts += 1
        asked = Asked(
            principal=session.requester.bare,
            requester=session.requester,
            target=session.target,
            session=session.key,
            lang=session.lang,
        )
        try:
            outcome = offer.run(asked, json)
        except BaseException as error:
            session.settle("ended", None, _end(error))
            raise
        if isawaitable(outcome):
            session.done = anyio.Event()
            return self._wait(session, offer, outcome)
        return self._settle(session, offer, outcome)

    async def _wait(self, session: Session, offer: Offer, outcome: Awaitable[Outcome]) -> Command:
        try:
            found = await outcome
        except BaseException as error:
            # Given up or failed: nobody knows what it did, and it is not done again.
            session.settle("ended", None, _end(error))
            raise
        return self._settle(session, offer, found)

    def _settle(self, session: Session, offer: Offer, outcome: Outcome) -> Command:
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

    def _repeat(self, session: Session, form: Form | None) -> Answer | Awaitable[Answer]:
        """The same once more is answered alike (FAC-006); anything else comes too late."""
        if session.answer is not None and session.answer.status == "canceled":
            raise expired()
        if _content(form) != _content(session.given):
            raise errors.conflict("This session has been completed with another form.")
        if session.done is not None:
            return self._join(session, session.done)
        return session.repeated()

    @staticmethod
    async def _join(session: Session, done: anyio.Event) -> Command:
        await done.wait()
        return session.repeated()

    def _cancel(self, session: Session) -> Command:
        if session.stage == "running":
            raise refused(BadAction(), "The work has begun.")
        if session.stage == "open":
            answer = Command(node=session.node, sessionid=session.id, status="canceled", lang=_LANG)
            session.settle("ended", answer, None)
            return answer
        if session.answer is None or session.answer.status != "canceled":
            raise expired()
        return session.answer

    @staticmethod
    def _no_such_stage(session: Session, action: str) -> StanzaError:
        if session.stage == "ended":
            return expired()
        return refused(
            BadAction(), f"A command has one stage: there is nothing to be had by {action}."
        )


def _sentence(error: InvalidForm) -> str:
    said = "; ".join(f"{name}: {reason}" for name, reason in error.reasons.items())
    return f"The form does not fit. {said}."


def _content(form: Form | None) -> object:
    return None if form is None else [(field.var, field.values) for field in form.fields]


def _end(error: BaseException) -> StanzaError:
    """What a repetition is told after the work has ended in a way that no note says."""
    if isinstance(error, StanzaError):
        return error
    return errors.internal() if isinstance(error, Exception) else errors.outcome_unknown()
