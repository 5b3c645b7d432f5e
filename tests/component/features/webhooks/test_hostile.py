"""Whatever strangers send, the listener answers the next sender, and starts no work."""

import base64
import contextlib
import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.webhooks.delivery import (
    GitHubVerifier,
    StandardVerifier,
    Verifier,
    WebhookError,
    read_json,
)
from component.features.webhooks.discord import DiscordVerifier
from component.features.webhooks.settings import WebhookLimits
from component.features.webhooks.slack import SlackVerifier
from component.kernel.rate import Rate
from component.store import Storage
from tests.component.features.webhooks.services import Discord, Slack
from tests.component.features.webhooks.world import (
    KEY,
    SECRET,
    generic,
    generic_headers,
    github,
    github_headers,
    listening,
)
from tests.waiting import eventually

NOW = 1_800_000_000
SLACK = Slack.secrets["SLACK_SIGNING_SECRET"].encode()
DISCORD = Discord.secrets["DISCORD_PUBLIC_KEY"]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
HOSTILE = [
    b"",
    b"\x00" * 64,
    b"GET",
    b"\r\n\r\n",
    b"POST /any HTTP/1.1\r\n\r\n",
    b"POST /any HTTP/9.9\r\nHost: x\r\n\r\n",
    b"POST /any HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /any HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /any HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"POST /any HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"POST /any HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 40_000,
    b"POST /any HTTP/1.1\r\n" + b"A: b\r\n" * 4_000 + b"\r\n",
    b"POST " + b"/a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /%00%ff%2e HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    (
        b"GET /any HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ),
    (
        b"GET /any HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"HTTP2-Settings: !!!\r\n\r\n"
    ),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 50,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@pytest.mark.anyio
async def test_hostile_bytes_stop_nobody(storage: Storage) -> None:
    async with listening(storage, generic(), github(), headers_s=1) as world:
        for data in HOSTILE:
            with anyio.fail_after(120):
                await world.sender.raw(data)
            assert (await world.sender.generic({}, id_="x!"[:1])).status == 202
        assert len(world.starter.started) == 1


@pytest.mark.anyio
async def test_random_bytes_stop_nobody(storage: Storage) -> None:
    """Beginnings of a good request with something else in the middle."""
    body = json.dumps({"a": 1}).encode()
    head = "\r\n".join(f"{name}: {value}" for name, value in github_headers(body))
    good = f"POST /gh HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{head}\r\n\r\n".encode()
    limits = WebhookLimits(body_timeout_s=1)
    async with listening(storage, generic(), github(), limits=limits, headers_s=1) as world:

        async def sends(data: bytes) -> None:
            await world.sender.raw(data, eof=True)

        async with anyio.create_task_group() as group:
            for at in range(0, len(good), 7):
                for change in (b"\x00", b"\xff\r\n", b"\n\n", b": "):
                    group.start_soon(sends, good[:at] + change + good[at + 1 :] + body)
        assert (await world.sender.generic({})).status == 202
        assert all(
            trigger.name != "gh" or bytes(trigger.data) == b'{"a":1}'
            for trigger, _ in world.starter.started
        )


@pytest.mark.anyio
async def test_a_sender_that_leaves_is_forgotten(storage: Storage) -> None:
    async with listening(storage, generic(), limits=WebhookLimits(requests_total=2)) as world:
        head = b"POST /any HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        head += b"webhook-id: a\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,AA==\r\n"
        for _ in range(6):
            async with await anyio.connect_tcp("127.0.0.1", world.sender.port) as stream:
                await stream.send(head + b"Content-Length: 100\r\n\r\n{")

        async def is_free() -> bool:
            return (await world.sender.generic({})).status == 202

        await eventually(is_free)


def verifies(verifier: Verifier, headers: dict[str, str], body: bytes) -> bool:
    try:
        verifier.verify(headers, body, NOW)
    except WebhookError as error:
        return error.status not in (400, 401)
    return True


def lower(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in pairs}


@given(st.binary(), st.binary(), st.data())
def test_only_what_was_signed_is_accepted(body: bytes, other: bytes, data: st.DataObject) -> None:
    event = b'{"type":"event_callback","event_id":"E","more":"%s"}' % body.hex().encode()
    interaction = b'{"type":2,"id":"1","more":"%s"}' % body.hex().encode()
    for verifier, headers, sent in (
        (StandardVerifier([KEY], 300), lower(generic_headers(body, "id", NOW)), body),
        (GitHubVerifier([SECRET]), lower(github_headers(body)), body),
        (SlackVerifier([SLACK], 300), lower(Slack.headers(event, at=NOW)), event),
        (DiscordVerifier(DISCORD, 300), lower(Discord.headers(interaction, at=NOW)), interaction),
    ):
        assert verifies(verifier, headers, sent)
        assert verifies(verifier, headers, other) == (other == sent)
        covered = [
            name
            for name in headers
            if name not in ("content-type", "x-github-event", "x-github-delivery")
        ]
        name = data.draw(st.sampled_from(covered))
        value = data.draw(st.text(max_size=80))
        # Neither another signature nor another id or time is accepted.
        if verifies(verifier, headers | {name: value}, body):
            assert value in (headers[name], *headers[name].split(" "))


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "webhook-id",
                "webhook-timestamp",
                "webhook-signature",
                "x-hub-signature-256",
                "x-github-event",
                "x-slack-signature",
                "x-slack-request-timestamp",
                "x-signature-ed25519",
                "x-signature-timestamp",
            ]
        ),
        st.text(max_size=40)
        | st.sampled_from(["v1,", str(NOW), "0" * 128, f"v0={'0' * 64}"])
        | st.just("v1," + base64.b64encode(b"x" * 32).decode()),
    )
)
def test_made_up_headers_are_refused(headers: dict[str, str]) -> None:
    assert not verifies(StandardVerifier([KEY], 300), headers, b"{}")
    assert not verifies(GitHubVerifier([SECRET]), headers, b"{}")
    assert not verifies(SlackVerifier([SLACK], 300), headers, b"{}")
    assert not verifies(DiscordVerifier(DISCORD, 300), headers, b"{}")


@given(st.integers(-100_000, 100_000) | st.sampled_from([-301, -300, 300, 301]))
def test_the_window_is_kept(seconds: int) -> None:
    event, ping = b'{"type":"event_callback","event_id":"E"}', b'{"type":1,"id":"1"}'
    at = NOW + seconds
    for verifier, headers, body in (
        (StandardVerifier([KEY], 300), lower(generic_headers(b"{}", "id", at)), b"{}"),
        (SlackVerifier([SLACK], 300), lower(Slack.headers(event, at=at)), event),
        (DiscordVerifier(DISCORD, 300), lower(Discord.headers(ping, at=at)), ping),
    ):
        assert verifies(verifier, headers, body) == (abs(seconds) <= 300)


@given(st.binary(max_size=200))
def test_any_bytes_are_json_or_refused(body: bytes) -> None:
    for kind in ("application/json", "application/x-www-form-urlencoded"):
        with contextlib.suppress(WebhookError):
            read_json(kind, body, 8)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(JSON_VALUES, st.integers(1, 5))
def test_the_depth_is_bounded(value: Any, most: int) -> None:
    body = json.dumps(value).encode()
    if depth(value) <= most:
        assert read_json("application/json", body, most) == value
    else:
        with pytest.raises(WebhookError):
            read_json("application/json", body, most)


def test_deep_json_is_refused_quickly() -> None:
    for body in (b"[" * 500_000, b'{"a":' * 100_000, b"[" * 500_000 + b"]" * 500_000):
        with pytest.raises(WebhookError):
            read_json("application/json", body, 32)


@given(st.integers(1, 100), st.lists(st.floats(0, 120), max_size=60))
def test_a_rate_is_never_exceeded(per_minute: int, pauses: list[float]) -> None:
    rate, now, taken = Rate(per_minute), 0.0, list[float]()
    for pause in pauses:
        now += pause
        wait = rate.take(now)
        if not wait:
            taken.append(now)
        else:
            assert wait <= 60
        assert len([at for at in taken if at > now - 60]) <= 2 * per_minute
