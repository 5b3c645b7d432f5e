"""What `xmpp-agent doctor` says of webhooks."""

from pathlib import Path
from typing import Any

import pytest

from component.app.features import load_skills, make_settings
from component.config import Server, Settings
from component.config.policy import Agent, Policy, Rule
from component.features.webhooks.feature import check_webhooks

EXAMPLES = Path(__file__).parents[4] / "examples" / "skills"
HOOK: dict[str, Any] = {
    "name": "deployments",
    "kind": "github",
    "secret": "0123456789abcdef",
    "skill": "echo",
    "principal": "juliet@example.com",
}


def settings(hooks: list[dict[str, Any]], port: int | None, **more: Any) -> Settings:
    server = Server(component_domain="agent.example.com", component_secret="s" * 16)  # type: ignore[arg-type]
    given: Any = {"http": {"port": port}, "webhook": hooks}
    return make_settings(server=server, **(given | more))


def said(found: Settings) -> dict[str, tuple[str, str]]:
    return {
        check.name: (check.verdict, check.text)
        for check in check_webhooks(found, load_skills(found))
    }


def test_doctor_counts_the_webhooks() -> None:
    assert said(settings([HOOK], 8470))["webhooks"] == ("ok", "1 are declared")


@pytest.mark.parametrize(
    ("hook", "more", "word"),
    [
        (HOOK | {"skill": "unknown"}, {}, "no skill unknown"),
        (HOOK | {"principal": "eve@elsewhere.example"}, {}, "not admitted"),
        (HOOK, {"policy": Policy(rules=(Rule(skills=("echo",), allowed_jids=()),))}, "may not use"),
    ],
)
def test_doctor_reports_a_webhook_whose_skill_cannot_be_run(
    hook: dict[str, Any], more: dict[str, Any], word: str
) -> None:
    agent = Agent(allowed_domains=("example.com",))
    verdict, text = said(settings([hook], 8470, agent=agent, **more))["webhook deployments"]
    assert (verdict, word in text) == ("failed", True), text


def test_doctor_reports_a_reply_that_cannot_be_sent() -> None:
    hook = HOOK | {"reply": {"skill": "slack.reply"}}
    verdict, text = said(settings([hook], 8470))["webhook deployments"]
    assert (verdict, "replies are not sent: there is no skill slack.reply" in text) == (
        "failed",
        True,
    )


def test_skills_in_directories_are_known_before_they_are_approved() -> None:
    hook = HOOK | {"reply": {"skill": "slack.reply"}}
    assert list(said(settings([hook], 8470, skills={"directories": [EXAMPLES]}))) == ["webhooks"]
