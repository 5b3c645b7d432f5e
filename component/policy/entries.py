"""Reads and validates the entries of the policy's lists, and the admins; each error suggests a
correction.

RFC 7622 prepares localparts by PRECIS, but servers still use nodeprep (RFC 3920 Appendix A). An
entry on which the two differ could mean different accounts for the server and for this service.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from xep.jid import JID, JIDError

EVERYBODY = "*"
ROOM: Final = "room:"
"""Begins an entry that names a room."""
_ADMINS = "agent.admins"

T = TypeVar("T")


class BadEntry(NamedTuple):
    """An invalid entry."""

    key: str
    """The setting that contains it, such as `agent.allowed_jids`."""
    entry: str
    why: str
    """The problem and how to correct it, in sentences."""

    def __str__(self) -> str:
        """Return one line of printable characters."""
        return f"{self.key}: {self.entry!r}: {self.why}"


class PolicyError(ValueError):
    """The policy contains invalid entries; `entries` are all of them."""

    def __init__(self, entries: Sequence[BadEntry]) -> None:
        """Build the message: one line for each entry."""
        super().__init__("\n".join(map(str, entries)))
        self.entries = tuple(entries)


class EntryReader:
    """Reads lists of the policy and collects errors, so that all are reported at once."""

    def __init__(self) -> None:
        """Start without errors."""
        self._bad: list[BadEntry] = []

    def jids(self, key: str, entries: Sequence[str] | None) -> frozenset[JID] | None:
        """Return the bare JIDs of a list, or None if it admits everybody."""
        return self._read(key, entries, _read_jid)

    def domains(self, key: str, entries: Sequence[str] | None) -> frozenset[str] | None:
        """Return the domains of a list, or None if it admits all."""
        return self._read(key, entries, _read_domain)

    def approvers(
        self, key: str, entries: Sequence[str], admits: Callable[[JID], bool]
    ) -> tuple[tuple[JID, ...], JID | None]:
        """Return the accounts of a list, in its order, and its room; `admits` must accept each of
        the accounts.
        """
        named = [entry for entry in entries if entry.startswith(ROOM)]
        accounts = [entry for entry in entries if entry not in named]
        rooms = self._good(key, named[:1], _read_room)
        for entry in named[1:]:
            why = "A rule can name one room. Name one whose occupants can all decide."
            self._bad.append(BadEntry(key, entry, why))
        found = self._good(key, accounts, lambda entry: _read_approver(entry, admits))
        return tuple(found), next(iter(rooms), None)

    def finish(self) -> None:
        """Raise PolicyError if any list read so far contains an invalid entry."""
        if self._bad:
            raise PolicyError(self._bad)

    def _read(
        self, key: str, entries: Sequence[str] | None, read: Callable[[str], T]
    ) -> frozenset[T] | None:
        if entries is None or list(entries) == [EVERYBODY]:
            return None
        return frozenset(self._good(key, entries, read))

    def _good(self, key: str, entries: Sequence[str], read: Callable[[str], T]) -> dict[T, None]:
        """Read the valid entries, each once; the others are kept as errors."""
        good: dict[T, None] = {}
        for entry in entries:
            try:
                good[read(entry)] = None
            except ValueError as error:
                self._bad.append(BadEntry(key, entry, str(error)))
        return good


def read_admins(entries: Sequence[str]) -> frozenset[JID]:
    """Parse the bare JIDs of the admins.

    Raises PolicyError with all invalid entries; `["*"]` is invalid.
    """
    read = EntryReader()
    found = read.jids(_ADMINS, entries)
    read.finish()
    if found is None:
        raise PolicyError([BadEntry(_ADMINS, EVERYBODY, "Name each admin in full.")])
    return found


def _read_jid(entry: str) -> JID:
    jid = _parse(entry)
    if jid.resource is not None:
        raise ValueError(
            "It has a resource, but access is given to accounts, not to single clients. Write"
            f" {str(jid.bare)!r}."
        )
    if jid.local is not None:
        _agree_on_local(entry.partition("@")[0], jid.local, jid.domain)
    _agree_on_domain(jid.domain)
    return jid


def _read_approver(entry: str, admits: Callable[[JID], bool]) -> JID:
    if EVERYBODY in entry:
        raise ValueError("Not everybody can be an approver. Name each account in full.")
    jid = _read_jid(entry)
    if jid.local is None:
        raise ValueError("It is a domain, and only a person can be asked. Name an account.")
    if not admits(jid):
        raise ValueError(
            "It could never answer, because it is not admitted. Add it to agent.allowed_jids, and"
            " its domain to agent.allowed_domains."
        )
    return jid


def _read_room(entry: str) -> JID:
    jid = _read_jid(entry.removeprefix(ROOM))
    if jid.local is None:
        raise ValueError(
            f"It is the service of rooms. Name one of its rooms, such as"
            f" {f'{ROOM}ops@{jid.domain}'!r}."
        )
    return jid


def _read_domain(entry: str) -> str:
    jid = _parse(entry)
    if jid.local is not None or jid.resource is not None:
        raise ValueError(
            f"It is not just a domain. Write {jid.domain!r}, or name accounts in allowed_jids."
        )
    _agree_on_domain(jid.domain)
    return jid.domain


def _parse(entry: str) -> JID:
    if EVERYBODY in entry:
        raise ValueError(
            'A "*" means all, but only as the single entry of the list, ["*"]. Name each entry in'
            " full, or remove the others."
        )
    try:
        return JID.parse(entry)
    except JIDError as error:
        raise ValueError(f"It is not an address (RFC 7622). {error}") from None


def _agree_on_local(written: str, prepared: str, domain: str) -> None:
    """Reject a localpart that servers pass on in another form than the one compared here."""
    from component.policy.stringprep_profiles import nodeprep  # noqa: PLC0415

    served = nodeprep(written)
    if served == prepared == nodeprep(prepared):
        return
    if served is None:
        raise ValueError(
            "Servers refuse its localpart or do not agree on how to read it (nodeprep, RFC 3920),"
            " so it does not identify one account. Use simpler characters in the account name."
        )
    advice = "Use simpler characters in the account name."
    if _plain(served):
        advice = f"Write {f'{served}@{domain}'!r} if that is the account you mean."
    raise ValueError(
        f"Servers read its localpart as {served!r} (nodeprep, RFC 3920), RFC 7622 as {prepared!r},"
        f" so it would not match the account. {advice}"
    )


def _plain(local: str) -> bool:
    from component.policy.stringprep_profiles import nodeprep  # noqa: PLC0415

    try:
        jid = JID.parse(f"{local}@x")
    except JIDError:
        return False
    return jid.local == local == nodeprep(local)


def _agree_on_domain(domain: str) -> None:
    """Reject a domain that servers with IDNA2003 (RFC 3490) read as a different one."""
    if domain.isascii():
        return
    from component.policy.stringprep_profiles import served_domain  # noqa: PLC0415

    served = served_domain(domain)
    if served == domain:
        return
    if served is None:
        raise ValueError(
            "Servers refuse its domain or do not agree on how to read it (nameprep, RFC 3491). Use"
            " a domain with simpler characters."
        )
    raise ValueError(
        f"Servers read its domain as {served!r} (nameprep, RFC 3491), IDNA2008 as {domain!r}."
        f" Write {served!r} if that is the domain you mean, or use one with simpler characters."
    )
