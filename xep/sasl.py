"""SASL for a client (RFC 6120 §6): SCRAM (RFC 5802, RFC 7677), and PLAIN (RFC 4616) under TLS.

``scramp`` computes SCRAM; it is imported when the first login begins.
"""

import binascii
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Collection
from typing import Any, Final

NAMESPACE: Final = "urn:ietf:params:xml:ns:xmpp-sasl"
CHANNEL_BINDING: Final = "urn:xmpp:sasl-cb:0"
"""Announces the types of channel binding that a server supports (XEP-0440)."""
END_POINT: Final = "tls-server-end-point"
"""The channel binding that hashes the server's certificate (RFC 5929 §4)."""

_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-1")
_SCRAM_PLUS: Final = ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-1-PLUS")


class SaslError(Exception):
    """The server's part of the exchange is invalid: it cannot be the server that knows the account.

    Its text is for people and contains no secret.
    """


class Exchange(ABC):
    """One login.

    Attributes:
        mechanism: its name, for ``<auth/>``.
    """

    mechanism: str

    @abstractmethod
    def first(self) -> bytes:
        """Return the initial response."""

    @abstractmethod
    def respond(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge. Raises SaslError."""

    @abstractmethod
    def check(self, final: bytes) -> None:
        """Verify the data of the success. Raises SaslError if the server has proved nothing."""


class Scram(Exchange):
    """SCRAM (RFC 5802 §5), with channel binding if the mechanism's name ends in ``-PLUS``.

    Args:
        mechanism: its name.
        name: the localpart of the account.
        password: its password.
        binding: type and data of the channel binding. With a mechanism without ``-PLUS`` it says
            that the server offered none (RFC 5802 §6), so that a server which did offer one
            notices that somebody has removed it.
        nonce: a nonce for tests; a random one by default.
    """

    def __init__(
        self,
        mechanism: str,
        name: str,
        password: str,
        binding: tuple[str, bytes] | None = None,
        nonce: str | None = None,
    ) -> None:
        # Imported here, because a component needs none of it.
        from scramp import ScramClient, ScramException  # type: ignore[import-untyped] # noqa: PLC0415

        self.mechanism = mechanism
        self._fault: type[Exception] = ScramException
        self._asked = False
        self._checked = False
        try:
            self._client: Any = ScramClient(
                [mechanism], name, password, channel_binding=binding, c_nonce=nonce
            )
        except ScramException as error:
            raise SaslError(
                f"the account or its password cannot be used with SCRAM: {error}"
            ) from error

    def first(self) -> bytes:
        """Return the client-first-message."""
        message: str = self._client.get_client_first()
        return message.encode()

    def respond(self, challenge: bytes) -> bytes:
        """Return the client-final-message; an empty one to a server that sends its proof as a
        challenge.
        """
        try:
            if self._asked:
                self.check(challenge)
                return b""
            self._asked = True
            self._client.set_server_first(challenge.decode())
            message: str = self._client.get_client_final()
        except (self._fault, UnicodeDecodeError) as error:
            raise SaslError(f"the server's challenge is not valid SCRAM: {error}") from error
        return message.encode()

    def check(self, final: bytes) -> None:
        """Verify the server's signature: only a server that knows the account can make it."""
        if self._checked and not final:
            return
        if not self._asked or self._checked:
            raise SaslError("the server ended the login before it proved that it knows the account")
        try:
            self._client.set_server_final(final.decode())
        except (self._fault, UnicodeDecodeError) as error:
            text = "the server did not prove that it knows the account's password"
            raise SaslError(text) from error
        self._checked = True


class Plain(Exchange):
    """The password itself (RFC 4616); only to be used under TLS."""

    mechanism = "PLAIN"

    def __init__(self, name: str, password: str) -> None:
        self._message = f"\0{name}\0{password}".encode()

    def first(self) -> bytes:
        """Return name and password."""
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        """Raise SaslError: PLAIN has no challenges."""
        raise SaslError("the server answered PLAIN with a challenge")

    def check(self, final: bytes) -> None:
        """Accept any success: PLAIN does not authenticate the server."""


def choose(
    offered: Collection[str],
    name: str,
    password: str,
    *,
    secure: bool,
    bindings: Collection[str] = (),
    end_point: bytes | None = None,
) -> Exchange | None:
    """Start a login with the best of the mechanisms that a server offers; return None if none is
    usable.

    Args:
        offered: names of mechanisms.
        name: the localpart of the account.
        password: its password.
        secure: whether the stream uses TLS, without which PLAIN is never used.
        bindings: types of channel binding that the server announces.
        end_point: the data of ``tls-server-end-point``, if it is known.

    Raises:
        SaslError: the account or its password contains characters that SASLprep forbids.
    """
    bound = None if end_point is None else (END_POINT, end_point)
    if bound is not None and END_POINT in bindings:
        for mechanism in _SCRAM_PLUS:
            if mechanism in offered:
                return Scram(mechanism, name, password, bound)
    if any(mechanism.endswith("-PLUS") for mechanism in offered):
        bound = None  # offered, but with a type of binding that is not available here
    for mechanism in _SCRAM:
        if mechanism in offered:
            return Scram(mechanism, name, password, bound)
    return Plain(name, password) if secure and "PLAIN" in offered else None


def end_point_of(certificate: bytes) -> bytes | None:
    """Return the data of ``tls-server-end-point`` for a certificate in DER (RFC 5929 §4.1); None if
    the RFC defines none for its signature algorithm.
    """
    from scramp import ScramException  # noqa: PLC0415 - as above
    from scramp.core import CBindData  # type: ignore[import-untyped] # noqa: PLC0415

    try:
        return bytes(CBindData.from_der(certificate))
    except ScramException:
        return None


def encode_data(data: bytes) -> str:
    """Return a message as the text of ``<auth/>`` or ``<response/>`` (RFC 6120 §6.4.2)."""
    return b64encode(data).decode() if data else "="


def decode_data(text: str | None) -> bytes:
    """Return the decoded content of ``<challenge/>`` or ``<success/>``. Raises SaslError if it is
    not base64.
    """
    text = (text or "").strip()
    if not text or text == "=":
        return b""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError("the server sent what is not base64") from None
