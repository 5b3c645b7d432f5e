"""Interactions of Discord, such as a command that somebody uses.

Discord signs the timestamp and the body with Ed25519 (`X-Signature-Ed25519`, hexadecimal, and
`X-Signature-Timestamp`; https://docs.discord.com/developers/interactions/overview). To check the
address, it sends interactions of type 1, with right and wrong signatures. Each other interaction
has to be answered within three seconds: with type 5 if work is started, which then has 15 minutes
to send the actual answer.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from component.features.webhooks.delivery import (
    TIMESTAMP,
    Signed,
    Verifier,
    check_time,
    header,
    not_signed,
    read_as,
    wrong_signature,
)

_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")
_HINT: Final = (
    "set public_key to the public key of the application, in General Information at"
    " https://discord.com/developers/applications"
)
_PING, _AUTOCOMPLETE = 1, 4
_WITH_WORK: Final = (2, 3, 5)
"""A command, a button or menu of a message, a form that was filled in."""
_NOT_HANDLED: Final = "There is nothing here that handles this."
_EPHEMERAL: Final = 64


class _Interaction(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    type: int


class _Message(msgspec.Struct, omit_defaults=True):
    content: str = ""
    flags: int = 0


class _Choices(msgspec.Struct):
    choices: tuple[()] = ()


class _Response(msgspec.Struct, omit_defaults=True):
    """An interaction response: PONG (1), a message (4), a message that follows later (5), or
    completions (8).
    """

    type: int
    data: _Message | _Choices | None = None


_PONG: Final = msgspec.json.encode(_Response(1))
_DEFERRED: Final = msgspec.json.encode(_Response(5))
_NO_CHOICES: Final = msgspec.json.encode(_Response(8, _Choices()))
_IGNORED: Final = msgspec.json.encode(_Response(4, _Message(_NOT_HANDLED, _EPHEMERAL)))


class DiscordVerifier(Verifier):
    """Verifies interactions of the Discord application with this public key (hexadecimal), whose
    time differs from `now` by at most `window_s` seconds.
    """

    def __init__(self, public_key: str, window_s: float) -> None:
        # Imported only where it is used: the service starts faster without.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PublicKey,
        )

        self._key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        self._window_s = window_s

    def check(self, headers: Mapping[str, str]) -> Sequence[bytes]:
        """Check the headers, as `Verifier.check` says."""
        if not TIMESTAMP.fullmatch(header(headers, "x-signature-timestamp")):
            raise not_signed("X-Signature-Timestamp", _HINT)
        given = header(headers, "x-signature-ed25519")
        if not _SIGNATURE.fullmatch(given):
            raise not_signed("X-Signature-Ed25519", _HINT)
        return [bytes.fromhex(given)]

    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> Signed:
        """Return the interaction, as `Verifier.verify` says."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - as above

        (signature,) = self.check(headers)
        timestamp = headers["x-signature-timestamp"]
        try:
            self._key.verify(signature, timestamp.encode() + body)
        except InvalidSignature:
            raise wrong_signature(_HINT) from None
        check_time(timestamp, now, self._window_s)
        found = read_as(_Interaction, body)
        if found.type == _PING:
            return Signed(found.id, "", no_work="It checks the address.", when_ignored=_PONG)
        if found.type == _AUTOCOMPLETE:
            reason = "Somebody is still writing the command."
            return Signed(found.id, "", no_work=reason, when_ignored=_NO_CHOICES)
        reason = "" if found.type in _WITH_WORK else "It is an unknown kind of interaction."
        return Signed(
            found.id, found.id, no_work=reason, when_ignored=_IGNORED, when_accepted=_DEFERRED
        )
