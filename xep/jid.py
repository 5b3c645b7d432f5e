"""JIDs: the address format of XMPP (RFC 7622), prepared once and compared by value.

Parsing is cached and knows a shortcut for ASCII, so the libraries behind PRECIS and IDNA are
imported by the first address that needs them.
"""

import functools
import re
import unicodedata
from typing import TYPE_CHECKING, NoReturn

import msgspec

if TYPE_CHECKING:
    from precis_i18n.profile import Profile

# RFC 7622 §3.2 to §3.4: octets of UTF-8 in each part, after preparation.
_MAX_OCTETS = 1023
# Before preparation a part may be longer, because composition (NFC) joins up to four characters
# into one of three octets. A longer part is refused unread, so that the time is limited.
_MAX_CHARACTERS = 2 * _MAX_OCTETS
# Stanzas contain short texts; long hostile ones must not fill the memory as cache entries.
_MAX_CACHED_CHARACTERS = 256
_CACHE_ENTRIES = 4096
_LONGEST_REASON = 500
_spellings: dict[str, str] = {}
"""Domains by their U-labels, and the A-labels by which their servers know them."""

# The characters that PRECIS and IDNA2008 do not change. RFC 7622 §3.3.1 excludes "&'/:<>@ from the
# localpart.
_LOCAL = r"[!#-%(-.0-9;=?\[-~]+"
_LABEL = r"(?!..--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_RESOURCE = r"[ -~]+"
_ASCII_LOCAL = re.compile(_LOCAL)
_ASCII_LABEL = re.compile(_LABEL)
_ASCII_RESOURCE = re.compile(_RESOURCE)
_PLAIN = re.compile(rf"(?:({_LOCAL})@)?({_LABEL}(?:\.{_LABEL})*)(?:/({_RESOURCE}))?")
_NEVER_IN_RESOURCE = frozenset(("Cc", "Cs", "Co", "Zl", "Zp"))
_EXCLUDED_FROM_LOCAL = frozenset("\"&'/:<>@")


class JIDError(ValueError):
    """A text is not a JID; the message says which part is invalid and why."""


class JID(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """An address `local@domain/resource` (RFC 7622 §3.1).

    The parts are in their prepared form: construct one directly only from parts of another JID,
    and use `parse` for any text from outside. Equal addresses are equal and hash alike.
    """

    local: str | None
    domain: str
    resource: str | None = None

    @staticmethod
    def parse(text: str) -> "JID":
        """Read a JID and prepare each part: `ROMEO@Example.org` gives `romeo@example.org`.

        Raises `JIDError` when RFC 7622 refuses the text, and nothing else.
        """
        if len(text) > _MAX_CACHED_CHARACTERS:
            return _parse(text)
        return _parse_cached(text)

    @staticmethod
    def parse_delivered(text: str) -> "JID":
        """Parse the `from` of a stanza that a server has delivered.

        RFC 7622 maps some addresses to the same JID that servers distinguish. Prosody has U+1C90
        and U+10D0 (a Georgian capital and its small letter) as two accounts; ejabberd has
        `example.com.` and `example.com` as two domains. If they were mapped to one JID here, one
        would have the rights and the secrets of the other. So an address is refused unless it is
        delivered in its prepared form. Two spellings of a domain are treated as one only where the
        DNS does so, too: U-labels and their A-labels (RFC 5890 §2.3.2.1). A domain that IDNA2003
        (RFC 3490) maps to another one, as it does `ß` to `ss`, is refused.

        Raises `JIDError` for that and whenever `parse` does.
        """
        if len(text) > _MAX_CACHED_CHARACTERS:
            return _parse_delivered(text)
        return _parse_delivered_cached(text)

    def __str__(self) -> str:
        """Return the canonical text; `JID.parse` of it gives an equal JID."""
        if self.local is None:
            return self.domain if self.resource is None else f"{self.domain}/{self.resource}"
        if self.resource is None:
            return f"{self.local}@{self.domain}"
        return f"{self.local}@{self.domain}/{self.resource}"

    def on_wire(self) -> str:
        """Return the text for a stanza, with the domain as its server spells it."""
        if self.domain.isascii() or (spelt := _spellings.get(self.domain)) is None:
            return str(self)
        return str(JID(self.local, spelt, self.resource))

    @property
    def is_bare(self) -> bool:
        """Whether there is no resource."""
        return self.resource is None

    @property
    def bare(self) -> "JID":
        """The same address without its resource."""
        return self if self.resource is None else JID(self.local, self.domain, None)

    @property
    def domain_jid(self) -> "JID":
        """The address of the domain itself, without localpart and resource."""
        if self.local is None and self.resource is None:
            return self
        return JID(None, self.domain, None)

    def with_resource(self, resource: str) -> "JID":
        """Return the same bare address with this resource, which is prepared first.

        Raises `JIDError` when RFC 7622 §3.4 refuses the resource.
        """
        return JID(self.local, self.domain, _prepare_resource(resource))


def learn_spelling(address: str) -> None:
    """Spell the domain of an address, and the domains above it, in stanzas as it does.

    A server knows a domain with other letters than those of ASCII by its U-labels or by its
    A-labels (RFC 5890 §2.3.2.1), and may refuse stanzas that use the other spelling. A JID has
    U-labels. `JID.parse_delivered` learns the domain of the sender of a stanza, which cannot speak
    for the domains above it; this function is for the address in the configuration. The newest
    4,096 domains are remembered.

    Raises `JIDError` as `JID.parse` does.
    """
    spelt, prepared = _domain_in(address).lower().removesuffix("."), JID.parse(address).domain
    while prepared:
        _learn(spelt, prepared)
        spelt, prepared = spelt.partition(".")[2], prepared.partition(".")[2]


def _learn(spelt: str, prepared: str) -> None:
    if prepared.isascii():
        return
    _spellings.pop(prepared, None)
    if spelt.isascii():
        _spellings[prepared] = spelt
        if len(_spellings) > _CACHE_ENTRIES:
            del _spellings[next(iter(_spellings))]


def _domain_in(text: str) -> str:
    address = text.partition("/")[0]
    return address.partition("@")[2] or address


def _parse(text: str) -> JID:
    # The fast path for nearly all addresses: nothing to map, no part too long.
    if len(text) <= _MAX_OCTETS and (plain := _PLAIN.fullmatch(text)):
        return JID(*plain.groups())
    return _prepare(text)


def _prepare(text: str) -> JID:
    # RFC 7622 §3.1: the resource starts at the first slash, whatever follows it, so `a/b@c` has
    # the domain `a`; then the localpart ends at the first at-sign.
    address, slash, resource = text.partition("/")
    local, at, domain = address.partition("@")
    if not at:
        local, domain = "", address
    return JID(
        _prepare_local(local) if at else None,
        _prepare_domain(domain),
        _prepare_resource(resource) if slash else None,
    )


def _parse_delivered(text: str) -> JID:
    jid = _parse(text)
    domain = _domain_in(text)
    if domain != jid.domain or not domain.isascii():
        _refuse_ambiguous(domain, jid.domain)
    if jid.local is not None and not text.startswith(f"{jid.local}@"):
        _refuse(
            "localpart",
            text.partition("@")[0],
            f"is not in its prepared form {_shorten(jid.local)}, so it may be another account",
        )
    _learn(domain, jid.domain)
    return jid


def _refuse_ambiguous(domain: str, prepared: str) -> None:
    """Refuse a domain that a server may interpret differently from the preparation here."""
    labels, found = domain.split("."), prepared.split(".")
    if len(labels) == len(found) and all(map(_is_one_label, labels, found)):
        return
    _refuse(
        "domainpart",
        domain,
        f"may be read in other ways than {_shorten(prepared)}, so it may be another domain",
    )


def _is_one_label(label: str, prepared: str) -> bool:
    """Return whether the old and the new rules map a label to the form prepared here."""
    from encodings.idna import nameprep  # noqa: PLC0415 - only addresses beyond ASCII pay for it

    import idna  # noqa: PLC0415 - likewise

    if label.isascii():
        # A label beyond ASCII was prepared by its A-label; "[" begins an IPv6 address.
        return label == prepared or (
            not prepared.isascii() and label == idna.alabel(prepared).decode()
        )
    try:
        return label == prepared == nameprep(label)
    except UnicodeError:  # it contains a character that IDNA2003 prohibits
        return False


_parse_cached = functools.lru_cache(maxsize=_CACHE_ENTRIES)(_parse)
_parse_delivered_cached = functools.lru_cache(maxsize=_CACHE_ENTRIES)(_parse_delivered)


def _prepare_local(text: str) -> str:
    """Prepare by UsernameCaseMapped (RFC 8265 §3.3) without the characters of RFC 7622 §3.3.1."""
    _refuse_length("localpart", text, len(text), _MAX_CHARACTERS)
    if text.isascii():
        prepared = text.lower()
        if not _ASCII_LOCAL.fullmatch(prepared):
            _refuse("localpart", text, "contains a space, a control character or one of \"&'/:<>@")
    else:
        prepared = _enforce("UsernameCaseMapped", "localpart", text)
        if not _EXCLUDED_FROM_LOCAL.isdisjoint(prepared):
            _refuse("localpart", text, "contains one of \"&'/:<>@")
    _refuse_length("localpart", text, len(prepared.encode()), _MAX_OCTETS)
    return prepared


def _prepare_resource(text: str) -> str:
    """Prepare by OpaqueString (RFC 8265 §4.2), as RFC 7622 §3.4 says.

    Servers let clients choose resources that it refuses, such as a symbol with a variation
    selector. They are taken as they are, except for control characters.
    """
    _refuse_length("resourcepart", text, len(text), _MAX_CHARACTERS)
    if text.isascii():
        prepared = text
        if not _ASCII_RESOURCE.fullmatch(prepared):
            _refuse("resourcepart", text, "contains a control character")
    else:
        try:
            prepared = _enforce("OpaqueString", "resourcepart", text)
        except JIDError:
            if any(unicodedata.category(character) in _NEVER_IN_RESOURCE for character in text):
                raise
            prepared = text
    _refuse_length("resourcepart", text, len(prepared.encode()), _MAX_OCTETS)
    return prepared


def _prepare_domain(text: str) -> str:
    """Prepare to lower-case U-labels without a final dot (RFC 7622 §3.2), or an IP literal."""
    _refuse_length("domainpart", text, len(text), _MAX_CHARACTERS)
    if text.startswith("["):
        return _prepare_ipv6(text)
    mapped = text.lower() if text.isascii() else _map_domain(text)
    labels = [
        label if _ASCII_LABEL.fullmatch(label) else _prepare_label(label, text)
        for label in mapped.removesuffix(".").split(".")
    ]
    prepared = ".".join(labels)
    _refuse_length("domainpart", text, len(prepared.encode()), _MAX_OCTETS)
    return prepared


def _map_domain(text: str) -> str:
    """Map as RFC 5895 §2 requires: lower case, full and half width, NFC, ideographic full stop."""
    mapped = unicodedata.normalize("NFC", "".join(map(_map_character, text)))
    # U+FF0E and U+FF61 have already been mapped to one of the two
    return mapped.replace("\u3002", ".")


def _map_character(character: str) -> str:
    if unicodedata.decomposition(character).startswith(("<wide>", "<narrow>")):
        character = unicodedata.normalize("NFKC", character)
    # Case folding keeps the characters that IDNA2008 allows; Cherokee is folded to capitals, so
    # lower case would be the form that is not allowed.
    return character.lower() if character.casefold() != character else character


def _prepare_label(label: str, domain: str) -> str:
    """Check one label that is not plain ASCII, and decode it if it is an A-label."""
    if not label:
        _refuse("domainpart", domain, "is empty or has an empty label between its dots")
    if label.isascii() and not label.startswith("xn--"):
        _refuse(
            "domainpart",
            domain,
            f"has the label {_shorten(label)}, which is not made of at most 63 letters, digits and"
            " inner hyphens",
        )
    import idna  # noqa: PLC0415 - only addresses beyond ASCII pay for it

    try:
        prepared = idna.ulabel(label)
        idna.alabel(prepared)  # at most 63 octets in the form of the DNS
    # Not only IDNAError: for unnamed neighbours of a joiner the library lets a ValueError through.
    except ValueError as error:
        _refuse("domainpart", domain, f"has the label {_shorten(label)}: {error}")
    return prepared


def _prepare_ipv6(text: str) -> str:
    import ipaddress  # noqa: PLC0415 - an IPv6 literal is rare in a JID

    # A zone (`%eth0`) means something on one machine only, so it cannot be part of an address.
    if not text.endswith("]") or "%" in text:
        _refuse("domainpart", text, "is not an IPv6 address between square brackets")
    try:
        found = ipaddress.IPv6Address(text[1:-1])
    except ValueError as error:
        _refuse("domainpart", text, f"is not an IPv6 address between square brackets: {error}")
    # An address has one text form (RFC 5952 §4, §5), in every version of Python.
    mapped = found.ipv4_mapped
    return f"[{found.compressed}]" if mapped is None else f"[::ffff:{mapped}]"


@functools.cache
def _profile(name: str) -> "Profile":
    from precis_i18n import get_profile  # noqa: PLC0415 - only addresses beyond ASCII pay for it

    return get_profile(name)


def _enforce(profile: str, part: str, text: str) -> str:
    try:
        return _profile(profile).enforce(text)
    except UnicodeEncodeError as error:
        reason = error.reason.removeprefix("DISALLOWED/").replace("_", " ")
        # The library marks either one character or, if the whole label is invalid, everything.
        marked = error.object[error.start : error.end]
        which = f"U+{ord(marked):04X} " if len(marked) == 1 else ""
        _refuse(part, text, f"is refused by the PRECIS profile {profile}: {which}{reason}")


def _refuse_length(part: str, text: str, length: int, limit: int) -> None:
    if length == 0:
        _refuse(part, text, "is empty")
    if length > limit:
        _refuse(part, text, f"is longer than {_MAX_OCTETS} octets")


def _refuse(part: str, text: str, why: str) -> NoReturn:
    # The libraries quote the whole text that they refuse.
    why = why if len(why) <= _LONGEST_REASON else why[:_LONGEST_REASON] + "..."
    raise JIDError(f"The {part} {_shorten(text)} {why}.") from None


def _shorten(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:60] + "...")
