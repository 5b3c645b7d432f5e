"""What `xmpp-agent doctor` says of webhooks."""

import socket
from typing import Any

import pytest

from component.app.features import load_skills, make_settings
from component.config import Server, Settings
from component.config.policy import Agent, Policy, Rule
from component.features.webhooks.feature import check_webhooks

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
    return make_settings(server=server, **(given | more))


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def said(found: Settings) -> dict[str, tuple[str, str]]:
    return {
        check.name: (check.verdict, check.text)
        for check in check_webhooks(found, load_skills(found))
    }


def test_doctor_does_not_check_webhooks_that_are_off() -> None:
    assert said(settings([], None)) == {}


def test_doctor_reports_usable_webhooks_as_ok(free_port: int) -> None:
    assert said(settings([HOOK], free_port))["webhooks"][0] == "ok"


def test_doctor_reports_a_webhook_port_that_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        verdict, text = said(settings([HOOK], taken.getsockname()[1]))["webhooks"]
    assert verdict == "failed"
    assert "Set host and port" in text


def test_doctor_warns_of_a_public_webhook_address_without_tls(free_port: int) -> None:
    verdict, text = said(settings([HOOK], free_port, host="0.0.0.0"))["webhooks"]
    assert (verdict, "no TLS" in text) == ("warning", True)


def test_doctor_warns_of_a_webhook_port_without_webhooks(free_port: int) -> None:
    assert said(settings([], free_port))["webhooks"][0] == "warning"


def test_doctor_reports_webhooks_without_the_extra(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_doctor_reports_a_webhook_whose_skill_cannot_be_run(
    free_port: int, hook: dict[str, Any], more: dict[str, Any], word: str
) -> None:
    agent = Agent(allowed_domains=("example.com",))
    verdict, text = said(settings([hook], free_port, agent=agent, **more))["webhook deployments"]
    assert (verdict, word in text) == ("failed", True), text
