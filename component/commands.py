"""Commands: each is defined once, for ad-hoc commands, slash commands and the command line.

The fields of `params` are the form, the words after the slash and the options of the command line;
`run` does the work; the answer is a text for people and a value for programs.
"""

import re
import shlex
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import inspect as types

from component.audit.protocol import AuditEvent, Recorder
from component.memory_directory.layout import SessionKey
from component.skills.errors import InvalidParam
from component.skills.params import Reader, fill_struct, reader_of
from component.skills.schema import field_texts, ordered_schema, read_docstring
from component.skills.spec import title_of
from xep.file_sharing import FileSharing
from xep.jid import JID, JIDError

P = TypeVar("P", bound=msgspec.Struct)

Who = Literal["everybody", "admin"]
"""Who may use a command."""
Group = Literal[
    "everyday", "plans", "conversation", "contact", "tasks", "agents", "skills", "people", "more"
]
GROUPS: Final[Mapping[Group, str]] = {
    "everyday": "Every day",
    "plans": "Plans, your inbox and your objects",
    "conversation": "You and this conversation",
    "contact": "When I write to you",
    "tasks": "Tasks and files",
    "agents": "Agents",
    "skills": "Installed skills",
    "people": "People",
    "more": "More",
}
"""The groups of commands in the order of the help text, and their titles. Each has at most seven
commands, so that people can take them in.
"""

SEVERAL_LINES = msgspec.Meta(extra_json_schema={"contentMediaType": "text/plain"})
"""Marks a text that may have several lines."""

Value: TypeAlias = msgspec.Struct | Sequence[msgspec.Struct] | None
"""The result of a command for programs."""


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a command: a principal, or the operator of this machine, who has no XMPP
    address.

    `client` is the full JID of the caller, if known, `at` the address of this service that received
    the command, `agent` the name of the agent there (empty for the default one), `lang` the
    language of the request; `admin` says whether the caller may use commands for admins. `session`
    is the same for a repetition of the request, such as a message that a client sends again. `room`
    is the room in which the command was called, or the occupant who called it in private: commands
    about conversations and memories are about that. `unclear` says as a clause why the chat message
    may not be what its author says; such a message must not approve anything. `Commands.asking`
    creates it.
    """

    principal: JID | None = None
    client: JID | None = None
    at: JID | None = None
    agent: str = ""
    lang: str | None = None
    admin: bool = False
    session: str | None = None
    room: JID | None = None
    unclear: str = ""

    @property
    def caller(self) -> str:
        """The name of the caller in logs and in the audit log; that of the operator is
        `operator`.
        """
        return "operator" if self.principal is None else str(self.principal)


OPERATOR = Asking(admin=True)
"""The operator: a user who can open the data directory may run every command."""


class CommandResult(msgspec.Struct, frozen=True):
    """The result of a command: a text for people, and the same as a value, one row or several.

    `task` is the task as which it continues; `only_read` says that it had no effect. `files` are
    sent to the person after the text.
    """

    text: str
    value: Value = None
    task: str = ""
    only_read: bool = False
    files: tuple[FileSharing, ...] = ()


class CommandError(Exception):
    """A command cannot be executed; the message is one sentence for the caller.

    `param` is the name of the invalid parameter, if there is one.
    """

    def __init__(self, sentence: str, param: str | None = None) -> None:
        """Create the error from the sentence and the name of the parameter."""
        super().__init__(sentence)
        self.param = param


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a command that has none."""


_NONE: Final[Mapping[str, Any]] = {}


class Outline(msgspec.Struct, Generic[P], frozen=True, eq=False, kw_only=True, dict=True):
    """The definition of a command without its implementation: the source of help, forms and the
    command line.

    Attributes:
        name: one word, in lower case; the slash command is `/name`.
        title: the text in a menu.
        about: one line on what it does, without a full stop.
        params: a Struct with `forbid_unknown_fields`. Its fields are described under `Args:` in its
            docstring, or with `Annotated[…, msgspec.Meta(title=…, description=…)]`. The default
            title is the name of the field.
        who: who may use it. For anybody else it does not exist.
        verbatim: for a value of the first parameter, the parameter that gets the rest of the chat
            message unchanged; `ANY_WORD` stands for all other values.
        group: where it is in the help text; those of every day come first in the menus of clients.
        in_menu: whether it is in the menus of clients; not if these have another entry for the
            same.
        only_reads: it never has an effect, so it may be corrected after it was carried out.
    """

    name: str
    title: str
    about: str
    params: type[P]
    who: Who = "everybody"
    verbatim: Mapping[str, str] = {}
    group: Group = "more"
    in_menu: bool = True
    only_reads: bool = False

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the parameters, an object with its properties in order."""
        schema = ordered_schema(self.params)
        definitions: dict[str, Any] = schema.pop("$defs")
        found: dict[str, Any] = definitions.pop(self.params.__name__)
        found["description"] = read_docstring(self.params.__doc__)[0]
        texts, properties = field_texts(self.params), found["properties"]
        for each in msgspec.structs.fields(self.params):
            said = {"title": title_of(each.name)}
            if each.name in texts:
                said["description"] = texts[each.name]
            properties[each.encode_name] = said | properties[each.encode_name]
        return {**found, "$defs": definitions} if definitions else found

    @cached_property
    def readers(self) -> Mapping[str, Reader]:
        """The reader that converts the text of each parameter to its value, in the order of the
        parameters.
        """
        declared = types.type_info(self.params)
        assert isinstance(declared, types.StructType), f"{self.params} is not a Struct"
        return {field.encode_name: reader_of(field.type) for field in declared.fields}

    def read(self, texts: Iterable[tuple[str, str]] = (), json: bytes | str | None = None) -> P:
        """Return the parameters, from (name, text) pairs, or from one JSON object, or both.

        A name that occurs more than once becomes an array. Raises CommandError with the name of the
        parameter.
        """
        try:
            return fill_struct(self.params, self.readers, texts, json)
        except InvalidParam as error:
            raise CommandError(self._without_pattern(error), error.name) from None

    def _without_pattern(self, error: InvalidParam) -> str:
        """Return what is wrong, with the description of the parameter in place of a pattern, which
        only programs read.
        """
        described = self.schema["properties"].get(error.name, {}).get("description", "")
        if described and "matching regex" in str(error):
            return f"{error.name} is not valid: {described}"
        return f"{str(error).rstrip('.')}."

    def done_by(self, run: "Run[P]", choices: "Mapping[str, Choices]" = _NONE) -> "Command[P]":
        """Return the command that `run` implements; for `choices` see `Command`."""
        return Command(**msgspec.structs.asdict(self), run=run, choices=choices)


Run: TypeAlias = Callable[[Asking, P], Awaitable[CommandResult]]
"""Implements a command. Raises CommandError."""


Choices: TypeAlias = Callable[[Asking], Awaitable[Mapping[str, str]]]
"""Returns values that a person can choose, with their titles. Raises CommandError, StorageError."""


class Command(Outline[P], Generic[P], frozen=True, eq=False, kw_only=True):
    """A command; `run` implements it. `choices` are the values of parameters that its form lists,
    so that nobody has to write an id.
    """

    run: Run[P]
    choices: Mapping[str, Choices] = {}


AnyOutline: TypeAlias = Outline[Any]
AnyCommand: TypeAlias = Command[Any]


class Commands:
    """All commands of a service, by name, and who may use them.

    A name can belong to two commands: one for everybody, and another one for admins in its place.

    Args:
        admins: the bare JIDs of the admins.
        agent_at: returns the name of the agent at an address of this service.

    Raises:
        ValueError: two commands for the same people have one name.
    """

    def __init__(
        self,
        commands: Iterable[AnyCommand] = (),
        admins: Collection[JID] = (),
        agent_at: Callable[[JID], str] = lambda at: at.local or "",
    ) -> None:
        self._agent_at = agent_at
        self.admins = admins
        self._for_all: dict[str, AnyCommand] = {}
        self._for_admins: dict[str, AnyCommand] = {}
        self.add(commands)

    def add(self, commands: Iterable[AnyCommand]) -> None:
        """Add commands. Raises ValueError: two commands for the same people have one name."""
        for command in commands:
            known = self._for_admins if command.who == "admin" else self._for_all
            if command.name in known:
                raise ValueError(f"two commands are called {command.name}")
            known[command.name] = command

    def replace(self, commands: Iterable[AnyCommand]) -> None:
        """Have these commands in place of those before. Raises ValueError, see `add`."""
        self._for_all.clear()
        self._for_admins.clear()
        self.add(commands)

    def asking(
        self,
        principal: JID,
        at: JID | None = None,
        lang: str | None = None,
        client: JID | None = None,
    ) -> Asking:
        """Return the context of a principal that calls a command; `at` is the address that received
        it, `client` the full JID that sent it.
        """
        bare = principal.bare
        return Asking(
            principal=bare,
            client=client,
            at=at,
            agent="" if at is None else self._agent_at(at),
            lang=lang,
            admin=bare in self.admins,
        )

    def of(self, asking: Asking) -> tuple[AnyCommand, ...]:
        """Return the commands that the caller may use, in the order of definition."""
        if not asking.admin:
            return tuple(self._for_all.values())
        return tuple({**self._for_all, **self._for_admins}.values())

    def get(self, name: str, asking: Asking) -> AnyCommand | None:
        """Return a command by its name; None if the caller has no such command."""
        if asking.admin and name in self._for_admins:
            return self._for_admins[name]
        return self._for_all.get(name)


class PersonParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of a command about a person and an agent.

    Args:
        person: Address of the person, juliet@example.com.
        agent: Name of the agent. Default: the default agent.
    """

    person: str = msgspec.field(name="for")
    agent: str = ""


def person_of(address: str, param: str = "for", *, bare: bool = True) -> JID:
    """Return the address of a person, which `param` gives. Raises CommandError."""
    try:
        found = JID.parse(address.strip())
    except JIDError as error:
        raise CommandError(f"{address!r} is not an address: {error}", param) from None
    return found.bare if bare else found


def person_or_caller(asking: Asking, address: str) -> JID | None:
    """Return the person whose address an admin has given as `person`, or the caller; None for the
    operator, who has given none. Raises CommandError.
    """
    if not address:
        return asking.principal
    person = person_of(address, "person")
    if not asking.admin and person != asking.principal:
        raise CommandError("Only admins can give the address of somebody else.", "person")
    return person


def agent_of(name: str, agents: Sequence[str], default: str = "") -> str:
    """Return the agent that a parameter names, or the default one, which is the first if not given.
    Raises CommandError for an unknown one.
    """
    agent = name.strip() or default or agents[0]
    if agent not in agents:
        names = ", ".join(agents)
        raise CommandError(f"There is no agent called {agent!r}; there are: {names}.", "agent")
    return agent


def conversation_of(asking: Asking, default_agent: str) -> SessionKey:
    """Return the agent and the person of a command, or the room in which it was called. Raises
    CommandError for the operator.
    """
    if asking.principal is None:
        raise CommandError("This works only over XMPP.")
    return SessionKey(asking.agent or default_agent, asking.room or asking.principal.bare)


# -- the words after a slash command -------------------------------------------------------------
#
# `/tasks running limit=5`, `/skills "new mails" today`: words are assigned to the parameters in
# their order, then `name=value` to those it names. Quotation marks group words with spaces. A
# parameter that is an array takes all remaining words: parameters after it are given by name only.
# The text after the word that an outline names as `verbatim` is the value of one parameter,
# unchanged.

_NAME = r"[A-Za-z_][\w-]*"
ANY_WORD: Final = ""
_LONGEST_SHOWN = 40
# Phones write these automatically instead of the plain ones, each language its own.
_QUOTES = str.maketrans("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '""')
_PAIRS = ("\u201c\u201d", "\u201e\u201c\u201d", "\u201d\u201d", "\u00ab\u00bb", "\u00bb\u00ab",
          "\u2018\u2019", "\u201a\u2018\u2019", "\u2039\u203a", "\u203a\u2039",
          "\u300c\u300d", "\u300e\u300f")  # fmt: skip
"""Quotation marks that open, and those that close what they have opened."""
_QUOTED = (
    r"""(?s)'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?P<typographic>(?<![^\s=])(?:"""
    + "|".join(f"{pair[0]}[^{pair[0]}]*?[{pair[1:]}]" for pair in _PAIRS)
    + r"))(?!\S)"
)
"""Matches a text in typographic quotation marks, and one in plain ones, which stays as it is."""


def read_words(outline: Outline[P], text: str) -> P:
    """Return the parameters of a command, from the words after its name.

    Raises CommandError, naming the word that is wrong.
    """
    first, *rest = text.split(maxsplit=1) or [""]
    word = first.casefold()
    unchanged = outline.verbatim.get(word, outline.verbatim.get(ANY_WORD))
    if word and unchanged is not None:
        found = (unchanged, "".join(rest))
        return outline.read([(next(iter(outline.readers)), word), found])
    lists = {name for name, reader in outline.readers.items() if reader.items}
    words = split_words(text)
    return outline.read(assign_words(f"/{outline.name}", list(outline.readers), lists, words))


def split_words(text: str) -> list[str]:
    """Split a line into words like a shell, and accept the typographic quotes that phones write.

    Raises CommandError if a quotation mark or a backslash has no end.
    """
    try:
        return shlex.split(re.sub(_QUOTED, _with_plain_quotes, text).translate(_QUOTES))
    except ValueError:
        last = text.rsplit(maxsplit=1)[-1]
        raise CommandError(
            f"A quotation mark or a backslash before {_shown(last)} is incomplete: put"
            ' text that contains one in quotation marks, as in "what\'s new".'
        ) from None


def _with_plain_quotes(found: re.Match[str]) -> str:
    typographic = found["typographic"]
    return found.group() if typographic is None else shlex.quote(typographic[1:-1].strip())


def assign_words(
    what: str, names: Sequence[str], lists: Collection[str], words: Sequence[str]
) -> list[tuple[str, str]]:
    """Return each word after a command or a skill, called `what`, with the name of its parameter.
    Those in `lists` can have several values.

    Raises CommandError, naming the word that is wrong.
    """
    pairs: list[tuple[str, str]] = []
    named: str | None = None
    taken = 0
    for word in words:
        before, is_named, after = word.partition("=")
        if is_named and (before in names or re.fullmatch(_NAME, before)):
            named = before
            if named not in names:
                raise CommandError(f"{what} has no {_shown(named)}{_which(names)}", named)
            pairs.append((named, after))
        elif named is not None:
            raise CommandError(
                f"{_shown(word)} comes after {named}=…: write words without a name first, and put"
                " words with spaces in quotation marks."
            )
        elif taken < len(names):
            pairs.append((names[taken], word))
            # One that can have several values takes all the rest.
            taken += names[taken] not in lists
        else:
            raise CommandError(
                f"{_shown(word)} is one word too many for {what}{_which(names)}"
                + (" Put text with spaces in quotation marks." if names else "")
            )
    return pairs


def _which(names: Sequence[str]) -> str:
    return f": its parameters are {', '.join(names)}." if names else ": it has no parameters."


def _shown(word: str) -> str:
    """Return a word of the user, made safe for a sentence."""
    return repr(shorten(word, _LONGEST_SHOWN))


# -- the audit log -------------------------------------------------------------------------------


def recorded(commands: Iterable[AnyCommand], recorder: Recorder) -> tuple[AnyCommand, ...]:
    """Return commands that do the same, and record which admin called them and the outcome.

    Commands about an admin's own things, which everybody can use, are not recorded here.
    """
    return tuple(
        msgspec.structs.replace(command, run=_recorded(command, command.run, recorder))
        for command in commands
    )


def _recorded(command: AnyCommand, run: Run[P], recorder: Recorder) -> Run[P]:
    async def run_and_record(asking: Asking, params: P) -> CommandResult:
        task = str(getattr(params, "task", None) or "")
        if not asking.admin or not (command.who == "admin" or asking.principal is None or task):
            return await run(asking, params)
        outcome = "failed"
        try:
            answer = await run(asking, params)
            outcome = "done"
        finally:
            recorder.record(
                AuditEvent(
                    kind="admin",
                    outcome=outcome,
                    principal=asking.caller,
                    subject=command.name,
                    task=task,
                )
            )
        return answer

    return run_and_record


# -- texts ---------------------------------------------------------------------------------------


def span(seconds: int) -> str:
    """Return a span of time in its two largest units, from seconds."""
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        amount, seconds = divmod(seconds, size)
        if amount or parts:
            parts.append(f"{amount} {unit}")
    return " ".join(parts[:2]) or "0 s"


def shorten(text: str, most: int) -> str:
    """Return a text of at most `most` characters, which ends with "…" if some were left out."""
    return text if len(text) <= most else text[: most - 1] + "…"


_SHORTEST_ID: Final = 4


def short_ids(ids: Collection[str]) -> Mapping[str, str]:
    """Return the beginning of each id that tells it from the others."""
    length = _SHORTEST_ID
    while len({one[:length] for one in ids}) < len(set(ids)):
        length += 1
    return {one: one[:length] for one in ids}


def whole_id(given: str, ids: Collection[str], param: str) -> str:
    """Return the only one of these ids that begins as given; what was given if there is none.
    Raises CommandError, naming the parameter, if there are several.
    """
    found = [one for one in ids if one.startswith(given)]
    if given in found or not found:
        return given
    if len(found) > 1:
        raise CommandError(f"Several begin with {given}: give more of the id.", param)
    return found[0]
