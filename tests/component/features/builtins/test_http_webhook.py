"""`http_webhook` sends signed events to the URLs of the settings, and nowhere else."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from component.features.builtins.http_webhook import http_webhook_skill, signed
from component.features.builtins.settings import HttpWebhook
from component.skills import InvalidParam, Skill
from component.skills.errors import SkillUnavailable
from tests.component.skill_calls import called, text_of
from tests.component.web_server import Response, as_json, redirect, serving

pytestmark = pytest.mark.anyio

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVENT = {"target": "builds", "event": "build.requested", "data": {"branch": "main"}}


def webhook(url: str, **more: Any) -> Skill:
    target = HttpWebhook(url=url, secret=SECRET, **more)  # type: ignore[arg-type]
    return http_webhook_skill({"builds": target})


async def test_an_event_is_delivered_and_signed() -> None:
    async with serving(lambda _: as_json({"queued": True})) as server:
        url = f"{server.url}/in?token=geheim"
        result = await called(webhook(url, headers={"X-Team": "agents"}), EVENT)
    assert text_of(result) == 'Delivered to builds (status 200). It answered: {"queued": true}'
    request = server.requests[0]
    assert (request.method, request.path) == ("POST", "/in?token=geheim")
    assert request.headers["x-team"] == "agents"
    assert request.json["type"] == "build.requested"
    assert request.json["data"] == {"branch": "main"}
    sent = datetime.fromisoformat(request.json["timestamp"])
    again = signed(SECRET, request.headers["webhook-id"], sent, request.body)
    assert {key: request.headers[key] for key, _ in again} == dict(again)


def test_the_signature_is_that_of_standard_webhooks() -> None:
    now = datetime.fromtimestamp(1614265330, UTC)
    headers = dict(signed(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", now, b'{"test": 2432232314}'))
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_only_targets_of_the_settings_are_reached() -> None:
    with pytest.raises(InvalidParam):
        await called(webhook("https://example.com"), EVENT | {"target": "https://evil.example"})
    with pytest.raises(InvalidParam):
        await called(webhook("https://example.com"), EVENT | {"event": "a b\r\n"})


async def test_a_failure_is_told_and_not_repeated() -> None:
    async with serving(lambda _: Response(status=500)) as server:
        with pytest.raises(SkillUnavailable) as failure:
            await called(webhook(server.url), EVENT)
        assert failure.value.begun
        assert len(server.requests) == 1
    async with serving(lambda _: redirect("/else")) as server:
        with pytest.raises(SkillUnavailable, match="redirects"):
            await called(webhook(server.url), EVENT)
        assert len(server.requests) == 1


def test_http_webhook_declares_its_effects_and_checks_its_settings() -> None:
    skill = webhook("https://hooks.example.com/x?token=geheim")
    assert skill.annotations.destructive
    assert not skill.annotations.read_only
    assert skill.capabilities == ("network:hooks.example.com:443:https",)
    assert "geheim" not in str(skill.input_schema)
    assert "geheim" not in repr(HttpWebhook(url="https://a.example/geheim"))  # type: ignore[arg-type]
    for wrong in ({"url": ""}, {"url": "ftp://x"}, {"url": "https://a.example", "secret": "x"}):
        with pytest.raises(ValidationError):
            HttpWebhook(**wrong)
