"""Deliveries of the Events API of Slack.

Slack signs `v0:timestamp:body` (`X-Slack-Signature`, `v0=` and an HMAC with SHA-256, hexadecimal;
https://docs.slack.dev/authentication/verifying-requests-from-slack). A request that is repeated,
with `X-Slack-Retry-Num`, has the same `event_id` and another timestamp. To check the address, Slack
sends a `url_verification`, whose challenge is the answer.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from component.features.webhooks.delivery import (
    TIMESTAMP,
    HmacVerifier,
    Signed,
    check_time,
    header,
    not_signed,
    read_as,
)

_SIGNATURE: Final = re.compile(r"v0=([0-9a-f]{64})")
_HINT: Final = "set secret to the signing secret of the app, in Basic Information at https://api.slack.com/apps"


class _Kind(msgspec.Struct):
    type: str


class _Event(msgspec.Struct):
    event_id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class _Challenge(msgspec.Struct):
    challenge: str


class SlackVerifier(HmacVerifier):
    """Verifies deliveries of Slack, whose time differs from `now` by at most `window_s` seconds."""

    def __init__(self, secrets: Sequence[bytes], window_s: float) -> None:
        super().__init__(secrets)
        self._window_s = window_s

    def check(self, headers: Mapping[str, str]) -> Sequence[bytes]:
        """Check the headers, as `Verifier.check` says."""
        if not TIMESTAMP.fullmatch(header(headers, "x-slack-request-timestamp")):
            raise not_signed("X-Slack-Request-Timestamp", _HINT)
        given = _SIGNATURE.fullmatch(header(headers, "x-slack-signature"))
        if given is None:
            raise not_signed("X-Slack-Signature", _HINT)
        return [bytes.fromhex(given[1])]

    def verify(self, headers: Mapping[str, str], body: bytes, now: float) -> Signed:
        """Return the delivery, as `Verifier.verify` says."""
        signatures = self.check(headers)
        timestamp = headers["x-slack-request-timestamp"]
        self._check_signature(b":".join((b"v0", timestamp.encode(), body)), signatures, _HINT)
        check_time(timestamp, now, self._window_s)
        match read_as(_Kind, body).type:
            case "url_verification":
                answer = msgspec.json.encode(read_as(_Challenge, body))
                return Signed("", "", no_work="It checks the address.", when_ignored=answer)
            case "event_callback":
                event = read_as(_Event, body).event_id
                return Signed(event, event)
        return Signed("", "", no_work="It is not an event.")
