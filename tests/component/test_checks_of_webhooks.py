"""What `xmpp-agent doctor` says of webhooks."""

import socket
from typing import Any

import pytest

from component.checks_of_webhooks import check_webhooks
from component.settings import Server, Settings
from component.settings.policy import Agent, Policy, Rule

HOOK: dict[str, Any] = {
    "name": "deployments",
    "kind": "github",
    "secret": "0123456789abcdef",
    "skill": "echo",
    "principal": "juliet@example.com",
}


def settings(hooks: list[dict[str, Any]], port: int | None, **more: Any) -> Settings:
    host = more.pop("host", "127.0.0.1")
    server = Server(component_domain="agent.example.com", component_secret="s" * 16)  # type: ignore[arg-type]
    webhooks: Any = {"port": port, "host": host}
    given: Any = {"webhooks": webhooks, "webhook": hooks}
    return Settings(server=server, **(given | more))


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def said(found: Settings) -> dict[str, tuple[str, str]]:
    return {check.name: (check.verdict, check.text) for check in check_webhooks(found)}


def test_nothing_is_said_unless_they_are_on() -> None:
    assert said(settings([], None)) == {}


def test_all_is_well(free_port: int) -> None:
    assert said(settings([HOOK], free_port))["webhooks"][0] == "ok"


def test_the_address_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        verdict, text = said(settings([HOOK], taken.getsockname()[1]))["webhooks"]
    assert verdict == "failed"
    assert "Set host and port" in text


def test_strangers_reach_it(free_port: int) -> None:
    verdict, text = said(settings([HOOK], free_port, host="0.0.0.0"))["webhooks"]
    assert (verdict, "no TLS" in text) == ("warning", True)


def test_nothing_is_declared(free_port: int) -> None:
    assert said(settings([], free_port))["webhooks"][0] == "warning"


def test_the_extra_is_missing(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hypercorn", None)
    verdict, text = said(settings([HOOK], free_port))["webhooks"]
    assert (verdict, "pip install" in text) == ("failed", True)


@pytest.mark.parametrize(
    ("hook", "more", "word"),
    [
        (HOOK | {"skill": "unknown"}, {}, "no skill unknown"),
        (HOOK | {"principal": "eve@elsewhere.example"}, {}, "not admitted"),
        (HOOK, {"policy": Policy(rules=(Rule(skills=("echo",), allowed_jids=()),))}, "may not use"),
    ],
)
def test_work_that_cannot_start(
    free_port: int, hook: dict[str, Any], more: dict[str, Any], word: str
) -> None:
    agent = Agent(allowed_domains=("example.com",))
    verdict, text = said(settings([hook], free_port, agent=agent, **more))["webhook deployments"]
    assert (verdict, word in text) == ("failed", True), text
