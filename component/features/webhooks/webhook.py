"""A webhook: which of its deliveries start work, and the work that they start."""

from typing import Any, Final

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError

from component.config.kinds import is_true, standard_key
from component.features.webhooks.delivery import (
    GitHubVerifier,
    Signed,
    StandardVerifier,
    Verifier,
    WebhookError,
)
from component.features.webhooks.rows import Reply
from component.features.webhooks.settings import WebhookEntry
from component.kernel.rate import Rate
from component.kernel.triggers import Trigger, Work, work_of

_PING: Final = "ping"
"""GitHub sends this event when a webhook is made, to see whether it is answered."""
_WITH_TOKEN: Final = ("slack", "discord")
"""Kinds whose deliveries have a secret of the service in the member `token`."""
_REPLIED: Final = (
    "Your answer is sent as it is to where the event came from, where others may read it: write"
    " nothing but the answer."
)


class Webhook:
    """A webhook. The signed time of a delivery may differ from the clock by `window_s` seconds."""

    def __init__(self, entry: WebhookEntry, window_s: float) -> None:
        self.entry = entry
        self.name = entry.name
        self.verifier = _verifier_of(entry, window_s)
        self.rate = Rate(entry.per_minute)
        self._work = work_of(entry)
        if entry.goal and entry.reply is not None:
            goal = f"{entry.goal}\n{_REPLIED}"
            self._work = msgspec.structs.replace(self._work, goal=goal)
        self._filter = jmespath.compile(entry.filter) if entry.filter else None
        self._select = jmespath.compile(entry.select) if entry.select else None
        self._params = {name: jmespath.compile(text) for name, text in entry.params.items()}
        of_reply = {} if entry.reply is None else entry.reply.params
        self._reply_params = {name: jmespath.compile(text) for name, text in of_reply.items()}

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
        shown = self._without_token(value)
        try:
            if self._select is not None:
                shown = self._select.search(value)
            params = _filled(self._params, value)
        except JMESPathError as error:
            raise _unsuitable(f"correct select or params: {error}") from None
        trigger = Trigger(
            source="webhook",
            name=self.name,
            key=signed.key,
            data=msgspec.Raw(msgspec.json.encode(shown)),
            taint="web",
        )
        if not self._params:
            return trigger, self._work
        return trigger, msgspec.structs.replace(self._work, params=params, filled=True)

    def reply_to(self, signed: Signed, value: Any) -> Reply | None:
        """Return the reply that the result of a delivery's work becomes; None if there is none.
        Raises WebhookError (503): its parameters cannot be selected.
        """
        entry = self.entry.reply
        if entry is None:
            return None
        try:
            params = _filled(self._reply_params, value)
        except JMESPathError as error:
            raise _unsuitable(f"correct reply.params: {error}") from None
        return Reply(
            webhook=self.name,
            delivery=signed.key,
            agent=self._work.agent,
            principal=self._work.principal,
            skill=entry.skill,
            params=params,
            text=entry.text,
            failed=entry.failed,
            of_skill=self._work.skill,
        )

    def _without_token(self, value: Any) -> Any:
        if self.entry.kind not in _WITH_TOKEN or not isinstance(value, dict):
            return value
        return {name: each for name, each in value.items() if name != "token"}


def _verifier_of(entry: WebhookEntry, window_s: float) -> Verifier:
    """Return what verifies the deliveries of a webhook. Those of Slack and Discord are imported
    where they are used.
    """
    given = [entry.secret.get_secret_value(), entry.previous_secret.get_secret_value()]
    secrets = [secret.encode() for secret in given if secret]
    match entry.kind:
        case "github":
            return GitHubVerifier(secrets)
        case "slack":
            from component.features.webhooks.slack import SlackVerifier  # noqa: PLC0415

            return SlackVerifier(secrets, window_s)
        case "discord":
            from component.features.webhooks.discord import DiscordVerifier  # noqa: PLC0415

            return DiscordVerifier(entry.public_key, window_s)
    keys = [standard_key(secret) for secret in given if secret]
    return StandardVerifier([key for key in keys if key is not None], window_s)


def _filled(params: dict[str, Any], value: Any) -> msgspec.Raw:
    """Return the parameters that are selected from a delivery, as JSON; what selects nothing is
    left out. Raises JMESPathError.
    """
    found = {name: each.search(value) for name, each in params.items()}
    given = {name: each for name, each in found.items() if each is not None}
    return msgspec.Raw(msgspec.json.encode(given))


def _unsuitable(hint: str) -> WebhookError:
    return WebhookError(503, "This service is not set up for such a delivery.", hint)
