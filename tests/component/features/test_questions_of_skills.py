"""Each built-in skill has a question for people."""

from typing import Any

import pytest

from component.config.skills import XmppSend
from component.features.builtins.email_send import email_send_skill
from component.features.builtins.github import github_skills
from component.features.builtins.http_webhook import http_webhook_skill
from component.features.builtins.settings import (
    EmailSend,
    GitHub,
    HttpWebhook,
    UrlFetch,
    WebSearch,
)
from component.features.builtins.url_fetch import url_fetch_skill
from component.features.builtins.web_search import web_search_skill
from component.features.builtins.xmpp_send import xmpp_send_skill
from component.features.files.skills import file_skills
from component.features.objects.skills import object_skills
from component.features.schedules.skills import schedule_skills
from component.features.watches.skills import watch_skills
from component.memory.skills import memory_skills
from component.skills import Skill
from component.skills.builtin import builtin_skills
from component.skills.question import names_in


def _never() -> Any:
    raise AssertionError("no skill is called")


SKILLS: tuple[Skill, ...] = (
    *builtin_skills(),
    *memory_skills(_never),
    *object_skills(_never),
    *schedule_skills(_never),
    *watch_skills(_never),
    *file_skills(_never, write=True),
    *github_skills(GitHub(token="secret", repositories=("a/b",))),  # type: ignore[arg-type]
    email_send_skill(EmailSend(host="mail.example.com", sender="a@example.com", recipients=("*",))),
    http_webhook_skill({"build": HttpWebhook(url="https://example.com/hook")}),  # type: ignore[arg-type]
    url_fetch_skill(UrlFetch(hosts=("*",))),
    web_search_skill(WebSearch(provider="searxng", base_url="https://search.example.com")),
    xmpp_send_skill(XmppSend(recipients=("*",)), _never),
)


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
def test_a_question_has_every_parameter_that_changes_something(skill: Skill) -> None:
    assert skill.question.startswith("May I ")
    assert skill.question.endswith("?")
    if not skill.annotations.read_only:
        assert set(names_in(skill.question)) == set(skill.input_schema.get("properties", {}))


def test_what_people_can_undo_says_how() -> None:
    assert {skill.name: skill.undo for skill in SKILLS if skill.undo} == {
        "schedule_add": "/schedule remove NAME",
        "watch_create": "/watch remove NAME",
    }
