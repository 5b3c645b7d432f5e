"""What people ask of an inbox agent, as plans: news, a mail, an analysis. The examples with events
of Discord, Slack and GitHub are in tests/docs/test_guide_integrations.py.
"""

from pathlib import Path

import pytest

from component.skills.declare import skill
from tests.component.features.plans.planning import JULIET, answer, plan
from tests.kit import Script, anyio_backend, call, service

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

SENT: list[tuple[str, str]] = []


@skill(name="web_search", read_only=True)
def web_search(query: str) -> str:
    """Search the web."""
    return f"1. The tide is high ({query})."


@skill(name="email_send", destructive=True)
def email_send(to: str, body: str) -> str:
    """Send a mail."""
    SENT.append((to, body))
    return "Sent."


async def test_the_news_are_summarised_without_a_question(tmp_path: Path) -> None:
    document = plan(
        {"id": "search", "skill": "web_search", "params": {"query": "news today"}},
        {
            "id": "sum",
            "kind": "agent",
            "role": "editor",
            "after": ["search"],
            "instructions": "Sum this up: {search.text}",
        },
    )
    model = Script(
        call("plan_start", plan=document), "I have begun.", "The tide is high.", otherwise="Yes."
    )
    async with service(tmp_path, model=model, skills=[web_search]) as kit:
        juliet = kit.peer(JULIET)
        await juliet.ask("Summarize today's news", "I have begun this plan")
        assert await juliet.hear("The tide") == "The tide is high."
        await juliet.ask("What did you just tell me?", "Yes.")
        assert "The tide is high." in model.asked


async def test_a_mail_with_a_result_is_sent_when_the_person_has_read_it(tmp_path: Path) -> None:
    SENT.clear()
    document = plan(
        {"id": "search", "skill": "web_search", "params": {"query": "tides"}},
        {
            "id": "mail",
            "skill": "email_send",
            "after": ["search"],
            "params": {"to": "john@example.com", "body": "{search.text}"},
        },
    )
    model = Script(call("plan_start", plan=document), "I have begun.")
    async with service(tmp_path, model=model, skills=[web_search, email_send]) as kit:
        juliet = kit.peer(JULIET)
        await juliet.ask("Send an email to John about the tides", "I have begun this plan")
        assert "The tide is high (tides)." in await juliet.hear("May I run")
        await answer(kit, juliet, "yes")
        await juliet.hear("Sent.")
    assert SENT == [("john@example.com", "1. The tide is high (tides).")]


async def test_data_are_analysed_by_two_agents_and_kept_as_an_object(tmp_path: Path) -> None:
    work = {"kind": "agent", "role": "analyst"}
    document = plan(
        {"id": "low", "instructions": "Find the lowest of 3, 1, 2.", **work},
        {"id": "high", "instructions": "Find the highest of 3, 1, 2.", **work},
        {
            "id": "keep",
            "skill": "object_put",
            "after": ["low", "high"],
            "params": {
                "type": "analysis",
                "id": "tides",
                "data": {"low": "{low.text}", "high": "{high.text}"},
            },
        },
    )
    model = Script(call("plan_start", plan=document), "I have begun.")
    model.otherwise = lambda request: "1" if "lowest" in str(request.messages) else "3"
    async with service(tmp_path, model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.ask("Analyze this data: 3, 1, 2", "I have begun this plan")
        await juliet.hear("tides")
        shown = await juliet.ask("/objects show analysis tides", "low")
    assert "- high: 3\n- low: 1" in shown
