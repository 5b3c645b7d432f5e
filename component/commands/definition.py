"""What a command is: defined once, for ad-hoc commands, slash commands and the command line.

The fields of `params` are the form, the words after the slash and the options of the command line;
`run` is the work; the answer is a text for people and a value for programs.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import inspect as types

from component.skills.errors import InvalidParam
from component.skills.params import fill
from component.skills.readers import Reader, reader_of
from xep.jid import JID

P = TypeVar("P", bound=msgspec.Struct)

Who = Literal["everybody", "admin"]
"""Whom a command is for."""

Value: TypeAlias = msgspec.Struct | Sequence[msgspec.Struct] | None
"""What a command gives to programs."""


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: a principal, or the operator of this machine, who is nobody on XMPP.

    `at` is the address of ours that was written to, `lang` the language of the request, `admin`
    whether commands for admins are there for the one who asks. `Commands.asking` makes it.
    """

    principal: JID | None = None
    at: JID | None = None
    lang: str | None = None
    admin: bool = False


OPERATOR = Asking(admin=True)
"""Who can open the data directory may do everything."""


class Answer(msgspec.Struct, frozen=True):
    """What a command says: a text for people, and the same as a value, one row or several."""

    text: str
    value: Value = None


class CommandError(Exception):
    """A command cannot do what it was asked for: one sentence for the one who asked.

    `param` names the parameter to blame, if it is one.
    """

    def __init__(self, sentence: str, param: str | None = None) -> None:
        """Take the sentence, and the name of the parameter."""
        super().__init__(sentence)
        self.param = param


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a command that takes nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outline(Generic[P]):
    """All of a command but who does it: what help, forms and the command line are made from.

    Attributes:
        name: one word, in lower case; the slash command is `/name`.
        title: what a menu shows.
        about: one line on what it does, without a full stop.
        params: a Struct with `forbid_unknown_fields`, whose fields say with
            `Annotated[…, msgspec.Meta(title=…, description=…)]` what they are.
        who: whom it is for. For anybody else it does not exist.
        verbatim: a value of the first parameter, and the parameter that then takes all that
            follows in the chat, as it stands.
    """

    name: str
    title: str
    about: str
    params: type[P]
    who: Who = "everybody"
    verbatim: tuple[str, str] | None = None

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the parameters, an object with its properties in order."""
        schema = msgspec.json.schema(self.params)
        definitions: dict[str, Any] = schema.pop("$defs")
        found: dict[str, Any] = definitions.pop(self.params.__name__)
        return {**found, "$defs": definitions} if definitions else found

    @cached_property
    def readers(self) -> Mapping[str, Reader]:
        """How the text of each parameter becomes its value, in the order of the parameters."""
        declared = types.type_info(self.params)
        assert isinstance(declared, types.StructType), f"{self.params} is no Struct"
        return {field.encode_name: reader_of(field.type) for field in declared.fields}

    def read(self, texts: Iterable[tuple[str, str]] = (), json: bytes | str | None = None) -> P:
        """The parameters, from (name, text) pairs, or from one JSON object, or both.

        A name that comes more than once is an array. Raises CommandError, naming the parameter.
        """
        try:
            return fill(self.params, self.readers, texts, json)
        except InvalidParam as error:
            raise CommandError(self._mended(error), error.name) from None

    def _mended(self, error: InvalidParam) -> str:
        """What is wrong; a pattern, which only programs read, gives way to what is described."""
        described = self.schema["properties"].get(error.name, {}).get("description", "")
        if described and "matching regex" in str(error):
            return f"{error.name} is not as it has to be written: {described}"
        return f"{str(error).rstrip('.')}."

    def done_by(self, run: "Run[P]") -> "Command[P]":
        """The command, when `run` does the work."""
        return Command(
            name=self.name,
            title=self.title,
            about=self.about,
            params=self.params,
            who=self.who,
            verbatim=self.verbatim,
            run=run,
        )


Run: TypeAlias = Callable[[Asking, P], Awaitable[Answer]]
"""Does the work of a command. Raises CommandError."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Command(Outline[P]):
    """A command; `run` does its work."""

    run: Run[P]


AnyOutline: TypeAlias = Outline[Any]
AnyCommand: TypeAlias = Command[Any]


class Commands:
    """Every command of a service, by name, and who may use it.

    A name can stand for two commands: one for everybody, and another in its place for admins.

    Args:
        commands: the commands.
        admins: the bare JIDs of the admins.

    Raises:
        ValueError: two commands for the same people have one name.
    """

    def __init__(self, commands: Iterable[AnyCommand], admins: Iterable[JID] = ()) -> None:
        self.admins = frozenset(jid.bare for jid in admins)
        self._for_all: dict[str, AnyCommand] = {}
        self._for_admins: dict[str, AnyCommand] = {}
        for command in commands:
            known = self._for_admins if command.who == "admin" else self._for_all
            if command.name in known:
                raise ValueError(f"two commands are called {command.name}")
            known[command.name] = command

    def asking(self, principal: JID, at: JID | None = None, lang: str | None = None) -> Asking:
        """Who asks, when a principal does; `at` is the address of ours that was written to."""
        bare = principal.bare
        return Asking(principal=bare, at=at, lang=lang, admin=bare in self.admins)

    def of(self, asking: Asking) -> tuple[AnyCommand, ...]:
        """The commands that are there for the one who asks, in the order they were given."""
        if not asking.admin:
            return tuple(self._for_all.values())
        return tuple({**self._for_all, **self._for_admins}.values())

    def get(self, name: str, asking: Asking) -> AnyCommand | None:
        """A command by its name; None if there is none, as far as the one who asks is concerned."""
        if asking.admin and name in self._for_admins:
            return self._for_admins[name]
        return self._for_all.get(name)
