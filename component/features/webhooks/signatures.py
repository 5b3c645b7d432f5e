"""Verifies who sent a delivery, by the documented signatures of GitHub and of Standard Webhooks.

GitHub signs the body alone (`X-Hub-Signature-256`, HMAC with SHA-256, hexadecimal). Standard
Webhooks (https://www.standardwebhooks.com) signs `id.timestamp.body` (`webhook-signature`, a list
of `v1,` and base64). All comparisons take the same time whatever the signature is.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol

import msgspec

from component.features.webhooks.errors import WebhookError

_GITHUB_SIGNATURE: Final = re.compile(r"sha256=([0-9a-f]{64})")
_ID: Final = re.compile(r"[!-~]{1,256}")
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}")
_EVENT: Final = re.compile(r"[a-z0-9_]{1,64}")
_MOST_SIGNATURES: Final = 8
"""Signatures of one delivery that are looked at; there is one for each secret of the sender."""
_LONGEST_HEADER: Final = 1024

_SHARE_HINT: Final = (
    "set the same secret in [[webhook]] and at the sender; if it was changed there, keep the old"
    " one in previous_secret until all deliveries with it have arrived"
)


class Signed(msgspec.Struct, frozen=True):
    """A delivery whose sender is known.

    Attributes:
        id: the sender's id of the delivery, for answers and the log.
        key: the same for a delivery that is sent again, and signed.
        event: the kind of event, if the sender names it.
    """

    id: str
    key: str
    event: str = ""


class Verifier(Protocol):
    """Verifies deliveries of one kind."""

    def check(self, headers: Mapping[str, str]) -> None:
        """Check that the headers can belong to a signed delivery, before its body is received.

        Raises WebhookError, as `verify` does.
        """

    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> Signed:
        """The delivery with these headers (names in lower case) and this body.

        `now` is in seconds since 1970. Raises WebhookError: 400 for headers that are missing or
        malformed, 401 for a signature that is wrong or too old.
        """


class GitHubVerifier:
    """Verifies deliveries of GitHub, and of those who sign as GitHub does.

    The id of a delivery (`X-GitHub-Delivery`) is not signed. So the key is made from the body: who
    has recorded a delivery cannot start work with it by inventing a new id.

    Args:
        secrets: the secret, and the ones before it that are still accepted.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = tuple(secrets)

    def check(self, headers: Mapping[str, str]) -> None:
        """See `Verifier`."""
        self._signature(headers)

    @staticmethod
    def _signature(headers: Mapping[str, str]) -> bytes:
        given = _GITHUB_SIGNATURE.fullmatch(_header(headers, "x-hub-signature-256"))
        if given is None:
            raise WebhookError(
                401,
                "The header X-Hub-Signature-256 is missing or malformed.",
                f"the sender does not sign its deliveries: {_SHARE_HINT}",
            )
        return given[1].encode()

    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> Signed:
        """See `Verifier`."""
        signature = self._signature(headers)
        valid = False
        for secret in self._secrets:
            expected = hmac.new(secret, body, sha256).hexdigest().encode()
            valid |= hmac.compare_digest(expected, signature)
        if not valid:
            raise WebhookError(401, "The signature is wrong.", _SHARE_HINT)
        event = headers.get("x-github-event", "")
        if not _EVENT.fullmatch(event):
            raise WebhookError(
                400,
                "The header X-GitHub-Event is missing or malformed.",
                'the sender is not GitHub: use kind = "generic" if it follows Standard Webhooks',
            )
        digest = sha256(body).hexdigest()
        id_ = headers.get("x-github-delivery", "")
        # The event is not signed either, but which one it is decides what is done.
        return Signed(id_ if _ID.fullmatch(id_) else digest[:32], digest, event)


class StandardVerifier:
    """Verifies deliveries of senders that follow Standard Webhooks.

    Args:
        keys: the key, and the ones before it that are still accepted.
        window_s: maximum number of seconds by which the time of a delivery may differ from `now`.
    """

    def __init__(self, keys: Sequence[bytes], window_s: float) -> None:
        self._keys = tuple(keys)
        self._window_s = window_s

    def check(self, headers: Mapping[str, str]) -> None:
        """See `Verifier`."""
        self._signed_headers(headers)

    @staticmethod
    def _signed_headers(headers: Mapping[str, str]) -> tuple[str, str, list[bytes]]:
        """Return the id, the timestamp and the signatures."""
        id_ = _wanted(headers, "webhook-id", _ID)
        timestamp = _wanted(headers, "webhook-timestamp", _TIMESTAMP)
        given = _header(headers, "webhook-signature")
        if not given:
            raise WebhookError(
                401,
                "The header webhook-signature is missing.",
                f"the sender does not sign its deliveries: {_SHARE_HINT}",
            )
        signatures = [found for text in given.split(" ") if (found := _decoded(text))]
        return id_, timestamp, signatures

    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> Signed:
        """See `Verifier`."""
        id_, timestamp, signatures = self._signed_headers(headers)
        signed = b".".join((id_.encode(), timestamp.encode(), body))
        valid = False
        for key in self._keys:
            expected = hmac.new(key, signed, sha256).digest()
            for signature in signatures[:_MOST_SIGNATURES]:
                valid |= hmac.compare_digest(expected, signature)
        if not valid:
            raise WebhookError(401, "The signature is wrong.", _SHARE_HINT)
        late_s = now - int(timestamp)
        if abs(late_s) > self._window_s:
            when = "past" if late_s > 0 else "future"
            raise WebhookError(
                401,
                "The timestamp is too far from the time of this service.",
                f"the delivery was signed {abs(late_s):.0f} s in the {when}: set the clocks of both"
                " machines, or increase webhooks.replay_window_s",
            )
        return Signed(id_, id_)


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    return value if len(value) <= _LONGEST_HEADER else ""


def _wanted(headers: Mapping[str, str], name: str, pattern: re.Pattern[str]) -> str:
    value = _header(headers, name)
    if not pattern.fullmatch(value):
        raise WebhookError(
            400,
            f"The header {name} is missing or malformed.",
            'the sender does not follow Standard Webhooks; for GitHub use kind = "github"',
        )
    return value


def _decoded(text: str) -> bytes | None:
    version, _, signature = text.partition(",")
    if version != "v1":
        return None  # signatures of other versions stand beside it while a sender changes
    try:
        return base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return None
