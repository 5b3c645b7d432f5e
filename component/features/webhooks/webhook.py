"""A webhook: which of its deliveries start work, and the work that they start."""

from collections.abc import Collection, Mapping
from typing import Any

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError

from component.features.webhooks.errors import WebhookError
from component.features.webhooks.signatures import Signed, Verifier
from component.proactive.work import Trigger, Work

_PING = "ping"
"""GitHub sends this event when a webhook is made, to see whether it is answered."""


class Rate:
    """Bounds how often something happens: a token bucket that holds one minute's worth.

    Args:
        per_minute: how often it may happen in a minute.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._tokens = float(per_minute)
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take a token at a time in seconds, which only goes forward.

        Returns 0, or the seconds after which there will be one.
        """
        if self._at is not None:
            passed = max(0.0, now - self._at)
            self._tokens = min(self._per_minute, self._tokens + passed * self._per_minute / 60)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0
        return (1 - self._tokens) * 60 / self._per_minute

    def give_back(self) -> None:
        """What a token was taken for has not happened."""
        self._tokens = min(self._per_minute, self._tokens + 1)


class Webhook:
    """One webhook.

    Args:
        name: its name.
        path: the path of its URL.
        verifier: verifies who sent a delivery.
        work: what each delivery starts; the parameters of a skill are filled in from it.
        events: the kinds of events that start work; empty for all.
        filter: a JMESPath expression that is true of deliveries that start work; empty for all.
        select: a JMESPath expression that selects what the work is shown; empty for everything.
        params: a JMESPath expression for each parameter of the skill.
        per_minute: how many deliveries may start work in a minute.
        forms: whether a delivery may be a form with the field `payload`, as GitHub's can.

    Attributes:
        rate: counts the deliveries that start work.
    """

    def __init__(
        self,
        name: str,
        path: str,
        verifier: Verifier,
        work: Work,
        *,
        events: Collection[str] = (),
        filter: str = "",  # noqa: A002 - named as in the settings
        select: str = "",
        params: Mapping[str, str] | None = None,
        per_minute: int = 60,
        forms: bool = False,
    ) -> None:
        self.name = name
        self.path = path
        self.verifier = verifier
        self.forms = forms
        self.rate = Rate(per_minute)
        self._work = work
        self._events = frozenset(events)
        self._filter = jmespath.compile(filter) if filter else None
        self._select = jmespath.compile(select) if select else None
        self._params = {name: jmespath.compile(text) for name, text in (params or {}).items()}

    def why_ignored(self, signed: Signed, value: Any) -> str | None:
        """Why a delivery starts no work, as a sentence; None if it does."""
        if signed.event == _PING and _PING not in self._events:
            return "It is a ping."
        if self._events and signed.event not in self._events:
            return f"The event {signed.event} is not among the events of this webhook."
        if self._filter is None:
            return None
        try:
            matches = _is_true(self._filter.search(value))
        except JMESPathError as error:
            return f"The filter cannot be applied to it: {error}"
        return None if matches else "The filter does not match."

    def started_by(self, signed: Signed, value: Any) -> tuple[Trigger, Work]:
        """What a delivery triggers.

        Raises WebhookError (503): `select` or `params` cannot be applied to it.
        """
        try:
            shown = value if self._select is None else self._select.search(value)
            params = {name: each.search(value) for name, each in self._params.items()}
        except JMESPathError as error:
            raise WebhookError(
                503,
                "This service is not set up for such a delivery.",
                f"correct select or params: {error}",
            ) from None
        trigger = Trigger(
            source="webhook",
            name=self.name,
            key=signed.key,
            data=msgspec.Raw(msgspec.json.encode(shown)),
            taint="web",
        )
        if not params:
            return trigger, self._work
        found = {name: each for name, each in params.items() if each is not None}
        filled = msgspec.Raw(msgspec.json.encode(found))
        return trigger, msgspec.structs.replace(self._work, params=filled, filled=True)


def _is_true(value: Any) -> bool:
    """JMESPath's own notion of truth: everything but false, null, and what is empty."""
    return value is not None and value is not False and value not in ("", [], {})
