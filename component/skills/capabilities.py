"""Capabilities: what a skill that nobody trusts may use.

A manifest declares them (`[skill.capabilities]`), an admin approves them, and whatever runs the
skill grants nothing else. Each value has exactly one spelling, so that all who read it (an admin,
the network code, the kernel) understand the same: every other spelling is an error that says how to
write it.

Policies know capabilities as texts, from the kind to the details:
`network:api.example.com:443:https`, `filesystem:read:/srv/menus`, `credential:github-token`.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

from xep.jid import JID, JIDError

DEFAULT_PORTS: Final = {
    "http": 80,
    "https": 443,
    "imap": 143,
    "imaps": 993,
    "ldap": 389,
    "ldaps": 636,
    "smtp": 25,
    "smtps": 465,
    "ws": 80,
    "wss": 443,
}
"""The schemes of network capabilities, with their ports. `tcp` has none, so its port is needed."""
SCHEMES: Final = (*sorted(DEFAULT_PORTS), "tcp")

MemoryScope: TypeAlias = Literal["skill"]
"""Whose memories: those of the skill alone, which are separate for each caller."""

_LONGEST_HOST: Final = 253
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMERIC = r"(0x[0-9a-f]*|[0-9]+)"
_ENDPOINT = (
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[^\[\]]*\]|[^\[\]:/?#@]*)(:(?P<port>[0-9]*))?"
)
_CREDENTIAL = r"[a-z0-9]+([._-][a-z0-9]+)*"
_MODEL = r"[A-Za-z0-9]([A-Za-z0-9._/:-]*[A-Za-z0-9])?"
_NOT_IN_TEXTS = frozenset("*?[]")
"""Characters that are wildcards in the policies."""


class Endpoint(str):
    """A host and port that a skill may connect to, as in `https://api.example.com:443`.

    Attributes:
        host: a host name of ASCII letters, digits and hyphens in lower case, or an IP address;
            that of IPv6 without brackets.
    """

    __slots__ = ("host", "port", "scheme")
    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Read an endpoint; schemes have ports. Raises ValueError, which says how to write it."""
        _refuse_characters(text)
        found = re.fullmatch(_ENDPOINT, text)
        if found is None:
            raise ValueError(_why_no_endpoint(text))
        scheme, host = found["scheme"], _host(found["host"])
        if scheme not in SCHEMES:
            known = f"{', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}"
            raise ValueError(f"{text!r} has the scheme {scheme!r}: write {known}")
        port = _port(text, found["port"], DEFAULT_PORTS.get(scheme))
        shown = f"[{host}]" if ":" in host else host
        made = cls(f"{scheme}://{shown}:{port}")
        made.scheme, made.host, made.port = scheme, host, port
        return made

    @property
    def capability(self) -> str:
        """The text for policies."""
        # A capability is split at colons, and an IPv6 address has some.
        return f"network:{self.host.replace(':', '%3A')}:{self.port}:{self.scheme}"


class AbsolutePath(str):
    """An absolute path of a file, or of a directory and all that is in it."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> AbsolutePath:
        """Read a path. Raises ValueError, which says how to write it."""
        if text.startswith("~"):
            raise ValueError(f"{text!r} depends on who reads it: write the whole path, from /")
        if not text.startswith("/"):
            raise ValueError(f"{text!r} is not an absolute path: write it from /")
        if not text.isprintable() or any(each in text for each in "\\%$ :"):
            raise ValueError(
                f"{text!r} has a character that could be read in two ways: a path has no white"
                " space, backslash, percent sign, dollar sign or colon"
            )
        _refuse_wildcards(text)
        if unicodedata.normalize("NFC", text) != text:
            raise ValueError(f"{text!r} is not in Unicode normalization form C: rename the file")
        plain = posixpath.normpath(text)
        plain = f"/{plain.lstrip('/')}"
        if plain != text:
            raise ValueError(f"{text!r} has another spelling: write {plain!r}")
        if plain == "/":
            raise ValueError("'/' is every file of the machine: name the directories it needs")
        return cls(text)


class CredentialName(str):
    """The name of a credential that the service uses for a skill, which never sees it."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> CredentialName:
        """Read a name. Raises ValueError, which says how to write it."""
        if len(text) > 64 or not re.fullmatch(_CREDENTIAL, text):
            raise ValueError(
                f"{text!r} is not a name of a credential: write it like github-token, with lower"
                " case letters, digits and single hyphens, dots and underscores between them"
            )
        return cls(text)


class RecipientAddress(str):
    """The bare JID of somebody whom a skill may send messages to."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> RecipientAddress:
        """Read an address. Raises ValueError, which says how to write it."""
        try:
            jid = JID.parse(text)
        except JIDError as error:
            raise ValueError(f"{text!r} is not an XMPP address: {error}") from None
        if not jid.is_bare:
            raise ValueError(f"{text!r} has a resource: write {str(jid.bare)!r}")
        if str(jid) != text:
            raise ValueError(f"{text!r} has another spelling: write {str(jid)!r}")
        _refuse_wildcards(text)
        return cls(text)


class ModelName(str):
    """The name of a language model."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> ModelName:
        """Read a name. Raises ValueError, which says how to write it."""
        if len(text) > 128 or not re.fullmatch(_MODEL, text):
            raise ValueError(
                f"{text!r} is not a name of a model: write it as in [llm], with letters, digits"
                " and . _ / : - between them"
            )
        return cls(text)


class ModelUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a skill may use the language model of the agent.

    Attributes:
        model: the only model that it may use; None for that of the agent, whichever it is.
        max_tokens: the maximum number of tokens of one answer.
    """

    max_tokens: int = msgspec.field(default=1024)
    model: ModelName | None = None

    def __post_init__(self) -> None:
        """Check the limit."""
        if not 1 <= self.max_tokens <= 1_000_000:
            raise ValueError("max_tokens is a number from 1 to 1000000")

    @property
    def model_name(self) -> str:
        """The model, for admins."""
        return self.model or "of the agent"


class Capabilities(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a skill may use. Nothing unless it is declared.

    Attributes:
        network: the hosts and ports that it may connect to.
        filesystem_read: the files and directories that it may read.
        filesystem_write: those that it may read and change.
        credential: the credentials that the service uses for it.
        llm: how it may use the language model.
        memory_read: the memories that it may read.
        memory_write: the memories that it may read and change.
        xmpp: the addresses that it may send messages to.
        clock: it may read the time.
        random: it may use random numbers.
        shell: it may run programs of the machine.
    """

    network: tuple[Endpoint, ...] = ()
    filesystem_read: tuple[AbsolutePath, ...] = ()
    filesystem_write: tuple[AbsolutePath, ...] = ()
    credential: tuple[CredentialName, ...] = ()
    llm: ModelUse | None = None
    memory_read: tuple[MemoryScope, ...] = ()
    memory_write: tuple[MemoryScope, ...] = ()
    xmpp: tuple[RecipientAddress, ...] = ()
    clock: bool = False
    random: bool = False
    shell: bool = False

    def __post_init__(self) -> None:
        """Refuse what is declared twice."""
        for name in self.__struct_fields__:
            values = getattr(self, name)
            if isinstance(values, tuple) and len(set(values)) < len(values):
                twice = next(one for one in values if values.count(one) > 1)
                raise ValueError(f"{name} has {str(twice)!r} twice: remove one of them")

    @property
    def texts(self) -> tuple[str, ...]:
        """The capabilities as policies know them, in a fixed order."""
        return self._formatted(0)

    @property
    def described(self) -> tuple[str, ...]:
        """The capabilities in sentences, for the admin who approves them."""
        return self._formatted(1)

    def _formatted(self, column: int) -> tuple[str, ...]:
        found: list[str] = []
        for name, texts in _TEXTS.items():
            value = getattr(self, name)
            values = value if isinstance(value, tuple) else (value,) if value else ()
            found += [texts[column].format(each) for each in values]
        return tuple(found)

    def connects(self, scheme: str, host: str, port: int) -> bool:
        """Whether it may connect to a host and port by a scheme."""
        return any((one.scheme, one.host, one.port) == (scheme, host, port) for one in self.network)


_TEXTS: Final = {
    "network": ("{0.capability}", "connect to {0}"),
    "filesystem_read": ("filesystem:read:{}", "read {}"),
    "filesystem_write": ("filesystem:write:{}", "read and change {}"),
    "credential": ("credential:{}", "have the credential {} used for it"),
    "llm": ("llm", "ask the model {0.model_name}, up to {0.max_tokens} tokens an answer"),
    "memory_read": ("memory:read:{}", "read its own memories of its caller"),
    "memory_write": ("memory:write:{}", "read and change its own memories of its caller"),
    "xmpp": ("xmpp:{}", "send messages to {}"),
    "clock": ("clock", "read the time"),
    "random": ("random", "use random numbers"),
    "shell": ("shell", "run programs of this machine"),
}
"""Each capability as policies know it, and for admins."""


def _refuse_characters(text: str) -> None:
    """Raise ValueError for a character that no endpoint has, and say what to write."""
    if not text.isascii():
        raise ValueError(
            f"{text!r} has letters outside ASCII: write the domain in its ASCII form, which begins"
            " with xn--"
        )
    if not text.isprintable() or " " in text:
        raise ValueError(f"{text!r} has white space or control characters: remove them")
    for character, what in (
        ("@", "a user name: remove it; credentials are declared by name"),
        ("%", "a percent sign: write the characters themselves, and no zone of an address"),
        ("\\", "a backslash: remove it"),
    ):
        if character in text:
            raise ValueError(f"{text!r} has {what}")
    if any(each in text for each in "*?"):
        raise ValueError(f"{text!r} has a wildcard: name each host by itself")
    if text != text.lower():
        raise ValueError(f"{text!r} has capitals: write {text.lower()!r}")


def _refuse_wildcards(text: str) -> None:
    if _NOT_IN_TEXTS & set(text):
        raise ValueError(f"{text!r} has a wildcard (* ? [ ]): name each by itself")


def _why_no_endpoint(text: str) -> str:
    if "://" not in text:
        return f"{text!r} has no scheme: write it like https://api.example.com:443"
    rest = text.partition("://")[2]
    if "/" in rest or "#" in rest:
        return f"{text!r} has a path: a capability is a scheme, a host and a port"
    if rest.count(":") > 1 and not rest.startswith("["):
        return f"{text!r} has an IPv6 address without brackets: write it like https://[2001:db8::1]"
    return f"{text!r} is not an endpoint: write it like https://api.example.com:443"


def _host(text: str) -> str:
    if text.startswith("["):
        return _ipv6(text[1:-1])
    if text.endswith("."):
        raise ValueError(f"the host {text!r} ends with a dot: write {text.rstrip('.')!r}")
    labels = text.split(".")
    if re.fullmatch(_NUMERIC, labels[-1]):  # as the URL Standard tells an IPv4 address
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            raise ValueError(
                f"the host {text!r} could be read as several addresses: write four numbers from 0"
                " to 255 without leading zeros"
            ) from None
    if not text or len(text) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(
            f"the host {text!r} is not a host name: write letters, digits and hyphens with single"
            f" dots between them, at most {_LONGEST_HOST} characters"
        )
    for label in labels:
        _check_a_label(label, text)
    return text


def _check_a_label(label: str, host: str) -> None:
    if label[2:4] != "--":
        return
    import idna  # noqa: PLC0415 - few hosts need it

    try:
        if label.startswith("xn--") and idna.alabel(idna.ulabel(label)).decode() == label:
            return
    except (idna.IDNAError, UnicodeError):
        pass
    raise ValueError(
        f"the host {host!r} has the label {label!r}, which stands for no domain of IDNA 2008:"
        " correct it"
    )


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError(f"[{text}] is not an IPv6 address: correct it") from None
    if address.ipv4_mapped is not None:
        raise ValueError(f"[{text}] is an IPv4 address: write {address.ipv4_mapped}")
    if str(address) != text:
        raise ValueError(f"[{text}] has another spelling: write [{address}]")
    return text


def _port(text: str, said: str | None, default: int | None) -> int:
    if said is None:
        if default is None:
            raise ValueError(f"{text!r} has no port: add it, as in {text}:8080")
        return default
    if not re.fullmatch("[1-9][0-9]{0,4}", said) or int(said) > 65_535:
        raise ValueError(
            f"{text!r} has no usable port: write a number from 1 to 65535 without leading zeros"
        )
    return int(said)


_MOST_TOKENS = 1_000_000


def capabilities_of(texts: Iterable[str]) -> Capabilities:
    """Return what texts such as `network:api.example.com:443:https` name.

    A network capability without a scheme is one of https, or of http for port 80. What names no
    function of the service, as `memory:write` of a built-in skill, is left out.
    """
    network: list[Endpoint] = []
    credentials: list[CredentialName] = []
    recipients: list[RecipientAddress] = []
    given = set(texts)
    for text in sorted(given):
        kind, _, rest = text.partition(":")
        with suppress(ValueError):
            if kind == "network":
                network.append(_endpoint(rest))
            elif kind == "credential":
                credentials.append(CredentialName.parse(rest))
            elif kind == "xmpp":
                recipients.append(RecipientAddress.parse(rest))
    return Capabilities(
        network=tuple(dict.fromkeys(network)),
        credential=tuple(credentials),
        xmpp=tuple(recipients),
        llm=ModelUse(max_tokens=_MOST_TOKENS) if "llm" in given else None,
        memory_read=("skill",) if "memory:read:skill" in given else (),
        memory_write=("skill",) if "memory:write:skill" in given else (),
    )


def _endpoint(text: str) -> Endpoint:
    """Read `HOST:PORT:SCHEME` or `HOST:PORT`; an IPv6 address has `%3A` for each colon."""
    host, _, rest = text.partition(":")
    port, _, scheme = rest.partition(":")
    host = unquote(host)
    shown = f"[{host}]" if ":" in host else host
    return Endpoint.parse(f"{scheme or ('http' if port == '80' else 'https')}://{shown}:{port}")
