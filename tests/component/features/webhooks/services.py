"""Slack, Discord and GitHub on this machine: each signs what it sends as the real one does, and has
the parts of its API that the examples of skills use.
"""

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, ClassVar

import anyio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from component import system
from tests.component.features.webhooks.world import Response, Sender, github_headers
from tests.component.web_server import Request, Server, as_json
from tests.component.web_server import Response as Answer

JSON = ("Content-Type", "application/json")


class Service:
    """A service.

    Attributes:
        host: the host of its real API.
        secrets: what an admin of it puts into `agent.env`, by the names in the guide.
        server: the server of its API, which the test runs.
        said: the texts that were sent to it, with where they were sent.
        refuses: what its API answers in place of success.
    """

    host = ""
    secrets: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        self.server = Server()
        self.said: list[tuple[str, str]] = []
        self.refuses: Answer | None = None
        self._heard = anyio.Event()

    def answer(self, request: Request) -> Answer:
        """Answer a request to the API."""
        assert request.method == "POST"
        if self.refuses is not None:
            self._heard.set()
            return self.refuses
        where, text, answer = self._post(request)
        self.said.append((where, text))
        self._heard.set()
        return answer

    async def hears(self) -> tuple[str, str]:
        """Wait until something is sent to it, and return the last."""
        with anyio.fail_after(60):
            await self._heard.wait()
        self._heard = anyio.Event()
        return self.said[-1] if self.said else ("", "")

    def _post(self, request: Request) -> tuple[str, str, Answer]:
        raise NotImplementedError


class Discord(Service):
    """Discord, with one application."""

    host = "discord.com"
    APPLICATION = "1200"
    TOKEN = "aW50ZXJhY3Rpb246MTMwMDpSZXBseQ=="
    _KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    secrets: ClassVar[Mapping[str, str]] = {
        "DISCORD_PUBLIC_KEY": _KEY.public_key().public_bytes_raw().hex()
    }

    def _post(self, request: Request) -> tuple[str, str, Answer]:
        _, api, version, kind, application, token = request.path.split("/")
        assert (api, version, kind, application) == ("api", "v10", "webhooks", self.APPLICATION)
        assert "DiscordBot" in request.headers["user-agent"]
        assert "authorization" not in request.headers
        assert token.replace("%3D", "=") == self.TOKEN
        assert request.json["allowed_mentions"] == {"parse": []}
        return token, request.json["content"], as_json({"id": "1400"})

    @classmethod
    def headers(
        cls, body: bytes, *, at: float | None = None, wrong: bool = False
    ) -> list[tuple[str, str]]:
        """Return the headers of a request that is signed at a time."""
        stamp = str(int(system.time() if at is None else at))
        signature = cls._KEY.sign(stamp.encode() + body + (b"?" if wrong else b""))
        return [
            JSON,
            ("X-Signature-Ed25519", signature.hex()),
            ("X-Signature-Timestamp", stamp),
        ]

    async def send(
        self, to: Sender, value: Any, path: str = "/hooks/discord", **signed: Any
    ) -> Response:
        """Send an interaction."""
        body = json.dumps(value).encode()
        return await to.request("POST", path, self.headers(body, **signed), body)

    async def accepts(self, to: Sender) -> bool:
        """Check an endpoint, as when an admin enters its URL."""
        ping = {"id": "1", "application_id": self.APPLICATION, "type": 1, "version": 1}
        right, wrong = await self.send(to, ping), await self.send(to, ping, wrong=True)
        return (right.status, right.json, wrong.status) == (200, {"type": 1}, 401)

    async def use(self, to: Sender, command: str, id_: str = "1300", **signed: Any) -> Response:
        """Let somebody use a command."""
        data = {"id": "1250", "name": command, "type": 1}
        member = {"user": {"id": "1500", "username": "mercutio"}}
        value = {"id": id_, "application_id": self.APPLICATION, "type": 2, "version": 1}
        value |= {"data": data, "channel_id": "1100", "member": member, "token": self.TOKEN}
        return await self.send(to, value, **signed)


class Slack(Service):
    """Slack, with one app."""

    host = "slack.com"
    secrets: ClassVar[Mapping[str, str]] = {
        "SLACK_SIGNING_SECRET": "8f742231b10e8888abcd99",
        "SLACK_TOKEN": "xoxb-1-secret",
    }

    def _post(self, request: Request) -> tuple[str, str, Answer]:
        assert request.path == "/api/chat.postMessage"
        assert request.headers["authorization"] == f"Bearer {self.secrets['SLACK_TOKEN']}"
        message = request.json
        (section,) = message["blocks"]
        assert section["text"]["type"] == "plain_text"
        where = f"{message['channel']} {message.get('thread_ts', '')}"
        return where, section["text"]["text"], as_json({"ok": True, "ts": "1700000002.000300"})

    @classmethod
    def headers(
        cls, body: bytes, *, at: float | None = None, wrong: bool = False
    ) -> list[tuple[str, str]]:
        """Return the headers of a request that is signed at a time."""
        stamp = str(int(system.time() if at is None else at))
        key = b"another secret" if wrong else cls.secrets["SLACK_SIGNING_SECRET"].encode()
        digest = hmac.new(key, f"v0:{stamp}:".encode() + body, sha256).hexdigest()
        return [
            JSON,
            ("X-Slack-Request-Timestamp", stamp),
            ("X-Slack-Signature", f"v0={digest}"),
        ]

    async def send(self, to: Sender, value: Any, *, retry: int = 0, **signed: Any) -> Response:
        """Send a request to the URL of an app."""
        body = json.dumps(value).encode()
        headers = self.headers(body, **signed)
        if retry:
            headers += [("X-Slack-Retry-Num", str(retry)), ("X-Slack-Retry-Reason", "http_timeout")]
        return await to.request("POST", "/hooks/slack", headers, body)

    async def accepts(self, to: Sender) -> bool:
        """Check a URL, as when an admin enters it."""
        value = {"token": "old", "challenge": "3eZbrw1aBm2rZgRNF", "type": "url_verification"}
        right, wrong = await self.send(to, value), await self.send(to, value, wrong=True)
        return (right.status, right.json, wrong.status) == (
            200,
            {"challenge": "3eZbrw1aBm2rZgRNF"},
            401,
        )

    async def mention(self, to: Sender, text: str, id_: str = "Ev1", **how: Any) -> Response:
        """Let somebody mention the app in a channel."""
        event = {"type": "app_mention", "user": "U061F7AUR", "text": text}
        event |= {"ts": "1700000000.000100", "channel": "C0123456789"}
        value = {"token": "old", "team_id": "T1", "type": "event_callback", "event_id": id_}
        return await self.send(to, value | {"event": event}, **how)


class GitHub(Service):
    """GitHub, with one repository."""

    host = "api.github.com"
    secrets: ClassVar[Mapping[str, str]] = {
        "GITHUB_HOOK_SECRET": "0123456789abcdef" * 2,
        "GITHUB_TOKEN": "github_pat_1",
    }

    def _post(self, request: Request) -> tuple[str, str, Answer]:
        assert request.headers["authorization"] == f"Bearer {self.secrets['GITHUB_TOKEN']}"
        made = {"html_url": "https://github.com/capulet/garden/issues/7#issuecomment-1"}
        return request.path, request.json["body"], as_json(made, 201)

    async def open_issue(self, to: Sender, title: str, id_: str = "guid-1") -> Response:
        """Let somebody open an issue."""
        value = {
            "action": "opened",
            "issue": {"number": 7, "title": title, "body": "It drips."},
            "repository": {"name": "garden", "owner": {"login": "capulet"}},
            "sender": {"login": "mercutio", "type": "User"},
        }
        body = json.dumps(value).encode()
        secret = self.secrets["GITHUB_HOOK_SECRET"].encode()
        headers = github_headers(body, "issues", id_, secret)
        return await to.request("POST", "/hooks/github", headers, body)
