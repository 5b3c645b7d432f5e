"""Mistakes in the policy that are valid settings: what is said about each."""

from pathlib import Path
from typing import Any

import pytest
import structlog

from component.app.features import make_settings
from component.kernel.options import make_policy
from component.kernel.policy_advice import policy_advice, unknown_skills
from tests.kit import anyio_backend, service

__all__ = ["anyio_backend"]

SERVER = {"component_domain": "agent.example.com", "component_secret": "secret"}


def advice(rules: Any = (), **agent: Any) -> list[str]:
    made = make_settings(server=SERVER, agent=agent, policy={"rules": rules})
    return list(policy_advice(made, make_policy(made).admits))


def rule(*skills: str, **more: Any) -> dict[str, Any]:
    return {"skills": skills, **more}


def test_a_policy_without_mistakes_gets_no_advice() -> None:
    assert advice() == []
    assert (
        advice(
            [
                rule("report", confirm="always"),
                rule("*", confirm="never", allowed_jids=["juliet@example.com"]),
                rule("secret", allowed_domains=["example.com"], approvers=["juliet@example.com"]),
            ],
            admins=["juliet@example.com"],
            allowed_jids=["juliet@example.com", "peer.example.net"],
            allowed_domains=["example.com", "peer.example.net"],
        )
        == []
    )
    assert advice(allowed_jids=["*"], allowed_domains=["*"], admins=["a@b.example"]) == []


def test_an_account_without_a_domain() -> None:
    sentence = "'romeo' has no domain: write the account in full, romeo@example.com"
    assert advice(admins=["romeo"]) == [f"agent.admins: {sentence}"]
    assert advice(allowed_jids=["romeo"]) == [f"agent.allowed_jids: {sentence}"]
    assert advice([rule("echo", allowed_jids=["romeo"])]) == [
        f"policy.rules[0].allowed_jids: {sentence}"
    ]


def test_the_domain_of_the_users_among_accounts() -> None:
    (found,) = advice(allowed_jids=["example.com"])
    assert found.startswith("agent.allowed_jids: 'example.com' means the server itself, not its")


@pytest.mark.parametrize(
    ("agent", "remedy"),
    [
        ({}, "add elsewhere.example to agent.allowed_domains"),
        (
            {"allowed_domains": ["*"], "allowed_jids": ["juliet@example.com"]},
            "add romeo@elsewhere.example to agent.allowed_jids",
        ),
    ],
)
def test_an_admin_or_an_account_of_a_rule_who_is_not_admitted(
    agent: dict[str, Any], remedy: str
) -> None:
    romeo = ["romeo@elsewhere.example"]
    (admin,) = advice(admins=romeo, **agent)
    assert admin.startswith("agent.admins: 'romeo@elsewhere.example' cannot use the agent: ")
    assert admin.endswith(remedy)
    (other,) = advice([rule("echo", allowed_jids=romeo)], **agent)
    assert other.startswith("policy.rules[0].allowed_jids: ")
    assert other.endswith(remedy)


def test_a_rule_that_nobody_passes() -> None:
    (found,) = advice([rule("echo", allowed_domains=["elsewhere.example"])])
    assert found.startswith("policy.rules[0].allowed_domains: nobody passes this rule")


def test_a_rule_that_an_earlier_one_covers() -> None:
    (found,) = advice([rule("report.*", confirm="always"), rule("report.new", confirm="never")])
    assert found.startswith("policy.rules[1].confirm never applies: policy.rules[0] is about the")
    assert advice([rule("report.new", confirm="always"), rule("report.*", confirm="never")]) == []
    allowed = ["juliet@example.com"]
    assert advice([rule("*", confirm="always"), rule("echo", allowed_jids=allowed)]) == []


def test_skills_that_nobody_offers() -> None:
    made = make_settings(
        server=SERVER,
        agents=[{"name": "clerk", "skills": ["time", "tiem", "*"]}],
        policy={"rules": [rule("ehco", "e*", confirm="always")]},
    )
    assert [each.partition(":")[0] for each in unknown_skills(made, ("echo", "time"))] == [
        "'ehco' in policy.rules[0].skills matches no skill",
        "'tiem' in the skills of clerk matches no skill",
    ]


@pytest.mark.anyio
async def test_the_service_says_it_at_the_start(tmp_path: Path) -> None:
    settings = """
[agent]
admins = ["romeo"]
[[policy.rules]]
skills = ["ehco", "time"]
confirm = "always"
"""
    with structlog.testing.capture_logs() as logs:
        async with service(tmp_path, settings) as kit:
            await kit.settled()
    said = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert [each.partition(":")[0] for each in said] == [
        "agent.admins",
        "'ehco' in policy.rules[0].skills matches no skill",
    ]


def test_a_room_in_which_everybody_can_approve() -> None:
    room = ["room:ops@rooms.example.com"]
    (found,) = advice([rule("pay", approvers=room, affiliation="none")])
    assert found.startswith("policy.rules[0].affiliation: everybody who enters ops@rooms.example")
    assert advice([rule("pay", approvers=room)]) == []
    assert advice([rule("pay", approvers=room, hat="urn:x:oncall")]) == []
