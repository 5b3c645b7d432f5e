"""Renders questions to people as messages that any client shows (specification, "The Question").

`component.task_messages.value_rendering` renders values so that they can neither hide anything nor
pose as part of the question.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timezone
from functools import partial
from typing import Any, Final, TypedDict, Unpack

from component import system
from component.link.messages.inbound import THUMBS_DOWN, THUMBS_UP, Reference, ReplyAddress
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.skills.errors import printable
from component.skills.form_fields import properties_of
from component.skills.skill import Skill
from component.task_messages import approvals
from component.task_messages.confirmation_wording import Wording, as_given, name_of, wording_of
from component.task_messages.spoken_answers import (
    ALWAYS,
    choice_name,
    has_numbers,
    how_to_decline,
    may_follow,
    names_in_order,
    suggestions,
    takes_words,
)
from component.task_messages.value_rendering import (
    look_alikes,
    printable_name,
    shown_parameters,
    visible,
)
from component.tasks.protocol import Question
from component.tasks.questions import SEVERAL_CALLS, only_value, schema_of
from component.zones import duration, in_local_time
from xep.binding import Payload
from xep.binding.escaping import without_forbidden
from xep.fluux_agent.confirm import Confirm, parameters_of
from xep.fluux_agent.task import Input
from xep.jid import JID
from xep.quick_responses import Action, Response

_LONGEST_VALUE: Final = 200
_LONGEST_QUESTION: Final = 2_000
_MOST_OF_ALL: Final = 20_000
_MORE: Final = "… (the question itself shows more)"
_MOST_RESPONSES: Final = 10
_MOST_CHOSEN: Final = 10
_MOST_LISTED: Final = 50
_LANG: Final = "en"


class _More(TypedDict, total=False):
    payloads: tuple[Payload, ...]
    replies_to: Reference


SHORT_ID: Final = 4
"""The minimum number of characters of an identifier that identify it, if they are unique."""


class Questions:
    """Renders questions as messages.

    Args:
        skill: returns a skill by its name; None if it does not exist.
        zone: returns the time zone of a person (a bare JID), if known.
        clock: the time, in UTC.
    """

    def __init__(
        self,
        skill: Callable[[str], Skill | None] = lambda _: None,
        zone: Callable[[JID], timezone | None] = lambda _: None,
        clock: Callable[[], datetime] = system.now,
    ) -> None:
        self._skill = skill
        self._zone = zone
        self._clock = clock

    def messages(self, question: Question) -> Sequence[OutboundMessage]:
        """Return the messages of a question: one to the bare JID of each person asked (CNF-008).

        An input of a task that did not come from a conversation is asked by its event alone
        (EVT-007): then there are no messages.
        """
        if isinstance(question.content, Confirm):
            payloads: tuple[Payload, ...] = (question.content, *_buttons(question.content))
        elif question.request.conversational:
            payloads = (question.content, *_responses(suggestions(question.content)))
        else:
            return ()
        return tuple(
            [
                _message(question, jid, question.id, self.body(question, jid), payloads=payloads)
                for jid in question.asked
            ]
        )

    def lapsed(self, question: Question, to: JID) -> OutboundMessage:
        """Return the message that tells a person that a question has expired (CNF-056)."""
        done = (
            "I have not done it" if isinstance(question.content, Confirm) else "I cannot continue"
        )
        body = f"The question has expired, so {done}: {self.title_of(question)}"
        names = Reference(question.id, is_ours=True)
        return _message(question, to, f"{question.id}.lapsed", body, replies_to=names)

    def title_of(self, question: Question) -> str:
        """Return a question in one short line: the action, and the person for whom it would run."""
        if isinstance(question.content, Confirm):
            words = self._wording(question.content, question.request.principal)
            whose = self._whose(question)
            line = f"for {whose}: {words.action}" if whose else words.action
            if words.lines:
                return f"{line[:_LONGEST_VALUE]}{_MORE}"
        else:
            line = visible(" ".join(question.content.questions[0].text.split()))
        if len(line) <= _LONGEST_VALUE:
            return line
        return f"{line[:_LONGEST_VALUE]}{_MORE}"

    def listed(self, question: Question) -> str:
        """Return `title_of` with the principal and the time, to distinguish similar questions."""
        principal = str(question.request.principal)
        whose = "" if self._names_principal(question) else f", for {printable_name(principal)}"
        ago = duration(self._clock() - question.put_at)
        operator = question.request.caller_context.operator
        told = f", requested by {_named(operator)}" if operator else ""
        return f"{self.title_of(question)}{whose}{told}, asked {ago} ago"

    def body(self, question: Question, to: JID) -> str:
        """Return the text of a question to a person."""
        if isinstance(question.content, Confirm):
            return self._confirmation(question, question.content, to)
        return self._input(question.content, to)

    def whole(self, question: Question, to: JID) -> str:
        """Return everything about a question to a person: for a confirmation also the name, version
        and description of its skill, and the parameters at their defaults.
        """
        if not isinstance(question.content, Confirm):
            return self._input(question.content, to, most=_MOST_OF_ALL)
        action = question.content.action
        skill = self._known(action.type, action.version)
        name = f"{printable_name(action.type)} {printable(action.version or '', _LONGEST_VALUE)}"
        title = "" if skill is None else f"{name_of(skill)}. {_in_one_line(skill.description)}\n"
        whose = printable_name(str(question.request.principal))
        given = shown_parameters(parameters_of(action)).lines
        answer = f"{ANSWER_LINE} yes or no{self._until(question.content.expires, to)}."
        offer = _offer(question.content)
        return "\n".join((f"{title}Skill: {name}", f"For: {whose}", *given, "", answer, *offer))

    def _confirmation(self, question: Question, confirm: Confirm, to: JID) -> str:
        """Return the action, its parameters, when the question expires, and how to answer it
        (CNF-009).

        Short parameters are part of the sentence. Long ones follow it, so that a client which
        truncates the message does not hide how to answer.
        """
        words = self._wording(confirm, to, hides=not question.request.caller_context.chosen)
        answer = f"{ANSWER_LINE} yes or no{self._until(confirm.expires, to)}."
        if confirm.approvals is not None:
            answer = f"{answer} {approvals.needed(confirm.approvals)}".rstrip()
            if confirm.approvals.room is not None:
                answer += f" {printable_name(str(confirm.approvals.room.jid))} is asked, too."
        if words.cut:
            answer += " Not everything is shown below."
        elif words.hidden:
            answer += " Say *show all* to see everything."
        asks = self._asks(question, confirm, words)
        lines = ("", *words.lines) if words.lines else ()
        return "\n".join((f"{asks} {answer}", *_offer(confirm), *lines))

    def in_room(self, question: Question, state: str, *, is_open: bool = True) -> str:
        """Return the text of a confirmation for the room that decides it. `state` says who has
        decided so far; a question that is not open any more says nothing of how to answer.
        """
        confirm = question.content
        assert isinstance(confirm, Confirm), "rooms decide nothing else"
        assert confirm.approvals is not None
        assert confirm.approvals.room is not None
        room = confirm.approvals.room
        words = self._wording(confirm, room.jid, hides=False)
        said = [self._asks(question, confirm, words)]
        if is_open:
            until = (
                "" if confirm.expires is None else f" before {confirm.expires:%Y-%m-%d %H:%M %Z}"
            )
            how = (
                f"React with {THUMBS_UP} to approve or with {THUMBS_DOWN} to deny, reply yes or no"
            )
            short = question.id[:SHORT_ID]
            said += (
                f"{how}, or write my name and *yes {short}* or *no {short}*{until}.",
                f"It is decided by {approvals.occupants(room)}.",
                approvals.needed(confirm.approvals),
            )
        if words.cut:
            said.append("Not everything is shown below.")
        text = " ".join(filter(None, said))
        lines = ("", *words.lines) if words.lines else ()
        return "\n".join((text, *lines, *(("", state) if state else ())))

    def _asks(self, question: Question, confirm: Confirm, words: Wording) -> str:
        """Return the sentence that asks for a confirmation, and why it is asked."""
        cause = question.request.caller_context
        asks = words.sentence
        if whose := self._whose(question):
            asks = f"For {whose}: {asks}"
        if confirm.agent is not None:
            name = printable_name(question.request.skill)
            asks = f"{printable_name(str(confirm.agent))} would do this, for {name}: {asks}"
        if cause.chosen:
            names = _listed([printable_name(one) for one in cause.chosen[:_MOST_CHOSEN]])
            asks = f"After reading text that others wrote, I chose {names}. {asks}"
        if cause.operator:
            asks = f"This is not your own request, but one of {_named(cause.operator)}. {asks}"
        return asks

    def _wording(self, confirm: Confirm, to: JID, *, hides: bool = True) -> Wording:
        """Return the action of a confirmation in words for a person."""
        action = confirm.action
        values = parameters_of(action)
        if action.type == SEVERAL_CALLS:
            return self._several(values, to)
        return self._call(action.type, action.version, values, to, hides=hides)

    def _several(self, calls: Mapping[str, Any], to: JID) -> Wording:
        """Return the calls of a confirmation for several, numbered as their names are."""
        lines: list[str] = []
        for label, values in calls.items():
            number, _, named = label.partition(". ")
            name, _, version = named.rpartition(" ")
            call = self._call(name, version, values, to, hides=False)
            lines += (f"{number}. {call.action}", *call.lines)
        return Wording(f"May I do these {len(calls)} things?", tuple(lines))

    def _call(
        self, name: str, version: str | None, values: Mapping[str, Any], to: JID, *, hides: bool
    ) -> Wording:
        """Return a call of a skill in words for a person."""
        skill = self._known(name, version)
        if skill is None:
            return as_given(name, values)
        return wording_of(skill, values, partial(self._local, to), hides=hides)

    def _local(self, to: JID, time: datetime) -> str:
        return in_local_time(time, self._clock(), self._zone(to.bare) or UTC)

    def _input(self, question: Input, to: JID, most: int = _LONGEST_QUESTION) -> str:
        """Return the question, how to answer it, and when it expires (EVT-006); of a longer text
        only the first `most` characters.
        """
        said = visible(question.questions[0].text.strip(), keep="\n\t")
        if len(said) > most:
            said = f"(first {most:,} of {len(said):,} characters shown)\n\n{said[:most]}…"
        choices = suggestions(question)
        listed = _choices_of(question)
        how = "here" if takes_words(question) else "with the form"
        if not takes_words(question) and (names := _listed(names_in_order(question))):
            how = f"with the form, or with /answer and then {names}"
        if takes_words(question) and listed:
            declared = only_value(question)
            several = declared is not None and declared.kind == "choices"
            how = "with some of these, separated by commas" if several else "with one of these"
            if declared is not None and has_numbers(declared):
                how += ", or with numbers" if several else ", or with its number"
        elif 0 < len(choices) <= _MOST_RESPONSES:
            how = f"with {' or '.join(printable(one, _LONGEST_VALUE) for one in choices)}"
        more = _listed(may_follow(question))
        also = f" You may add {more} after it." if more else ""
        also += f" {how_to_decline(question)}"
        return f"{said}\n\n{listed}{ANSWER_LINE} {how}{self._until(question.expires, to)}.{also}"

    def _until(self, expires: datetime | None, to: JID) -> str:
        if expires is None:
            return ""
        zone, now = self._zone(to.bare), self._clock()
        if zone is None:
            return f" within {duration(expires - now)}"
        return f" before {in_local_time(expires, now, zone)}"

    def _whose(self, question: Question) -> str:
        """Return for whom an action would run, if somebody else is also asked."""
        if not self._names_principal(question):
            return ""
        principal = str(question.request.principal)
        return f"{printable_name(principal)}{look_alikes(principal)}"

    @staticmethod
    def _names_principal(question: Question) -> bool:
        """Return whether the question names its principal, because somebody else is asked."""
        if not isinstance(question.content, Confirm):
            return False
        return question.content.approvals is not None or any(
            jid != question.request.principal for jid in question.asked
        )

    def _known(self, name: str, version: str | None) -> Skill | None:
        """Return the skill as it was when the question was asked; None if it has another version
        now.
        """
        skill = self._skill(name)
        return skill if skill is not None and skill.version == version else None


def _in_one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def _named(operator: str) -> str:
    return "my operator" if operator == "operator" else f"my operator {printable_name(operator)}"


def _message(
    question: Question, to: JID, id_: str, body: str, **more: Unpack[_More]
) -> OutboundMessage:
    return OutboundMessage(
        id=id_,
        conversation=conversation_with(question.request.target, to, question.thread),
        to=ReplyAddress(str(to), question.request.target, "chat", question.thread),
        parts=(Text(body, _LANG),),
        must_arrive=True,
        asks_for_reports=True,
        **more,
    )


def _choices_of(question: Input) -> str:
    properties = properties_of(schema_of(question))
    declared = only_value(question)
    paragraphs = []
    for each in properties:
        titled = any(one.label for one in each.choices)
        few = len(each.choices) <= _MOST_RESPONSES
        is_only = declared is not None and each.name == declared.name
        if not each.choices or (is_only and each.kind == "choice" and few and not titled):
            continue
        lines = [f"{printable_name(each.title or each.name)}:"] if len(properties) > 1 else []
        for number, one in enumerate(each.choices[:_MOST_LISTED], 1):
            mark = f"{number}." if has_numbers(each) else "-"
            lines.append(f"{mark} {printable(choice_name(each, one), _LONGEST_VALUE)}")
        if len(each.choices) > _MOST_LISTED:
            lines.append(f"… and {len(each.choices) - _MOST_LISTED} more, which the form shows.")
        paragraphs.append("\n".join(lines))
    return "".join(f"{one}\n\n" for one in paragraphs)


def _listed(names: Sequence[str]) -> str:
    return printable(", ".join(names), _LONGEST_VALUE)


def _offer(confirm: Confirm) -> tuple[str, ...]:
    """Return the line that offers a standing approval, if the question does (CNF-080)."""
    offer = confirm.standing
    return () if offer is None else (f"Or answer *{ALWAYS}*. {offer.text.text}",)


def _buttons(confirm: Confirm) -> tuple[Payload, ...]:
    """Quick responses (CNF-014, CNF-082)."""
    always = () if confirm.standing is None else (ALWAYS,)
    return (
        *_responses(("yes", "no", *always)),
        Action(id=f"approve:{confirm.id}", label="Yes", lang=_LANG),
        Action(id=f"deny:{confirm.id}", label="No", lang=_LANG),
        *(Action(id=f"{each}:{confirm.id}", label="Always", lang=_LANG) for each in always),
    )


def _responses(values: Sequence[str]) -> tuple[Payload, ...]:
    if len(values) > _MOST_RESPONSES:
        return ()
    return tuple([Response(value=without_forbidden(value), lang=_LANG) for value in values])


ANSWER_LINE: Final = "Please answer"
"""Begins the sentence of a question that says how to answer it, and until when."""
_MARK: Final = ">"


def split_quotation(text: str) -> tuple[str, str]:
    """Return the quoted lines at the beginning of a text, without their marks, and the rest."""
    lines = text.split("\n")
    count = next((at for at, line in enumerate(lines) if not line.startswith(_MARK)), len(lines))
    quoted = "\n".join(line.removeprefix(_MARK).strip() for line in lines[:count])
    return quoted, "\n".join(lines[count:]).strip()


def is_quoted(body: str, quoted: str) -> bool:
    """Return whether a quotation quotes a question with that body.

    It may omit the end of the question, and have a line with a name or a time before it. The expiry
    is ignored, because its wording changes over time.
    """
    asked, copied = _words(body), _words(quoted)
    return bool(asked and copied) and (copied in asked or asked in copied)


def _words(text: str) -> str:
    return " ".join(text.partition(ANSWER_LINE)[0].split())
