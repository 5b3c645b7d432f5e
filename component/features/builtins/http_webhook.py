"""The skill `http_webhook`: sends an event to a URL of the settings, signed as Standard Webhooks
(https://www.standardwebhooks.com) do.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from component import system
from component.config.kinds import standard_key
from component.features.builtins.settings import HttpWebhook
from component.http.gate import Headers, HttpGate, HttpLimits, HttpRequest, access_to
from component.http.targets import network_capability
from component.rest.requests import in_one_line, request
from component.skills.context import Context
from component.skills.inputs import schema_inputs
from component.skills.outputs import TEXT, Output, SkillResult
from component.skills.skill import Skill
from component.skills.spec import Annotations, Schema

_RESPONSE_BYTES: Final = 65_536
_CONTENT: Final = ("Content-Type", "application/json")


class _Delivery(msgspec.Struct, frozen=True):
    type: str
    timestamp: str
    data: Any


def http_webhook_skill(targets: Mapping[str, HttpWebhook]) -> Skill:
    """Return the skill `http_webhook` for the targets of the settings, by their names."""
    urls = {name: each.url.get_secret_value() for name, each in targets.items()}

    async def deliver(arguments: Any, context: Context | None) -> SkillResult:
        assert context is not None, "it wants one"
        name = arguments["target"]
        target = targets[name]
        now = system.now()
        delivery = _Delivery(arguments["event"], now.isoformat(), arguments.get("data"))
        body = msgspec.json.encode(delivery)
        # The same in a repetition of the call, so the receiver can see that it is one.
        headers = signed(target.secret.get_secret_value(), f"msg_{context.key}", now, body)
        gate = HttpGate(
            (access_to(urls[name]),),
            HttpLimits(timeout_s=target.timeout_s, response_bytes=_RESPONSE_BYTES, redirects=0),
        )
        own = tuple((key, value.get_secret_value()) for key, value in target.headers.items())
        response = await request(
            gate,
            HttpRequest(urls[name], "POST", (_CONTENT, *headers), body, secret_headers=own),
            repeatable=False,
        )
        answer = in_one_line(response.body.decode(errors="replace"))
        text = f"Delivered to {name} (status {response.status})."
        return SkillResult((Output(f"{text} It answered: {answer}" if answer else text, TEXT),))

    schema = _schema(targets)
    return Skill(
        name="http_webhook",
        title="Send an event to a webhook",
        question="May I send the event {event} to {target}[, with {data}]?",
        description="Send an event to another service, which may start something there. The person"
        " is asked to confirm it.",
        tags=("webhook",),
        annotations=Annotations(read_only=False, destructive=True, open_world=True),
        input_schema=schema,
        inputs=schema_inputs(schema),
        kind="async",
        wants_context=True,
        invoke=deliver,
        timeout=max(each.timeout_s for each in targets.values()) + 5,
        capabilities=tuple(dict.fromkeys(map(network_capability, urls.values()))),
        taint="web",
        source="built in",
    )


def signed(secret: str, delivery: str, now: datetime, body: bytes) -> Headers:
    """Return the header fields of Standard Webhooks; without a secret there is no signature."""
    stamp = str(int(now.timestamp()))
    headers = (("webhook-id", delivery), ("webhook-timestamp", stamp))
    key = standard_key(secret) if secret else None
    if key is None:
        return headers
    content = f"{delivery}.{stamp}.".encode() + body
    signature = base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    return (*headers, ("webhook-signature", f"v1,{signature}"))


def _schema(targets: Mapping[str, HttpWebhook]) -> Schema:
    told = "; ".join(
        f"{name}: {each.description}" for name, each in targets.items() if each.description
    )
    return {
        "type": "object",
        "properties": {
            "target": {"enum": list(targets), "description": f"Where to send it. {told}".strip()},
            "event": {
                "type": "string",
                "pattern": "^[A-Za-z0-9_.-]{1,100}$",
                "description": "What happened, such as build.requested.",
            },
            "data": {"type": "object", "description": "Details of the event."},
        },
        "required": ["target", "event"],
        "additionalProperties": False,
    }
