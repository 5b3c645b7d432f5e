"""The command `/inbox`: lists what waits for a person, shows it, answers it and puts it away."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec

from component import system
from component.agent_addresses import canonical_address
from component.caches import LRUCache
from component.commands import (
    ANY_WORD,
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    Outline,
)
from component.features.inbox.answers import Answers
from component.features.inbox.entries import ARCHIVED, Entry, is_confirmation
from component.features.inbox.store import InboxStore
from component.features.inbox.texts import MOST_LISTED, line_text, list_text, row_of
from component.features.inbox.view import InboxView
from component.kernel.contacts import PersonZones
from component.task_messages.questions import Questions
from xep.jid import JID

_DONE: Final = "done"
_ALL: Final = "all"
_SHOW: Final = "show"
_ANSWER: Final = "answer"
_LONGEST_NUMBER: Final = 3
_MOST_LISTS: Final = 1_000


class InboxParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the inbox.

    Args:
        entry: Number of an entry in the list that I have shown you last, or its id. Default: list
            all.
        answer: What to do with it: the answer to its question (yes, no, no and why, or the words
            that it asks for), show, or done. Default: show it.
        action: The same, to choose from. The words of an answer or of a reason are then in answer.
    """

    entry: str = ""
    answer: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    action: Literal["show", "yes", "no", "answer", "done"] | None = None


INBOX = Outline(
    name="inbox",
    title="Inbox",
    about="list what waits for you: questions, failed tasks, results; NUMBER yes, NUMBER no, NUMBER"
    " show, or done NUMBER",
    params=InboxParams,
    verbatim={ANY_WORD: "answer"},
    group="plans",
)


class InboxCommands:
    """The command about the inbox.

    Args:
        store: has what people have put away.
        zones: finds the time zones of people.
    """

    def __init__(
        self,
        view: InboxView,
        answers: Answers,
        words: Questions,
        store: InboxStore,
        zones: PersonZones,
    ) -> None:
        self._view = view
        self._answers = answers
        self._words = words
        self._store = store
        self._zones = zones
        self._listed: LRUCache[tuple[JID, JID], Sequence[str]] = LRUCache(_MOST_LISTS)
        """The ids of the entries of the list that somebody was shown last, for their numbers."""
        self._shown: LRUCache[tuple[JID, str], None] = LRUCache(_MOST_LISTS)
        """The questions that somebody was shown here."""

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return it."""
        return (INBOX.done_by(self._inbox, {"entry": self._titles}),)

    async def _inbox(self, asking: Asking, params: InboxParams) -> CommandResult:
        person, at = _theirs(asking)
        given, words, action = params.entry.strip().casefold(), params.answer.strip(), params.action
        if given == _DONE:
            given, words, action = words.casefold(), "", "done"
        entries = await self._view.of(person, at)
        if not given:
            if action or words:
                raise CommandError("Say which entry: give its number in the list.", "entry")
            return await self._list(asking, entries)
        if given == _ALL and (action or words) == "done":
            return await self._put_away(
                person, at, [one for one in entries if one.kind in ARCHIVED]
            )
        entry = self._entry(person, at, given, entries)
        if action is None:
            action, words = _action_in(words)
        match action:
            case "show":
                return await self._show(asking, entry)
            case "done":
                return await self._put_away(person, at, [entry])
            case "no":
                words = f"no, {words}" if words else "no"
            case "yes":
                words = f"yes {words}".rstrip()
            case "answer":
                pass
        return await self._answer(asking, entry, words)

    async def _list(self, asking: Asking, entries: Sequence[Entry]) -> CommandResult:
        person, at = _theirs(asking)
        self._listed[person, canonical_address(at)] = [one.id for one in entries[:MOST_LISTED]]
        text = list_text(entries, system.now(), await self._zones.of_caller(asking))
        return CommandResult(text, [row_of(one) for one in entries], only_read=True)

    def _entry(self, person: JID, at: JID, given: str, entries: Sequence[Entry]) -> Entry:
        """Return the entry that a number of the last list, or an id, names. Raises CommandError."""
        wanted = given
        if given.isdecimal() and len(given) <= _LONGEST_NUMBER:
            listed = self._listed.get((person, canonical_address(at)), ())
            number = int(given)
            if not 0 < number <= len(listed):
                raise CommandError(
                    f"The list that I have shown you last has no entry {number}. Send /inbox first."
                    if listed
                    else "Send /inbox first: the numbers are those of the list that I show you.",
                    "entry",
                )
            wanted = listed[number - 1]
        found = next((one for one in entries if one.id == wanted), None)
        if found is None:
            raise CommandError(
                "This is not in your inbox any more: it was answered, sent or put away, or it has"
                " ended. /inbox lists what there is.",
                "entry",
            )
        return found

    async def _show(self, asking: Asking, entry: Entry) -> CommandResult:
        person, _ = _theirs(asking)
        if entry.question is not None:
            self._shown[person, entry.id] = None
            return CommandResult(self._words.whole(entry.question, person), only_read=True)
        line = line_text(entry, system.now(), await self._zones.of_caller(asking))
        parts = [f"{entry.title}: {line}"]
        if " ".join(entry.whole.split()) != entry.text:
            parts.append(entry.whole)
        if entry.task:
            parts.append(f"/task {entry.task} shows the task.")
        return CommandResult("\n\n".join(parts), row_of(entry), only_read=True)

    async def _answer(self, asking: Asking, entry: Entry, words: str) -> CommandResult:
        person, _ = _theirs(asking)
        question = entry.question
        if question is None:
            raise CommandError("This is not a question: write show, or done.", "answer")
        may_be_unknown = question.shown in ("withheld", "returned")
        if may_be_unknown and is_confirmation(entry) and (person, entry.id) not in self._shown:
            shown = await self._show(asking, entry)
            text = (
                f"My question may not have reached you. Here it is; answer it again:\n{shown.text}"
            )
            return CommandResult(text, only_read=True)
        return CommandResult(await self._answers.give(asking, person, question, words))

    async def _put_away(self, person: JID, at: JID, entries: Sequence[Entry]) -> CommandResult:
        if any(one.kind == "question" for one in entries):
            raise CommandError(
                "A question cannot be put away: answer it with yes, or no and why.", "entry"
            )
        await self._store.put_away(person, at, entries)
        count = len(entries)
        return CommandResult("1 entry put away." if count == 1 else f"{count} entries put away.")

    async def _titles(self, asking: Asking) -> Mapping[str, str]:
        person, at = _theirs(asking)
        now, zone = system.now(), await self._zones.of_caller(asking)
        return {
            one.id: f"{one.title}: {line_text(one, now, zone)}"
            for one in await self._view.of(person, at)
        }


def _theirs(asking: Asking) -> tuple[JID, JID]:
    if asking.principal is None or asking.at is None or asking.room is not None:
        raise CommandError("This works only in a direct chat over XMPP.")
    return asking.principal, asking.at


def _action_in(words: str) -> tuple[Literal["show", "done", "answer"], str]:
    """Return what words after an entry ask for, and the answer that they give."""
    first, *rest = words.split(maxsplit=1) or ["show"]
    if first.casefold() == _ANSWER and rest:
        return "answer", rest[0]
    if words.casefold() in ("", _SHOW):
        return "show", ""
    return ("done", "") if words.casefold() == _DONE else ("answer", words)
