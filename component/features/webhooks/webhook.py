"""A webhook: which of its deliveries start work, and the work that they start."""

from typing import Any, Final

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError

from component.config.kinds import is_true
from component.features.webhooks.delivery import Signed, WebhookError, verifier_of
from component.features.webhooks.settings import WebhookEntry
from component.kernel.rate import Rate
from component.kernel.triggers import Trigger, Work, work_of

_PING: Final = "ping"
"""GitHub sends this event when a webhook is made, to see whether it is answered."""


class Webhook:
    """A webhook. The signed time of a delivery may differ from the clock by `window_s` seconds."""

    def __init__(self, entry: WebhookEntry, window_s: float) -> None:
        self.entry = entry
        self.name = entry.name
        self.verifier = verifier_of(entry, window_s)
        self.rate = Rate(entry.per_minute)
        self._work = work_of(entry)
        self._filter = jmespath.compile(entry.filter) if entry.filter else None
        self._select = jmespath.compile(entry.select) if entry.select else None
        self._params = {name: jmespath.compile(text) for name, text in entry.params.items()}

    def reason_to_ignore(self, signed: Signed, value: Any) -> str | None:
        """Return why a delivery starts no work, as a sentence; None if it does."""
        events = self.entry.events
        if signed.event == _PING and _PING not in events:
            return "It is a ping."
        if events and signed.event not in events:
            return f"The event {signed.event} is not among the events of this webhook."
        if self._filter is None:
            return None
        try:
            matches = is_true(self._filter.search(value))
        except JMESPathError as error:
            return f"The filter cannot be applied to it: {error}"
        return None if matches else "The filter does not match."

    def work_for(self, signed: Signed, value: Any) -> tuple[Trigger, Work]:
        """Return what a delivery triggers. Raises WebhookError (503): `select` or `params` cannot
        be applied to it.
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
