"""The command about plans: show, start, revise, pause, resume and cancel them. It uses no model."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, NoReturn

import msgspec
from msgspec import Meta

from component import DEFAULT_AGENT, system
from component.commands import (
    SEVERAL_LINES,
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    Outline,
)
from component.features.plans.service import Plans, StoredPlan, UnknownPlanError
from component.kernel.triggers import Work
from component.plans import picture
from component.plans.checks import faults
from component.plans.document import Plan, PlanError, read_plan
from component.plans.rows import Proposal
from component.tasks.protocol import CannotShare
from xep.jid import JID
from xep.stanza_error import StanzaError

_SHOWN_ID: Final = 8
_NOT_OPEN: Final = "This plan has ended."


class PlanParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the command.

    Args:
        action: show, list, picture, start, revise, pause, resume or cancel.
        plan: ID of the plan, or its beginning. Not needed if you have only one.
        text: With start, the plan as JSON or TOML. With revise, the whole revised plan, or what is
            to be changed, in words. With pause, the reason.
    """

    action: Literal["show", "list", "picture", "start", "revise", "pause", "resume", "cancel"] = (
        "show"
    )
    plan: Annotated[str, Meta(max_length=64)] = ""
    text: Annotated[str, Meta(max_length=100_000), SEVERAL_LINES] = ""


class PlanLine(msgspec.Struct, frozen=True):
    """A plan for programs."""

    plan: str
    title: str
    state: str
    revision: int
    steps: dict[str, str]


PLAN = Outline(
    name="plan",
    title="Plans",
    about="show a plan and how its steps stand; start, revise, pause, resume or cancel one",
    params=PlanParams,
    verbatim={"start": "text", "revise": "text"},
    group="plans",
)


class PlanCommands:
    """The command about plans."""

    def __init__(self, plans: Plans, *, has_model: bool) -> None:
        self._plans = plans
        self._has_model = has_model

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (PLAN.done_by(self._plan),)

    async def _plan(self, asking: Asking, params: PlanParams) -> CommandResult:
        principal = asking.principal
        if principal is None:
            raise CommandError("Plans belong to people: use this command over XMPP.")
        if asking.room is not None:
            raise CommandError("Plans are for direct conversations: write to me directly.")
        if params.action == "start":
            return await self._start(asking, principal, params)
        try:
            if params.action == "list":
                found = await self._plans.list(principal)
                text = "\n".join(map(_line, found)) or "There are no plans."
                return CommandResult(text, [_row(one) for one in found])
            id_, text = params.plan, params.text.strip()
            if params.action == "revise" and not id_:
                id_, text = await self._split(principal, text)
            stored = await self._plans.find(principal, id_)
        except UnknownPlanError as error:
            raise CommandError(str(error), "plan") from None
        if params.action == "show":
            return CommandResult(_sheet(stored), _row(stored))
        if params.action == "picture":
            return await self._picture(stored)
        if not stored.is_open:
            raise CommandError(_NOT_OPEN, "plan")
        match params.action:
            case "revise":
                said = await self._revise(stored, principal, text)
            case "cancel":
                said = await self._cancel(stored)
            case "pause":
                changed = await self._plans.pause(stored, text or "You have paused it.")
                said = "Paused: running steps end, and no other begins." if changed else ""
                said = said or "It is paused already."
            case _:
                changed = await self._plans.pause(stored, None)
                said = "It goes on." if changed else "It is not paused."
        return CommandResult(said, _row(stored))

    async def _start(self, asking: Asking, principal: JID, params: PlanParams) -> CommandResult:
        plan = _read(params.text)
        work = Work(agent=asking.agent or DEFAULT_AGENT, principal=principal, at=asking.at)
        try:
            task = await self._plans.start(plan, asking.session or system.token_hex(16), work)
        except StanzaError as error:
            raise CommandError(error.text or f"It was refused: {error.condition}.") from None
        return CommandResult(f"Started: {plan.title} ({task[:_SHOWN_ID]}).", task=task)

    async def _picture(self, stored: StoredPlan) -> CommandResult:
        """Return a picture of the steps, or a drawing where files cannot be sent."""
        drawing = picture.text(stored.steps)
        try:
            file = await self._plans.picture(stored)
        except CannotShare as error:
            problem = f"I cannot send a picture: {error}."
            return CommandResult(f"{drawing}\n{problem}", _row(stored), only_read=True)
        return CommandResult(_sheet(stored), _row(stored), files=(file,))

    async def _split(self, principal: JID, text: str) -> tuple[str, str]:
        """Return the id at the beginning of a text, and the rest; no id if the text has none."""
        first, _, rest = text.partition(" ")
        known = [one.row.task for one in await self._plans.list(principal)]
        if len(first) >= 4 and any(one.startswith(first) for one in known):
            return first, rest.strip()
        return "", text

    async def _revise(self, stored: StoredPlan, principal: JID, text: str) -> str:
        row = stored.row
        if not text:
            raise CommandError(
                "Say what is to be changed: /plan revise ID and your words, or the whole plan as"
                " JSON or TOML.",
                "text",
            )
        if text.startswith(("{", "title")):
            made = await self._plans.propose(
                stored, row.revision, Proposal(_read(text), str(principal), row.taints)
            )
            said = "The plan goes on as you have revised it, once it has what it needs of you."
            return said if made else _changed()
        if not self._has_model:
            raise CommandError(
                "No language model is set up that could revise it: give the whole plan as JSON or"
                " TOML.",
                "text",
            )
        made = await self._plans.wish(stored, text)
        return "I revise the plan, and show you the difference." if made else _changed()

    async def _cancel(self, stored: StoredPlan) -> str:
        try:
            await self._plans.cancel(stored)
        except StanzaError as error:
            raise CommandError(error.text or "It cannot be cancelled.") from None
        return f"Cancelled: {stored.row.plan.title}. This is what was done:\n{stored.states}"


def _changed() -> NoReturn:
    raise CommandError("The plan has just changed: look at it again with /plan, and repeat this.")


def _read(text: str) -> Plan:
    try:
        plan = read_plan(text)
    except PlanError as error:
        raise CommandError(str(error), "text") from None
    found = faults(plan)
    if found:
        raise CommandError("\n".join(found), "text")
    return plan


def _state(stored: StoredPlan) -> str:
    paused = stored.row.paused
    if paused is not None and stored.is_open:
        return f"paused ({paused.rstrip('.')})"
    return {"input-required": "waits for an answer", "accepted": "waits"}.get(
        stored.state, stored.state
    )


def _line(stored: StoredPlan) -> str:
    row = stored.row
    return f"- {row.task[:_SHOWN_ID]} {row.plan.title}: {_state(stored)}"


def _sheet(stored: StoredPlan) -> str:
    row = stored.row
    revision = "" if row.revision == 1 else f", revision {row.revision}"
    return (
        f"*{row.plan.title}* ({row.task[:_SHOWN_ID]}{revision}): {_state(stored)}\n{stored.states}"
    )


def _row(stored: StoredPlan) -> PlanLine:
    row = stored.row
    states: Sequence[tuple[str, str]] = [(id_, one.state) for id_, one in row.steps.items()]
    return PlanLine(row.task, row.plan.title, stored.state, row.revision, dict(states))
