"""What Slack and Discord are answered, and which of their deliveries start what."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from component import system
from component.features.webhooks.delivery import WebhookError
from component.features.webhooks.settings import WebhookEntry
from component.features.webhooks.slack import SlackVerifier
from component.features.webhooks.webhook import Webhook
from component.store import Storage, StorageError
from tests.component.features.webhooks.services import Discord, Slack
from tests.component.features.webhooks.world import JULIET, WINDOW_S, World, listening

pytestmark = pytest.mark.anyio

UNHANDLED = "There is nothing here that handles this."
EVENT = b'{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}'
PING = b'{"type":1,"id":"1"}'


def discord(name: str = "ping", **options: Any) -> Webhook:
    key = Discord.secrets["DISCORD_PUBLIC_KEY"]
    given = {"name": name, "path": "/hooks/discord", "kind": "discord", "public_key": key}
    return Webhook(WebhookEntry(principal=str(JULIET), **_work(options), **given), WINDOW_S)


def slack(**options: Any) -> Webhook:
    secret = Slack.secrets["SLACK_SIGNING_SECRET"]
    given = {"name": "mentions", "path": "/hooks/slack", "kind": "slack", "secret": secret}
    return Webhook(WebhookEntry(principal=str(JULIET), **_work(options), **given), WINDOW_S)


def _work(options: dict[str, Any]) -> dict[str, Any]:
    return options if "goal" in options else {"skill": "report"} | options


def started(world: World) -> list[str]:
    return [trigger.name for trigger, _ in world.starter.started]


@pytest.mark.parametrize(
    ("kind", "answer", "starts"),
    [
        (1, {"type": 1}, False),
        (2, {"type": 5}, True),
        (3, {"type": 5}, True),
        (4, {"type": 8, "data": {"choices": []}}, False),
        (5, {"type": 5}, True),
        (9, {"type": 4, "data": {"content": UNHANDLED, "flags": 64}}, False),
    ],
)
async def test_each_kind_of_interaction_has_its_answer(
    storage: Storage, kind: int, answer: object, starts: bool
) -> None:
    async with listening(storage, discord()) as world:
        found = await Discord().send(world.sender, {"id": "1", "type": kind})
        assert (found.status, found.json) == (200, answer)
        assert found.headers["content-type"] == "application/json"
        assert started(world) == ["ping"] * starts


async def test_an_interaction_is_not_deferred_if_its_work_cannot_be_recorded(
    storage: Storage,
) -> None:
    async with listening(storage, discord()) as world:
        world.starter.error = StorageError("The disk is full.")
        assert (await Discord().use(world.sender, "ping")).status == 503
        world.starter.error = None
        assert (await Discord().use(world.sender, "ping")).json == {"type": 5}


async def test_what_is_no_event_of_slack_starts_nothing(storage: Storage) -> None:
    async with listening(storage, slack()) as world:
        limited = {"type": "app_rate_limited", "minute_rate_limited": 1518467820}
        found = await Slack().send(world.sender, limited)
        assert (found.status, found.json["status"]) == (200, "ignored")
        assert not world.starter.started


Headers: TypeAlias = list[tuple[str, str]]


def same(headers: Headers) -> Headers:
    return headers


def twice(headers: Headers) -> Headers:
    return [*headers, headers[1]]


@pytest.mark.parametrize(
    ("late_s", "wrong", "change", "sent", "status"),
    [
        (0, True, same, None, 401),
        (400, False, same, None, 401),
        (-400, False, same, None, 401),
        (0, False, same, b"{}", 401),
        (0, False, lambda headers: headers[:2], None, 401),
        (0, False, lambda headers: headers[:1], None, 401),
        (0, False, twice, None, 400),
    ],
)
@pytest.mark.parametrize(
    ("service", "path", "body"), [(Slack, "/hooks/slack", EVENT), (Discord, "/hooks/discord", PING)]
)
async def test_each_fault_has_its_status_and_says_nothing_about_secrets(
    storage: Storage,
    service: type[Slack | Discord],
    path: str,
    body: bytes,
    late_s: float,
    wrong: bool,
    change: Callable[[Headers], Headers],
    sent: bytes | None,
    status: int,
) -> None:
    headers = change(service.headers(body, at=system.time() - late_s, wrong=wrong))
    async with listening(storage, discord(), slack()) as world:
        found = await world.sender.request("POST", path, headers, body if sent is None else sent)
        assert (found.status, set(found.json)) == (status, {"status", "reason"})
        assert not any(word in found.json["reason"] for word in ("secret", "key", "expected"))
        assert world.starter.called == 0


@pytest.mark.parametrize("body", [b"{}", b"[" * 900, b"\xff", b'{"type":"event_callback"}'])
async def test_what_is_signed_and_not_of_the_service_is_refused(
    storage: Storage, body: bytes
) -> None:
    async with listening(storage, discord(), slack()) as world:
        for service, path in ((Slack, "/hooks/slack"), (Discord, "/hooks/discord")):
            found = await world.sender.request("POST", path, service.headers(body), body)
            assert (found.status, found.json["status"]) == (400, "refused")
        assert world.starter.called == 0


def test_a_signature_that_slack_has_published_is_right() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id="
        b"G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command="
        b"%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2F"
        b"T1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id="
        b"398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    verifier = SlackVerifier([b"8f742231b10e8888abcd99yyyzzz85a5"], WINDOW_S)
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": (
            "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
        ),
    }
    for sent, status in ((body, 400), (body + b"&", 401)):  # signed, and no event
        with pytest.raises(WebhookError) as refused:
            verifier.verify(headers, sent, 1531420618)
        assert refused.value.status == status


async def test_the_first_webhook_at_a_path_that_fits_does_the_work(storage: Storage) -> None:
    webhooks = (
        discord("ping", filter="data.name == 'ping'"),
        discord("roll", filter="data.name == 'roll'"),
        discord("any", filter="data.name != 'secret'"),
    )
    service = Discord()
    async with listening(storage, *webhooks) as world:
        for number, command in enumerate(("roll", "ping", "other")):
            assert (await service.use(world.sender, command, str(number))).json == {"type": 5}
        assert (await service.use(world.sender, "secret", "4")).json["type"] == 4
        assert started(world) == ["roll", "ping", "any"]
    async with listening(storage, discord("all")) as world:  # it fits now, and came before
        for number, command in enumerate(("roll", "ping", "other", "secret")):
            await service.use(world.sender, command, str(number + (number == 3)))
        assert not world.starter.started


async def test_the_secrets_of_a_delivery_are_not_shown(storage: Storage) -> None:
    webhook = discord(params={"text": "token"})
    async with listening(storage, webhook, slack()) as world:
        await Discord().use(world.sender, "ping")
        await Slack().mention(world.sender, "Hello")
        (interaction, work), (event, _) = world.starter.started
    assert Discord.TOKEN not in bytes(interaction.data).decode()
    assert json.loads(bytes(work.params)) == {"text": Discord.TOKEN}
    assert json.loads(bytes(event.data))["event"]["text"] == "Hello"
    assert "token" not in json.loads(bytes(event.data))


def test_the_model_is_told_that_its_answer_is_the_reply() -> None:
    reply = {"skill": "discord.followup"}
    plain, replying = discord(goal="Greet."), discord(goal="Greet.", reply=reply)
    signed = plain.verifier.verify(
        {name.lower(): value for name, value in Discord.headers(PING)}, PING, system.time()
    )
    assert plain.work_for(signed, {})[1].goal == "Greet."
    goal = replying.work_for(signed, {})[1].goal
    assert goal is not None
    assert goal.startswith("Greet.\nYour answer is sent as it is")
