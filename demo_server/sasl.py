"""SASL for clients (RFC 6120 §6): SCRAM-SHA-256, SCRAM-SHA-1, and PLAIN under TLS.

The variants with channel binding (``-PLUS``) are not supported, because Python's ``ssl`` does not
provide ``tls-exporter`` (RFC 9266) for TLS 1.3.
"""

import binascii
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Literal

from scramp import ScramException, ScramMechanism  # type: ignore[import-untyped]

from xep.jid import JID, JIDError

NAMESPACE = "urn:ietf:params:xml:ns:xmpp-sasl"

Condition = Literal[
    "aborted",
    "incorrect-encoding",
    "invalid-authzid",
    "invalid-mechanism",
    "malformed-request",
    "not-authorized",
    "policy-violation",
]
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-1")


class SaslFailureError(Exception):
    """An attempt to authenticate failed, with its condition (RFC 6120 §6.5)."""

    def __init__(self, condition: Condition) -> None:
        super().__init__(condition)
        self.condition: Condition = condition


@dataclass(frozen=True, slots=True)
class Challenge:
    """A challenge for the client; ``data`` is not in base64."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Success:
    """The client is ``account``, a localpart; ``data`` is sent with the success, if not None."""

    account: str
    data: bytes | None


class Exchange(ABC):
    """One attempt to authenticate."""

    @abstractmethod
    def respond(self, data: bytes) -> Challenge | Success:
        """Process the client's next message.

        Raises:
            SaslFailureError: the attempt failed.
        """


class Credentials:
    """The accounts of a host and their passwords, which are kept in memory only.

    Args:
        host: the domain of the accounts.
        accounts: passwords by localpart.

    Raises:
        ValueError: a name is not a valid localpart.
    """

    def __init__(self, host: str, accounts: Mapping[str, str]) -> None:
        self._host = host
        self._passwords = {self._account(name): word for name, word in accounts.items()}
        self._scram_keys: dict[tuple[str, str], tuple[bytes, bytes, bytes, int]] = {}

    @property
    def accounts(self) -> frozenset[str]:
        """The localparts, prepared."""
        return frozenset(self._passwords)

    @staticmethod
    def mechanisms(*, secure: bool) -> tuple[str, ...]:
        """Return the mechanisms offered on a stream, best first. PLAIN sends the password in clear
        text, so it requires TLS.
        """
        return (*_SCRAM, "PLAIN") if secure else _SCRAM

    def start(self, mechanism: str, *, secure: bool) -> Exchange:
        """Begin an attempt with ``mechanism``.

        Raises:
            SaslFailureError: ``invalid-mechanism``, if it is not offered on this stream.
        """
        if mechanism not in self.mechanisms(secure=secure):
            raise SaslFailureError("invalid-mechanism")
        return _Plain(self) if mechanism == "PLAIN" else _Scram(self, mechanism)

    def check(self, name: str, password: str) -> str:
        """Return the account that ``name`` and ``password`` belong to.

        Raises:
            SaslFailureError: ``not-authorized``, whichever of the two is wrong.
        """
        account = self.find(name)
        expected = self._passwords.get(account or "", "")
        # Also compared for an unknown account, so that timing does not reveal which was wrong.
        same = compare_digest(password.encode(), expected.encode())
        if account is None or not same:
            raise SaslFailureError("not-authorized")
        return account

    def find(self, name: str) -> str | None:
        """Return the account with this name, which is prepared first; None if there is none."""
        try:
            account = self._account(name)
        except ValueError:
            return None
        return account if account in self._passwords else None

    def scram_keys(self, mechanism: str, name: str) -> tuple[bytes, bytes, bytes, int] | None:
        """Salt, stored key, server key and iterations (RFC 5802 §3); None for an unknown name."""
        account = self.find(name)
        if account is None:
            return None
        key = (mechanism, account)
        if key not in self._scram_keys:
            made = ScramMechanism(mechanism).make_auth_info(self._passwords[account])
            self._scram_keys[key] = made
        return self._scram_keys[key]

    def owns(self, account: str, authzid: str) -> bool:
        """Return whether ``authzid`` is the account's own bare JID; others are not allowed."""
        try:
            return JID.parse(authzid) == JID(account, self._host)
        except JIDError:
            return False

    def _account(self, name: str) -> str:
        jid = JID.parse(f"{name}@{self._host}")
        if jid.local is None or jid.resource is not None:
            raise JIDError(f"{name!r} is not the part of an address before the '@'.")
        return jid.local


class _Plain(Exchange):
    """RFC 4616: one message, authzid NUL authcid NUL password."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def respond(self, data: bytes) -> Challenge | Success:
        try:
            authzid, name, password = data.decode().split("\0")
        except ValueError:  # of the decoding too
            raise SaslFailureError("malformed-request") from None
        account = self._credentials.check(name, password)
        if authzid and not self._credentials.owns(account, authzid):
            raise SaslFailureError("invalid-authzid")
        return Success(account, None)


class _Scram(Exchange):
    """RFC 5802, RFC 7677: two messages."""

    def __init__(self, credentials: Credentials, mechanism: str) -> None:
        self._credentials = credentials
        self._mechanism = mechanism
        self._name: str | None = None
        self._server = ScramMechanism(mechanism).make_server(self._keys)

    def _keys(self, name: str) -> tuple[bytes, bytes, bytes, int] | None:
        self._name = name
        return self._credentials.scram_keys(self._mechanism, name)

    def respond(self, data: bytes) -> Challenge | Success:
        try:
            message = data.decode()
        except UnicodeDecodeError:
            raise SaslFailureError("malformed-request") from None
        try:
            if self._name is None:
                self._server.set_client_first(message)
                return Challenge(self._server.get_server_first().encode())
            self._server.set_client_final(message)
            final = self._server.get_server_final().encode()
        except ScramException as error:
            # The reason is not sent, because it reveals too much.
            raise SaslFailureError("not-authorized") from error
        account = self._credentials.find(self._name)
        if account is None:
            raise SaslFailureError("not-authorized")
        return Success(account, final)


def decode_data(text: str | None) -> bytes:
    """Return what ``<auth/>`` or ``<response/>`` carries (RFC 6120 §6.4.2, §6.4.3): base64, or
    ``=`` for an empty message.

    Raises:
        SaslFailureError: ``incorrect-encoding``.
    """
    if not text or text == "=":
        return b""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslFailureError("incorrect-encoding") from None


def encode_data(data: bytes) -> str:
    """``data`` as the text of a ``<challenge/>`` or ``<success/>``."""
    return b64encode(data).decode() if data else "="
