"""How a repetition of a request is recognised (specification, "The Same Request Again").

A caller can name its request with the attribute `request`. Then the name is the key, and the same
name with other content is a conflict. Without a name there is only the id of the IQ, which many
clients count from 1 after each login. Such a key therefore includes the content, and is valid for a
minute.
"""

import hashlib
from typing import Final, TypeAlias

import msgspec

from component.tasks.skill_call import SkillCall
from xep.jid import JID

UNNAMED_WINDOW_S: Final = 60.0
"""Seconds for which a repetition of a request without a name is recognised (RPL-006)."""
_LARGEST_EXACT: Final = 2**53


Content: TypeAlias = tuple[JID, JID, str, SkillCall]


class RequestKey(msgspec.Struct, frozen=True):
    """The key of a request.

    `id` identifies repetitions: 64 hex digits; or, for a request without a record on disk, the text
    that they would be a digest of. `digest` is a digest of the content, as 64 hex digits; without a
    name the content is part of the key, and there is nothing to compare. `named` says whether the
    caller named the request; `size` is the approximate size in bytes of an `id` that is not a
    digest.
    """

    id: str | Content
    digest: str
    named: bool = True
    size: int = 0

    @property
    def text(self) -> str:
        """The key on disk."""
        assert isinstance(self.id, str), "a request that has no record on disk"
        return self.id


NO_KEY: Final = RequestKey("", "")
"""The key of work that cannot be repeated by a request, such as a child task."""


def named_key(requester: JID, target: JID, name: str, call: SkillCall) -> RequestKey:
    """Return the key of a named request (RPL-005).

    Args:
        requester: the address that sent it; its resource is ignored.
        target: the address that received it.
        name: the attribute `request`, or the name of a session.
        call: its content.
    """
    return RequestKey(name_digest(requester, target, name), digest_of(call))


def name_digest(requester: JID, target: JID, name: str) -> str:
    """Return the text of the key of a named request; see `named_key`."""
    parts = ("request", str(requester.bare), str(target), name)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def unnamed_key(requester: JID, target: JID, stanza_id: str, call: SkillCall) -> RequestKey:
    """Return the key of a request without a name (RPL-006).

    Args:
        requester: the full address that sent it.
        target: the address that received it.
        stanza_id: the id of its IQ.
        call: its content.
    """
    digest = hashlib.sha256(_encode(("iq", str(requester), str(target), stanza_id)))
    digest.update(_content(call))
    text = digest.hexdigest()
    return RequestKey(text, text, named=False)


def key_in_memory(
    requester: JID, target: JID, stanza_id: str, call: SkillCall, size: int
) -> RequestKey:
    """Return the key of a request without a name or a record on disk; otherwise like `unnamed_key`.

    `size` is the approximate size of the request in bytes.

    Every short request has one, so this avoids hashing: with at most one parameter as text, two
    requests have the same content exactly if they are equal.
    """
    if call.json is None and len(call.params) < 2:
        return RequestKey((requester, target, stanza_id, call), "", False, size)
    return unnamed_key(requester, target, stanza_id, call)


def digest_of(call: SkillCall) -> str:
    """Return a digest of the content of a request, as 64 hex digits: equal for equal content only.

    The specification ("The Same Request Again") says what counts: not the order of parameters with
    different names, white space, or the formatting of JSON.
    """
    return hashlib.sha256(_content(call)).hexdigest()


def _content(call: SkillCall) -> bytes:
    delegation = call.delegation
    parts = (
        call.skill,
        call.mode,
        call.priority,
        call.context,
        call.thread,
        call.earlier,
        None if call.deadline is None else repr(call.deadline.timestamp()),
        call.texts(),
        delegation
        and (
            str(delegation.origin),
            delegation.max_hops,
            None if delegation.budget_usd is None else str(delegation.budget_usd.normalize()),
            delegation.budget_tokens,
            delegation.trace,
            [str(via) for via in delegation.via],
        ),
    )
    content = _encode(parts)
    if call.json is not None:
        content += _canonical(bytes(call.json))
    return content


def _canonical(json: bytes) -> bytes:
    """Return the same bytes for all encodings of a JSON value, except for numbers that are not
    exact.

    Members are sorted, and a float that is an integer is written as one. RFC 8785 would give the
    same result in a hundred times the time, and only this process reads these digests.
    """
    try:
        return b"json " + _encode(_decode(json))
    except (ValueError, RecursionError):
        return b"text " + json  # refused later; until then it equals only itself


def _float(text: str) -> float:
    """Parse a number: 1.0 and 1e0 are the number 1 (specification, "The Same Request Again")."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < _LARGEST_EXACT else value


_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(float_hook=_float).decode
