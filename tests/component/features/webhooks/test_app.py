"""What is answered to a delivery, and what it starts, over a real socket."""

import json
import math
import time
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest

from component.features.webhooks.settings import WebhookLimits
from component.store import Storage, StorageError
from tests.component.features.webhooks.world import (
    KEY,
    WORK,
    generic,
    generic_headers,
    github,
    github_headers,
    listening,
    parsed,
)
from tests.waiting import eventually
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

PUSH = {"ref": "refs/heads/main", "repository": {"full_name": "o/r"}, "commits": [1, 2]}


@pytest.mark.ports
async def test_a_delivery_of_github_starts_work(storage: Storage) -> None:
    async with listening(storage, github()) as world:
        answer = await world.sender.github(PUSH, id_="guid-1")
        assert answer.status == 202
        assert answer.json == {"status": "accepted", "id": "guid-1", "task": "task-1"}
        ((trigger, work),) = world.starter.started
        assert (trigger.source, trigger.name, trigger.taint) == ("webhook", "gh", "web")
        assert json.loads(bytes(trigger.data)) == PUSH
        assert work == WORK


async def test_a_delivery_of_standard_webhooks_starts_work(storage: Storage) -> None:
    async with listening(storage, generic()) as world:
        answer = await world.sender.generic({"type": "paid"}, id_="msg_7")
        assert (answer.status, answer.json["id"]) == (202, "msg_7")
        ((trigger, _),) = world.starter.started
        assert trigger.key == "msg_7"


async def test_the_work_is_filled_from_the_delivery(storage: Storage) -> None:
    webhook = github(
        select="{repo: repository.full_name}",
        params={"repository": "repository.full_name", "kind": "'push'", "none": "missing"},
    )
    async with listening(storage, webhook) as world:
        await world.sender.github(PUSH)
        ((trigger, work),) = world.starter.started
        assert json.loads(bytes(trigger.data)) == {"repo": "o/r"}
        assert json.loads(bytes(work.params)) == {"repository": "o/r", "kind": "push"}


@pytest.mark.ports
async def test_a_repetition_starts_nothing_even_after_a_restart(storage: Storage) -> None:
    async with listening(storage, generic(), github()) as world:
        assert (await world.sender.generic({}, id_="a")).json["status"] == "accepted"
        again = await world.sender.generic({}, id_="a")
        assert (again.status, again.json["status"]) == (202, "duplicate")
        assert again.json["task"] == "task-1"
        await world.sender.github(PUSH, id_="one")
        # The id of GitHub is not signed: another one makes no new delivery.
        assert (await world.sender.github(PUSH, id_="two")).json["status"] == "duplicate"
    async with listening(storage, generic(), github()) as world:
        assert (await world.sender.generic({}, id_="a")).json["status"] == "duplicate"
        assert (await world.sender.github(PUSH, id_="3")).json["status"] == "duplicate"
        assert world.starter.called == 0


@pytest.mark.ports
async def test_a_kill_between_starting_and_remembering_starts_nothing_twice(
    storage: Storage,
) -> None:
    async with listening(storage, generic()) as world:
        await world.sender.generic({}, id_="a")

        def forget(database: Any) -> None:
            database.execute("DELETE FROM deliveries")

        await storage.write(forget)
        assert (await world.sender.generic({}, id_="a")).json == {"status": "duplicate", "id": "a"}
        assert len(world.starter.started) == 1


@pytest.mark.ports
async def test_many_copies_at_once_start_work_once(storage: Storage) -> None:
    async with listening(storage, generic()) as world:
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(world.sender.generic, {}, "same")
        assert len(world.starter.started) == 1


async def test_events_and_filters_decide(storage: Storage) -> None:
    webhook = github(events=["push"], filter="contains(ref, 'main')")
    async with listening(storage, webhook) as world:
        ignored = [
            await world.sender.github({"zen": "x"}, event="ping"),
            await world.sender.github(PUSH, event="release"),
            await world.sender.github({"ref": "refs/heads/other"}),
            await world.sender.github({"ref": 3}),  # the filter fails for it
        ]
        assert [each.status for each in ignored] == [200] * 4
        assert {each.json["status"] for each in ignored} == {"ignored"}
        # The event is not signed: what was ignored starts nothing under another name.
        assert (await world.sender.github(PUSH)).json["status"] == "duplicate"
        assert (await world.sender.github({**PUSH, "size": 2})).status == 202
        assert len(world.starter.started) == 1


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("POST", "/other", [("Content-Type", "application/json")], b"{}", 404),
        ("GET", "/gh", [], b"", 405),
        ("PUT", "/gh", [("Content-Type", "application/json")], b"{}", 405),
        ("POST", "/gh", [("Content-Type", "text/plain")], b"{}", 415),
        ("POST", "/gh", [], b"{}", 415),
        ("POST", "/any", [("Content-Type", "application/x-www-form-urlencoded")], b"{}", 415),
        (
            "POST",
            "/gh",
            [("Content-Type", "application/json"), ("Content-Encoding", "gzip")],
            b"{}",
            415,
        ),
        ("POST", "/gh", [("Content-Type", "application/json")], b"{}", 401),
        ("POST", "/any", [("Content-Type", "application/json")], b"{}", 400),
        ("POST", "/gh", github_headers(b"{}", secret=b"another secret"), b"{}", 401),
        ("POST", "/gh", github_headers(b"{"), b"{", 400),
        ("POST", "/gh", github_headers(b"\xff"), b"\xff", 400),
        ("POST", "/gh", github_headers(b"[" * 40 + b"]" * 40), b"[" * 40 + b"]" * 40, 400),
        ("POST", "/gh", github_headers(b"[" * 900), b"[" * 900, 400),
        ("POST", "/gh", github_headers(b"{}", event="!"), b"{}", 400),
        ("POST", "/gh", [*github_headers(b"{}"), ("X-GitHub-Event", "push")], b"{}", 400),
        ("POST", "/any", generic_headers(b"{}", at=time.time() - 4000), b"{}", 401),
        ("POST", "/any", generic_headers(b"{}", at=time.time() + 4000), b"{}", 401),
        ("POST", "/any", generic_headers(b"{}", key=KEY[1:]), b"{}", 401),
        ("POST", "/any", generic_headers(b"{}", id_="x" * 300), b"{}", 400),
        ("POST", "/gh", github_headers(b"1" * 2000), b"1" * 2000, 413),
        (
            "POST",
            "/gh",
            [("Content-Type", "application/json"), ("Content-Length", "9" * 19)],
            b"",
            413,
        ),
    ],
)
async def test_each_fault_has_its_status(
    storage: Storage,
    method: str,
    path: str,
    headers: list[tuple[str, str]],
    body: bytes,
    status: int,
) -> None:
    limits = WebhookLimits(max_body_bytes=1024)
    async with listening(storage, github(), generic(), limits=limits) as world:
        answer = await world.sender.request(method, path, headers, body)
        assert (answer.status, answer.json["status"]) == (status, "refused"), answer.body
        assert answer.json["reason"]
        if status == 405:
            assert answer.headers["allow"] == "POST"
        assert world.starter.called == 0


async def test_a_form_of_github_is_read(storage: Storage) -> None:
    async with listening(storage, github()) as world:
        body = urlencode({"payload": json.dumps(PUSH)}).encode()
        headers = [
            (name, "application/x-www-form-urlencoded" if name == "Content-Type" else value)
            for name, value in github_headers(body)
        ]
        assert (await world.sender.request("POST", "/gh", headers, body)).status == 202
        assert json.loads(bytes(world.starter.started[0][0].data)) == PUSH


@pytest.mark.ports
async def test_a_rate_is_kept_and_repetitions_do_not_count(storage: Storage) -> None:
    async with listening(storage, generic(per_minute=2)) as world:
        statuses = [
            (await world.sender.generic({}, id_=id_)).status for id_ in ("a", "b", "a", "b", "c")
        ]
        assert statuses == [202, 202, 202, 202, 429]
        refused = await world.sender.generic({}, id_="d")
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        # Strangers do not use up what the sender has.
        assert (await world.sender.github({})).status == 404


@pytest.mark.parametrize(
    "error",
    [StorageError("The disk is full."), StanzaError("resource-constraint", "The budget is spent.")],
)
@pytest.mark.ports
async def test_what_cannot_be_recorded_is_to_be_sent_again(
    storage: Storage, error: Exception
) -> None:
    async with listening(storage, generic(per_minute=1)) as world:
        world.starter.error = error
        refused = await world.sender.generic({}, id_="a")
        assert (refused.status, refused.headers["retry-after"]) == (503, "30")
        assert "disk" not in refused.body.decode()
        world.starter.error = None
        assert (await world.sender.generic({}, id_="a")).status == 202


@pytest.mark.ports
async def test_a_slow_body_is_given_up(storage: Storage) -> None:
    async with listening(storage, github(), limits=WebhookLimits(body_timeout_s=0.05)) as world:
        head = b"POST /gh HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        head += b"X-Hub-Signature-256: sha256=" + b"0" * 64 + b"\r\n"
        answer = parsed(await world.sender.raw(head + b"Content-Length: 9\r\n\r\n{", eof=False))
        assert answer.status == 408
        assert answer.headers["connection"] == "close"


@pytest.mark.ports
async def test_slow_headers_are_given_up_and_hold_up_nobody(storage: Storage) -> None:
    async with (
        listening(storage, generic(), headers_s=1) as world,
        anyio.create_task_group() as group,
    ):
        for _ in range(50):
            group.start_soon(world.sender.raw, b"POST /any HTTP/1.1\r\nHost: ")
        assert (await world.sender.generic({})).status == 202


async def test_more_requests_than_the_bound_are_refused(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.features.webhooks.app._HELD_S", math.inf)
    limits = WebhookLimits(requests_total=1)
    async with listening(storage, generic(), github(), limits=limits) as world:
        head = b"POST /gh HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        head += b"X-Hub-Signature-256: sha256=" + b"0" * 64 + b"\r\n"
        async with await anyio.connect_tcp("127.0.0.1", world.sender.port) as slow:
            await slow.send(head + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n{")
            await slow.receive()  # it is being received now
            refused = await world.sender.generic({})
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")

        async def is_free() -> bool:
            return (await world.sender.generic({})).status == 202

        await eventually(is_free)


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        (b"/gh", b"", b" 401 "),
        (b"/gh", b"X-Hub-Signature-256: sha256=0\r\n", b" 401 "),
        (b"/any", b"", b" 400 "),
        (b"/any", b"webhook-id: a\r\nwebhook-timestamp: 1\r\n", b" 401 "),
    ],
)
async def test_who_sends_no_signature_is_refused_before_its_body_and_takes_no_place(
    storage: Storage, path: bytes, header: bytes, status: bytes
) -> None:
    async with listening(
        storage, generic(), github(), limits=WebhookLimits(requests_total=1)
    ) as world:
        head = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        async with await anyio.connect_tcp("127.0.0.1", world.sender.port) as slow:
            await slow.send(head + header + b"Content-Length: 9\r\n\r\n{")
            assert (await world.sender.generic({})).status == 202
            assert status in await slow.receive()


async def test_slow_bodies_with_false_signatures_give_way_to_other_requests(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.features.webhooks.app._HELD_S", 0.0)
    async with listening(
        storage, generic(), github(), limits=WebhookLimits(requests_total=2)
    ) as world:
        head = b"POST /gh HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        head += b"X-Hub-Signature-256: sha256=" + b"0" * 64 + b"\r\n"
        head += b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n{"
        async with (
            await anyio.connect_tcp("127.0.0.1", world.sender.port) as slow,
            await anyio.connect_tcp("127.0.0.1", world.sender.port) as other,
        ):
            for each in (slow, other):
                await each.send(head)
                await each.receive()  # it is being received now
            assert (await world.sender.generic({})).status == 202
            assert b" 503 " in await slow.receive()
            assert (await world.sender.github(PUSH)).status == 202


async def test_a_delivery_that_was_ignored_starts_nothing_after_other_settings(
    storage: Storage,
) -> None:
    async with listening(storage, github(events=["push"])) as world:
        assert (await world.sender.github(PUSH, event="release")).json["status"] == "ignored"
        assert (await world.sender.github(PUSH, event="release")).json["status"] == "ignored"
    async with listening(storage, github()) as world:
        assert (await world.sender.github(PUSH, event="release")).json["status"] == "duplicate"
        assert world.starter.called == 0


@pytest.mark.ports
async def test_a_refusal_reaches_a_sender_that_sends_on(storage: Storage) -> None:
    async with listening(storage, github(), limits=WebhookLimits(max_body_bytes=100_000)) as world:
        body = b"1" * 350_000
        answer = await world.sender.request("POST", "/gh", github_headers(body), body)
        assert answer.status == 413


async def test_previous_secrets_are_accepted(storage: Storage) -> None:
    webhook = github(secret="new" * 8, previous_secret="old" * 8)
    async with listening(storage, webhook) as world:
        assert (await world.sender.github({"n": 1}, secret=b"new" * 8)).status == 202
        assert (await world.sender.github({"n": 2}, secret=b"old" * 8)).status == 202


@pytest.mark.ports
async def test_old_deliveries_are_forgotten(storage: Storage) -> None:
    async with listening(storage, generic(), remember_s=-1) as world:
        await world.sender.generic({}, id_="a")
        await world.sender.generic({}, id_="b")

        def count(database: Any) -> int:
            return int(database.execute("SELECT count(*) FROM deliveries").fetchone()[0])

        assert await storage.read(count) <= 1
