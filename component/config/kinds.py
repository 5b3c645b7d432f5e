"""The types of settings, and the base class of all sections.

Each check raises an error whose text continues a sentence that begins with the key's name.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeGuard, TypeVar, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SecretStr,
)
from pydantic_core import PydanticCustomError, core_schema

from component.imports import without_plugins_of_pydantic

if TYPE_CHECKING:
    from xep.jid import JID

without_plugins_of_pydantic()

_SERVER: Final = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"


def refusal(sentence: str, *, key: str | None = None) -> PydanticCustomError:
    """Return the error of a check; `sentence` continues after the key's name.

    `key` names the invalid key if it is not the one being validated.
    """
    # Pydantic fills templates with braces, so a sentence with `${VAR}` is passed as a value.
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence, "key": key})


def http_address(value: str, example: str) -> str:
    """Return an http or https address with a host, or an empty text. Raises a refusal with an
    example.
    """
    if value:
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            usable = False
        if not usable:
            raise refusal(f"must be an http or https address, such as {example}")
    return value


def service_url(value: str, example: str = "https://api.example.com/v1") -> str:
    """Return the base URL of a service, without a slash at the end. Raises a refusal."""
    http_address(value, example)
    parts = urlsplit(value)
    if value and (not re.fullmatch(_SERVER, parts.netloc) or parts.query or parts.fragment):
        raise refusal(f"must have a host, and no user, query or fragment, such as {example}")
    return value.rstrip("/")


def without_brackets(host: str) -> str:
    """Return a host; an IPv6 address has brackets in a URL only."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


_directory: Final[ContextVar[Path]] = ContextVar("directory", default=Path())


@contextmanager
def relative_to(directory: Path) -> Iterator[None]:
    """Within this context, relative paths in settings are relative to a directory."""
    token = _directory.set(directory)
    try:
        yield
    finally:
        _directory.reset(token)


def located(value: Path) -> Path:
    """Return where a path of the settings is; `~` is a home directory. Raises a refusal."""
    try:
        return _directory.get() / value.expanduser()
    except RuntimeError:
        raise refusal("begins with ~, but there is no home directory: write the path") from None


def located_file(value: str) -> str:
    """Return the same for a text that is a path if it has a slash, and otherwise a name."""
    return str(located(Path(value))) if "/" in value else value


def _not_bool(value: object) -> object:
    # Pydantic would read `port = true` as 1.
    if isinstance(value, bool):
        raise refusal("must be a number, and is true or false")
    return value


def _domain(value: str) -> str:
    if not value or any(c in "@/" or c.isspace() for c in value):
        raise refusal("must be a domain such as agent.example.com, without @, / or spaces")
    from xep.jid import JID, JIDError  # noqa: PLC0415 - the settings import nothing heavy

    try:
        JID.parse(value)
    except JIDError as error:
        raise refusal(f"is not a domain: {error}") from None
    return _as_servers_write(value)


def address(value: str) -> "JID":
    """Return an address. Raises a refusal."""
    from xep.jid import JID, JIDError  # noqa: PLC0415 - a component needs none of it

    try:
        return JID.parse(value)
    except JIDError as error:
        raise refusal(f"is not an address: {error}") from None


def nickname(value: str) -> str:
    """Return a nickname as rooms have it; empty for none. Raises a refusal."""
    from xep.jid import JID, JIDError  # noqa: PLC0415 - most settings need none of it

    try:
        return JID("room", "example.com").with_resource(value).resource or "" if value else ""
    except JIDError as error:
        raise refusal(f"cannot be a nickname: {error}") from None


def _account(value: str) -> str:
    jid = address(value)
    if jid.local is None or jid.resource is not None:
        raise refusal("must be the address of an account, such as helper@example.com")
    return str(jid)


def _zone(value: str) -> str:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - most settings need none of it

    if value:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise refusal("must be an IANA time zone, such as Europe/Paris") from None
    return value


def _own_account(value: str) -> str:
    local, _, _ = _account(value).partition("@")
    return f"{local}@{_as_servers_write(value.partition('@')[2])}"


def _as_servers_write(domain: str) -> str:
    """Return a domain in lower case without a final dot. Its labels stay A-labels or U-labels: the
    server knows it by one of the two.
    """
    return domain.lower().removesuffix(".")


def _shown(value: str) -> str:
    if not value.isprintable() or "<" in value:
        # XML cannot contain the one, and the hash of XEP-0115 is ambiguous with the other.
        raise refusal("is shown to people and cannot contain '<' or unprintable characters")
    return value


Seconds = Annotated[float, BeforeValidator(_not_bool), Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_not_bool), Field(ge=1)]
Port = Annotated[int, BeforeValidator(_not_bool), Field(ge=1, le=65535)]
Jids = tuple[str, ...]
Domains = tuple[str, ...]
Domain = Annotated[str, AfterValidator(_domain)]
Account = Annotated[str, AfterValidator(_account)]
Zone = Annotated[str, AfterValidator(_zone)]
OwnAccount = Annotated[str, AfterValidator(_own_account)]
DisplayText = Annotated[str, AfterValidator(_shown)]
Confirm = Literal["destructive", "always", "never"]


class Section(BaseModel):
    """The base class of sections: no unknown keys, immutable."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
        defer_build=True,  # the class of the settings builds the validators of all sections at once
    )


EMPTY: Any = {}
"""The default of a table all of whose keys have defaults; validated like one in a file."""


S = TypeVar("S", bound=Section)
T = TypeVar("T")


@cache
def defaults(section: type[S]) -> S:
    """Return a section all of whose keys have defaults. It does not validate them: the tests do."""
    below = {
        name: defaults(field.annotation)
        for name, field in section.model_fields.items()
        if _is_section(field.annotation) and field.default is EMPTY
    }
    return section.model_construct(**below)


def _is_section(kind: Any) -> TypeGuard[type[Section]]:
    return isinstance(kind, type) and issubclass(kind, Section)


class _OnUse:
    """Builds the validator of a type when there is a value that it has to look at: those of all
    sections would take a tenth of the time to start, and most files have few.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(partial(_validated, source))


def _validated(source: Any, value: Any) -> Any:
    if _is_section(source):
        if value == {} and not _has_path(source):
            return defaults(source)
        return source.model_validate(value)
    if value is None or value == () or (value == {} and get_origin(source) is dict):
        return value  # the default
    from pydantic import TypeAdapter  # noqa: PLC0415 - most files have none of these

    return TypeAdapter(source).validate_python(value)


@cache
def _has_path(section: type[Section]) -> bool:
    """Return whether a default is a path, which depends on where the file is."""
    return any(isinstance(field.default, Path) for field in section.model_fields.values())


_ON_USE: Final = _OnUse()
OnUse = Annotated[T, _ON_USE]
"""The type of a key above all sections. A section must have defaults for all of its keys."""


def on_use(kind: Any) -> Any:
    """Return the same for a type that is not known statically."""
    return Annotated[kind, _ON_USE]


def different_names(what: str) -> Callable[[tuple[S, ...]], tuple[S, ...]]:
    """Return the check that no two entries of a list have one `name`. `what` says what they are, in
    the plural.
    """

    def check(entries: tuple[S, ...]) -> tuple[S, ...]:
        names = list(map(attrgetter("name"), entries))
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise refusal(f"has two {what} called {twice!r}: give each a different name")
        return entries

    return check


def check_expression(value: str) -> str:
    """Return an expression, or an empty text. Raises a refusal."""
    if value:
        import jmespath  # noqa: PLC0415 - only where something is filtered
        from jmespath.exceptions import JMESPathError  # noqa: PLC0415

        try:
            jmespath.compile(value)
        except JMESPathError as error:
            reason = str(error).splitlines()[0]
            raise refusal(f"is not a JMESPath expression: {reason}") from None
    return value


def is_true(value: object) -> bool:
    """Return whether JMESPath takes a value as true: all but false, null, and empty texts, arrays
    and objects.
    """
    return value is not None and value is not False and value not in ("", [], {})


FilePath = Annotated[Path, AfterValidator(located)]
"""The path of a file or directory."""
Expression = Annotated[str, AfterValidator(check_expression)]


_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110 §5.6.2
_VALUE = r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|"


def _usable(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, content in value.items():
        if not re.fullmatch(_NAME, name):
            raise refusal(f"has {name!r}, which is not the name of a header field")
        if not re.fullmatch(_VALUE, content.get_secret_value()):
            raise refusal(f"has a value for {name} that a header field cannot have")
    return value


Headers = Annotated[dict[str, SecretStr], AfterValidator(_usable)]
"""Names and values of header fields. The values may be secret."""


_KEY_BYTES: Final = range(24, 65)
"""The allowed lengths of a secret, in bytes."""
_PREFIX: Final = "whsec_"


def standard_key(secret: str) -> bytes | None:
    """Return the bytes of a secret of Standard Webhooks: base64, after `whsec_`; None if the text
    is not one.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) in _KEY_BYTES else None
