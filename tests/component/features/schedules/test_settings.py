"""The sections about schedules."""

from typing import Any

import pytest

from component.budget.protocol import Payer
from component.features.schedules.schedules import ScheduleError, of_settings, of_skills
from component.features.schedules.settings import LIMITS
from component.skills import Registry, SkillSchedule, skill
from tests.component.smallest_settings import SMALLEST

ENTRY = '[[schedule]]\nname = "a"\nwhen = "{when}"\nprincipal = "juliet@example.com"\n{more}\n'


def entry(when: str = "every monday at 9", more: str = 'goal = "Look."') -> str:
    return ENTRY.format(when=when, more=more)


def test_an_entry_becomes_a_schedule(read: Any) -> None:
    more = 'skill = "report"\nparams = { topic = "rivers", depth = 2 }'
    settings = read(
        f'{SMALLEST}[agent]\nzone = "Europe/Paris"\n[schedules]\nper_person = 5\n{entry(more=more)}'
    )
    (wish,) = of_settings(settings)
    work = wish.work
    assert (wish.name, wish.when, str(work.principal)) == (
        "a",
        "every monday at 9",
        "juliet@example.com",
    )
    assert bytes(work.params) == b'{"topic":"rivers","depth":2}'
    limits = settings[LIMITS]
    assert (limits.per_person, limits.shortest_s) == (5, 60)


@pytest.mark.parametrize(
    ("payer", "budget"),
    [
        ("total", Payer("day")),
        ("agent:assistant", Payer("agent", "assistant")),
        ("principal:Romeo@example.com", Payer("principal", "romeo@example.com")),
    ],
)
def test_a_goal_names_who_pays_and_what_it_may_cost(read: Any, payer: str, budget: Payer) -> None:
    more = f'goal = "Look."\npayer = "{payer}"\nbudget_usd = 0.1'
    (wish,) = of_settings(read(SMALLEST + entry(more=more)))
    assert wish.work.payer == budget
    assert str(wish.work.budget_usd) == "0.1"


@pytest.mark.parametrize("when", ["every blue moon", "in 5 minutes", "0 0 31 2 *"])
def test_a_time_that_is_none_stops_the_start(read: Any, when: str) -> None:
    with pytest.raises(ScheduleError, match=r"\[\[schedule\]\] a: "):
        of_settings(read(SMALLEST + entry(when)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (entry(more=""), "needs either goal or skill"),
        (entry(more='goal = "x"\nskill = "y"'), "needs either goal or skill"),
        (entry(more='goal = "x"\nparams = { a = 1 }'), "is for a skill"),
        (entry(more='goal = "x"\nzone = "Mars"'), "IANA time zone"),
        (entry(more='goal = "x"\nagent = "nobody"'), "no agent is called that"),
        (entry(more='goal = "x"\npayer = "nobody"'), "must be agent:NAME"),
        (entry(more='goal = "x"\npayer = "agent:nobody"'), "no agent is called that"),
        (entry(more='goal = "x"\npayer = "principal:a b@c"'), "not an address"),
        (entry(more='skill = "x"\npayer = "total"'), "needs a goal"),
        (entry(more='skill = "x"\nbudget_usd = 0.1'), "needs a goal"),
        (entry() + entry(), "two schedules called 'a'"),
        ('[agent]\nzone = "Europe"', "IANA time zone"),
    ],
)
def test_mistakes_are_told(problems: Any, text: str, told: str) -> None:
    assert told in str(problems(SMALLEST + text))


@skill(
    schedule=SkillSchedule(
        when="0 7 * * *", zone="Europe/Paris", params={"topic": "rivers"}, missed="skip"
    )
)
def report(topic: str, depth: int = 1) -> str:
    """Report."""
    return topic * depth


@skill
def idle() -> str:
    """Do nothing."""
    return ""


REGISTRY = Registry((report, idle))
ENABLED = '[[skills.schedule]]\nskill = "{skill}"\n{more}\n'
FOR = 'principal = "juliet@example.com"'


def enabled(read: Any, skill: str = "report", more: str = FOR) -> Any:
    return of_skills(read(SMALLEST + ENABLED.format(skill=skill, more=more)), REGISTRY)


def test_the_schedule_of_a_skill_is_off_until_the_settings_enable_it(read: Any) -> None:
    assert not of_skills(read(SMALLEST), REGISTRY)
    (wish,) = enabled(read)
    assert (wish.name, wish.when, wish.zone, wish.missed) == (
        "report",
        "0 7 * * *",
        "Europe/Paris",
        "skip",
    )
    assert (wish.work.skill, str(wish.work.principal)) == ("report", "juliet@example.com")
    assert bytes(wish.work.params) == b'{"topic":"rivers"}'


def test_the_settings_say_otherwise_for_each_member(read: Any) -> None:
    (wish,) = enabled(
        read, more=f'{FOR}\nwhen = "every monday at 9"\nzone = "UTC"\nparams = {{ depth = 2 }}'
    )
    assert (wish.when, wish.zone) == ("every monday at 9", "UTC")
    assert bytes(wish.work.params) == b'{"topic":"rivers","depth":2}'


@pytest.mark.parametrize(
    ("name", "more", "told"),
    [
        ("nothing", FOR, "no such skill"),
        ("idle", FOR, "brings no schedule"),
        ("report", "", "Say for whom"),
        ("report", f'{FOR}\nwhen = "every blue moon"', "blue moon"),
        ("report", f"{FOR}\nparams = {{ depth = 'deep' }}", "do not fit"),
    ],
)
def test_a_schedule_of_a_skill_that_cannot_be_stops_the_start(
    read: Any, name: str, more: str, told: str
) -> None:
    with pytest.raises(ScheduleError, match=told):
        enabled(read, name, more)


def test_a_schedule_of_a_skill_is_enabled_once_for_each_person(problems: Any) -> None:
    once = ENABLED.format(skill="report", more=FOR)
    assert "twice for the same person" in str(problems(SMALLEST + once + once))


def test_a_skill_of_a_directory_is_offered_later(read: Any) -> None:
    text = SMALLEST + ENABLED.format(skill="of-a-directory", more=FOR)
    with pytest.raises(ScheduleError, match="no such skill"):
        of_skills(read(text), REGISTRY)
    installed = text.replace("[[skills.", '[skills]\ndirectories = ["skills"]\n[[skills.', 1)
    assert of_skills(read(installed), REGISTRY) == []
