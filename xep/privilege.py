"""XEP-0356 Privileged Entity: IQs that a component sends on behalf of the users of a server."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from xep.binding import AnyChild, Attr, Child, ContentError, Name, Payload, RawXML, read
from xep.forwarding import Forwarded, ForwardedIQ

NAMESPACE: Final = "urn:xmpp:privilege:2"

IQTypes: TypeAlias = frozenset[Literal["get", "set"]]
"""The types of IQ that a permission is for."""

_TYPES: Final[Mapping[str, IQTypes]] = {
    "get": frozenset(("get",)),
    "set": frozenset(("set",)),
    "both": frozenset(("get", "set")),
}
_NONE: Final[IQTypes] = frozenset()
_DEEPEST: Final = 64  # namespaces in one another


class GrantedNamespace(Payload, frozen=True, kw_only=True):
    """A namespace of which IQs are permitted (XEP-0356 §6.1).

    ``type`` is ``get``, ``set``, ``both`` or ``none``. Prosody 0.12.3 nests each
    namespace in the one before it, so there may be others in ``nested``.
    """

    xml = Name(NAMESPACE, "namespace")

    ns: Annotated[str, Attr()]
    type: Annotated[str, Attr()] = "none"
    nested: Annotated[tuple[RawXML, ...], AnyChild()] = ()


class Permission(Payload, frozen=True, kw_only=True):
    """What a server permits: access to ``roster``, ``message``, ``presence`` or ``iq``."""

    xml = Name(NAMESPACE, "perm")

    access: Annotated[str, Attr()]
    type: Annotated[str | None, Attr()] = None
    namespaces: Annotated[tuple[GrantedNamespace, ...], Child(malformed="drop")] = ()


class Privilege(Payload, frozen=True, kw_only=True):
    """The permissions that a server advertises, or the answer to a privileged IQ."""

    xml = Name(NAMESPACE, "privilege")

    permissions: Annotated[tuple[Permission, ...], Child(malformed="drop")] = ()
    forwarded: Annotated[Forwarded | None, Child()] = None

    def iq_namespaces(self) -> dict[str, IQTypes]:
        """The namespaces of which IQs are permitted, each with the types of IQ."""
        found: dict[str, IQTypes] = {}
        for permission in self.permissions:
            level = permission.namespaces if permission.access == "iq" else ()
            for _ in range(_DEEPEST):
                for each in level:
                    found[each.ns] = found.get(each.ns, _NONE) | _TYPES.get(each.type, _NONE)
                level = _nested(level)
        return {ns: types for ns, types in found.items() if types}


class PrivilegedIQ(Payload, frozen=True, kw_only=True):
    """Asks a server to send an IQ on behalf of the account to which this is sent (§6.2)."""

    xml = Name(NAMESPACE, "privileged_iq")

    iq: Annotated[ForwardedIQ, Child()]


def _nested(level: tuple[GrantedNamespace, ...]) -> tuple[GrantedNamespace, ...]:
    found: list[GrantedNamespace] = []
    for each in level:
        for raw in each.nested:
            try:
                found.append(read(raw.text, GrantedNamespace))
            except ContentError:
                continue  # something that this version does not know
    return tuple(found)
