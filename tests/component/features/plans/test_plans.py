"""Plans from the first message to the report, in a whole service."""

import json
from pathlib import Path

import pytest

from component.skills.outputs import File, Link
from component.tasks.request import Request
from tests.component.features.plans.planning import (
    Deeds,
    answer,
    asked,
    plan,
    planning,
    says,
    started,
)
from tests.kit import anyio_backend, call
from tests.kit.xmpp import Peer, body

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


async def report(person: Peer) -> str:
    """Return the report of a plan."""
    return body(
        await person.receive(lambda one: "REPORT" in body(one) and "Report:" not in body(one))
    )


async def test_a_model_starts_a_plan_which_is_shown_and_reports(tmp_path: Path) -> None:
    document = plan({"id": "a"}, {"id": "b", "after": ["a"]}, result="REPORT {a.text}, {b.text}")
    model = (call("plan_start", plan=document), "I have begun.")
    async with planning(tmp_path, *model) as (_, juliet, deeds):
        shown = await juliet.ask("Please do it", "I have begun this plan")
        assert "1. a: run do\n   text: a\n2. b: run do (after a)" in shown
        assert await report(juliet) == "REPORT did a, did b"
    assert deeds.done == ["a", "b"]


async def test_steps_run_side_by_side(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.held = {"a", "b", "c"}
    document = plan({"id": "a"}, {"id": "b"}, {"id": "c"}, result="REPORT")
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        await started(juliet, document)
        await kit.settled()
        assert deeds.most == 3
        deeds.release()
        await report(juliet)


async def test_a_plan_that_destroys_is_approved_once_for_all_that_it_shows(tmp_path: Path) -> None:
    document = plan(
        {"id": "a", "skill": "send", "params": {"to": "romeo", "text": "x"}},
        {"id": "b", "skill": "send", "params": {"to": "paris", "text": "y"}, "after": ["a"]},
        result="REPORT",
    )
    async with planning(tmp_path) as (kit, juliet, deeds):
        await started(juliet, document)
        question = await juliet.hear("May I carry out this plan")
        assert "to: romeo" in question
        assert "to: paris" in question
        assert deeds.done == []
        await answer(kit, juliet, "yes")
        await report(juliet)
    assert deeds.done == ["to romeo: x", "to paris: y"]


async def test_what_is_filled_from_outputs_asks_when_it_comes(tmp_path: Path) -> None:
    document = plan(
        {"id": "a"},
        {
            "id": "b",
            "skill": "send",
            "params": {"to": "romeo", "text": "{a.text}"},
            "after": ["a"],
        },
        result="REPORT",
    )
    async with planning(tmp_path) as (kit, juliet, deeds):
        await started(juliet, document)
        await juliet.hear("I have begun this plan")
        question = await juliet.hear("May I run")
        assert "did a" in question
        await answer(kit, juliet, "yes")
        await report(juliet)
    assert deeds.done == ["a", "to romeo: did a"]


async def test_a_plan_that_is_declined_does_nothing(tmp_path: Path) -> None:
    document = plan({"id": "a", "skill": "send", "params": {"to": "romeo", "text": "x"}})
    async with planning(tmp_path) as (kit, juliet, deeds):
        await started(juliet, document)
        await juliet.hear("May I carry out this plan")
        await answer(kit, juliet, "no")
        assert "declined" in await juliet.hear("The plan The plan failed")
    assert deeds.done == []


async def test_a_denial_with_a_reason_leads_to_a_plan_without_that(tmp_path: Path) -> None:
    document = plan(
        {"id": "a", "skill": "send", "params": {"to": "romeo", "text": "x"}}, result="REPORT"
    )
    other = plan(
        {"id": "a", "skill": "send", "params": {"to": "nurse", "text": "x"}}, result="REPORT"
    )
    async with planning(tmp_path) as (kit, juliet, deeds):
        says(kit, other)
        await started(juliet, document)
        await juliet.hear("May I carry out this plan")
        await answer(kit, juliet, "no, because Romeo is away. Send it to the nurse")
        assert "to: nurse" in await juliet.hear("May I carry out this plan")
        assert "Romeo is away" in asked(kit)
        await answer(kit, juliet, "yes")
        await report(juliet)
    assert deeds.done == ["to nurse: x"]


async def test_what_may_be_repeated_is_tried_again_and_then_replaced(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.failing = {"a"}
    step = {"id": "a", "skill": "look", "params": {"text": "a"}, "retries": 2, "otherwise": "b"}
    document = plan(step, {"id": "b"}, result="REPORT {a.text}")
    async with planning(tmp_path, deeds=deeds) as (_, juliet, _):
        await started(juliet, document)
        assert await report(juliet) == "REPORT did b"
    assert deeds.done == ["look a"] * 3 + ["b"]


async def test_a_plan_that_cannot_go_on_is_revised_and_the_person_sees_the_difference(
    tmp_path: Path,
) -> None:
    deeds = Deeds()
    deeds.failing = {"b"}
    document = plan({"id": "a"}, {"id": "b", "after": ["a"]}, result="REPORT")
    other = plan({"id": "a"}, {"id": "c", "after": ["a"]}, result="REPORT {c.text}")
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        says(kit, other)
        await started(juliet, document)
        question = await juliet.hear("May I change the plan")
        assert "Removed: b (run do)" in question
        assert "New: 2. c: run do (after a)" in question
        assert "b cannot be done." in asked(kit)
        await answer(kit, juliet, "yes")
        assert await report(juliet) == "REPORT did c"
    assert deeds.done == ["a", "b", "c"]


async def test_a_plan_that_nothing_helps_says_what_was_done(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.failing = {"b"}
    document = plan({"id": "a"}, {"id": "b", "after": ["a"]}, {"id": "c", "after": ["b"]})
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        says(kit, document)
        says(kit, document)
        await started(juliet, document)
        said = await juliet.hear("could not finish")
    assert "run do: b cannot be done." in said
    assert "1. run do: is done\n2. run do: failed (b cannot be done.)\n3. run do: waits" in said


async def test_a_step_is_a_question(tmp_path: Path) -> None:
    ask = {"kind": "ask", "question": "Which one?", "choices": ["red", "blue"]}
    document = plan(
        {"id": "a", **ask},
        {"id": "b", "after": ["a"], "params": {"text": "{a.text}"}, "skill": "do", "kind": "call"},
        result="REPORT {b.text}",
    )
    async with planning(tmp_path) as (kit, juliet, _):
        await started(juliet, document)
        await juliet.hear("The plan: Which one?")
        await answer(kit, juliet, "blue")
        assert await report(juliet) == "REPORT did blue"


async def test_new_and_stop_do_not_end_a_plan(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.held = {"a"}
    document = plan({"id": "a"}, result="REPORT")
    model = (call("plan_start", plan=document), "I have begun.")
    async with planning(tmp_path, *model, deeds=deeds) as (kit, juliet, _):
        await juliet.ask("Please do it", "I have begun.")
        await juliet.say("/stop")
        await juliet.say("/new")
        await kit.settled()
        deeds.release()
        await report(juliet)


async def test_no_step_begins_while_a_plan_is_paused(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.held = {"a"}
    document = plan({"id": "a"}, {"id": "b", "after": ["a"]}, result="REPORT")
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        id_ = await started(juliet, document)
        await kit.settled()
        await juliet.ask(f"/plan pause {id_}", "Paused")
        deeds.release()
        await kit.settled()
        assert deeds.done == ["a"]
        shown = await juliet.ask("/plan", "*The plan* (")
        assert "paused" in shown
        assert "1. run do: is done\n2. run do: waits" in shown
        await juliet.ask(f"/plan resume {id_}", "goes on")
        await report(juliet)
    assert deeds.done == ["a", "b"]


async def test_a_plan_is_cancelled_with_all_that_it_has_started(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.held = {"b"}
    document = plan({"id": "a"}, {"id": "b", "after": ["a"]}, result="REPORT")
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        await started(juliet, document)
        await kit.settled()
        said = await juliet.ask("/plan cancel", "Cancelled")
        assert "1. run do: is done\n2. run do: is running" in said
        deeds.release()
        await kit.settled()
        assert "running" not in await juliet.ask("/tasks")


async def test_a_person_revises_a_plan_while_it_runs(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.held = {"a"}
    document = plan({"id": "a"}, {"id": "b", "after": ["a"]}, result="REPORT")
    other = plan({"id": "a"}, {"id": "c", "after": ["a"]}, result="REPORT {c.text}")
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        id_ = await started(juliet, document)
        await kit.settled()
        await juliet.ask(f"/plan revise {id_} {json.dumps(other)}", "as you have revised it")
        deeds.release()
        assert await report(juliet) == "REPORT did c"
    assert deeds.done == ["a", "c"]


async def test_a_person_who_revises_a_plan_confirms_what_it_destroys(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.held = {"a"}
    document = plan({"id": "a"}, result="REPORT")
    send = {"id": "b", "skill": "send", "params": {"to": "romeo", "text": "x"}, "after": ["a"]}
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        id_ = await started(juliet, document)
        await kit.settled()
        other = plan({"id": "a"}, send, result="REPORT")
        await juliet.ask(f"/plan revise {id_} {json.dumps(other)}", "as you have revised it")
        assert "to: romeo" in await juliet.hear("May I carry out this plan")
        deeds.release()
        await answer(kit, juliet, "yes")
        await report(juliet)
    assert deeds.done == ["a", "to romeo: x"]


async def test_a_person_says_what_is_to_be_changed(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.held = {"a"}
    document = plan({"id": "a"}, {"id": "b", "after": ["a"]}, result="REPORT")
    other = plan({"id": "a"}, result="REPORT {a.text}")
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        id_ = await started(juliet, document)
        await kit.settled()
        says(kit, other)
        await juliet.ask(f"/plan revise {id_} leave out b", "I revise the plan")
        assert "Removed: b" in await juliet.hear("May I change the plan")
        assert "leave out b" in asked(kit)
        await answer(kit, juliet, "yes")
        deeds.release()
        assert await report(juliet) == "REPORT did a"
    assert deeds.done == ["a"]


async def test_a_budget_that_is_spent_asks_for_more(tmp_path: Path) -> None:
    think = {"skill": "think"}
    document = plan(
        {"id": "a", "params": {"about": "a"}, **think},
        {"id": "b", "params": {"about": "b"}, "after": ["a"], **think},
        result="REPORT",
        budget_usd=0.05,
    )
    steps = ["{}", "{}"]
    async with planning(tmp_path, *steps, usd_per_token=0.001) as (kit, juliet, deeds):
        await started(juliet, document)
        question = await juliet.hear("How many US dollars more may it spend?")
        assert "of 0.05 USD" in question
        assert deeds.done in ([], ["think a"])
        await answer(kit, juliet, "5")
        await report(juliet)
    assert deeds.done == ["think a", "think b"]


async def test_what_strangers_wrote_does_not_choose_who_gets_a_message(tmp_path: Path) -> None:
    document = plan(
        {"id": "a", "skill": "fetch", "params": {"url": "https://example.com/"}},
        {"id": "b", "skill": "send", "params": {"to": "{a.text}", "text": "x"}, "after": ["a"]},
    )
    async with planning(tmp_path) as (kit, juliet, deeds):
        await started(juliet, document)
        await juliet.hear("I have begun")
        question = await juliet.hear("mallory@evil.example")
        assert "text that others wrote" in question
        await answer(kit, juliet, "no")
        await juliet.hear("could not finish")
    assert deeds.done == ["fetch https://example.com/"]


async def test_a_step_asks_several_people_each_alone(tmp_path: Path) -> None:
    people = ["romeo@capulet.example", "paris@capulet.example"]
    ask = {"kind": "ask", "question": "Do you come?", "choices": ["yes", "no"], "people": people}
    document = plan({"id": "a", **ask}, result="REPORT\n{a.text}")
    async with planning(tmp_path) as (kit, juliet, _):
        romeo, paris = (kit.peer(f"{one}/phone") for one in people)
        await started(juliet, document)
        assert "asks: romeo@capulet.example" in await juliet.hear("May I carry out")
        await answer(kit, juliet, "yes")
        for person, said in ((romeo, "yes"), (paris, "no")):
            await person.hear("juliet@capulet.example asks: Do you come?")
            await answer(kit, person, said)
        found = await report(juliet)
    assert found == "REPORT\nromeo@capulet.example: yes\nparis@capulet.example: no"


async def test_a_step_is_a_sub_agent_that_uses_the_skills_of_the_step(tmp_path: Path) -> None:
    work = {"kind": "agent", "role": "looker", "skills": ["look"]}
    document = plan(
        {"id": "a", "instructions": "Look at the sea.", **work},
        {"id": "b", "instructions": "Say this again: {a.text}", "after": ["a"], **work},
        result="REPORT {b.text}",
    )
    model = (call("look", text="sea"), "It is calm.", "Calm, calm.")
    async with planning(tmp_path, *model) as (kit, juliet, deeds):
        await started(juliet, document)
        assert await report(juliet) == "REPORT Calm, calm."
        assert "Say this again: It is calm." in asked(kit)
        assert not {"do", "send"} & {tool.name for tool in kit.model.requests[0].tools}
    assert deeds.done == ["look sea"]


async def test_sub_agents_work_side_by_side_and_share_the_budget(tmp_path: Path) -> None:
    work = {"kind": "agent", "instructions": "Think.", "skills": ["look"]}
    document = plan({"id": "a", **work}, {"id": "b", **work}, result="REPORT", budget_usd=0.01)
    async with planning(
        tmp_path, "One.", "Two.", "Three.", otherwise="Four.", usd_per_token=0.0001
    ) as (kit, juliet, _):
        await started(juliet, document)
        assert "of 0.01 USD" in await juliet.hear("How many US dollars more may it spend?")
        await answer(kit, juliet, "5")
        await report(juliet)


async def test_a_picture_shows_the_steps_where_files_can_be_sent(tmp_path: Path) -> None:
    deeds, sent = Deeds(), []
    deeds.held = {"a"}

    async def place(file: File, _request: Request) -> Link:
        sent.append(file)
        return Link("https://files.example/plan.svg", file.media_type, file.name)

    document = plan({"id": "a"}, {"id": "b", "after": ["a"]})
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        await started(juliet, document)
        await kit.settled()
        drawing = await juliet.ask("/plan picture", "I cannot send a picture")
        assert "b: run do (waiting; after a)" in drawing
        kit.kernel.tasks.places.append(place)
        await juliet.ask("/plan picture", "https://files.example/plan.svg")
    assert b"<svg" in sent[0].data


async def test_a_revision_runs_again_what_was_cancelled_with_its_group(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.failing, deeds.held = {"b"}, {"a"}
    both = {"group": "g"}
    document = plan({"id": "a", **both}, {"id": "b", **both}, groups={"g": "all"}, result="REPORT")
    other = plan({"id": "a", **both}, {"id": "c", **both}, groups={"g": "all"}, result="REPORT")
    async with planning(tmp_path, deeds=deeds) as (kit, juliet, _):
        says(kit, other)
        await started(juliet, document)
        question = await juliet.hear("May I change the plan")
        assert "Runs again: a (run do)" in question
        deeds.release()
        await answer(kit, juliet, "yes")
        assert await report(juliet) == "REPORT"
    assert sorted(deeds.done) == ["a", "a", "b", "c"]


async def test_the_plan_of_a_misled_model_repeats_what_only_reads(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.failing = {"a"}
    step = {"id": "a", "skill": "look_outside", "params": {"text": "a"}, "retries": 2}
    document = plan(step | {"optional": True})
    model = (call("fetch", url="https://example.com/"), call("plan_start", plan=document), "Yes.")
    async with planning(tmp_path, *model, deeds=deeds) as (kit, juliet, _):
        await juliet.ask("Read it, and plan", "Start a plan")
        await answer(kit, juliet, "yes")
        await juliet.hear("May I carry out")
        await answer(kit, juliet, "yes")
        await juliet.hear("Without: run look_outside")
    assert deeds.done == ["fetch https://example.com/"] + ["look a"] * 3


async def test_a_plan_ends_when_one_step_of_its_last_group_is_done(tmp_path: Path) -> None:
    deeds = Deeds()
    deeds.held = {"a"}
    both = {"group": "g"}
    document = plan(
        {"id": "a", **both}, {"id": "b", **both}, groups={"g": "first"}, result="REPORT"
    )
    async with planning(tmp_path, deeds=deeds) as (_, juliet, _):
        await started(juliet, document)
        assert await report(juliet) == "REPORT"
    assert sorted(deeds.done) == ["a", "b"]
