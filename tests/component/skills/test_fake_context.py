"""Child tasks in the tests of authors."""

from component.skills import ChildFailed, Context, SkillError, skill
from component.skills.fake_context import FakeContext, call

OUTCOMES = {"one": SkillError("It is closed."), "two": OSError("broken"), "three": "3", "four": "4"}


@skill(name="ask.first", durable=True)
async def ask_first(context: Context) -> str:
    await context.confirm_tasks([(name, {}) for name in OUTCOMES])
    found = await context.wait_first([await context.start(name) for name in OUTCOMES])
    return " ".join(f"{one.skill}:{one.state}:{one.success}" for one in found)


@skill(name="ask.all", durable=True)
async def ask_all(context: Context) -> str:
    try:
        await context.wait([await context.start(name) for name in ("three", "two")])
    except ChildFailed as error:
        return f"{error} {[one.success for one in error.results]}"
    return "all"


def test_the_first_success_of_child_tasks_ends_a_wait() -> None:
    result = call(ask_first, {}, FakeContext(children=OUTCOMES))
    assert result.outputs[0].text == (
        "one:completed:False two:failed:False three:completed:True four:cancelled:False"
    )


def test_a_child_task_that_fails_is_named_with_the_results_of_all() -> None:
    result = call(ask_all, {}, FakeContext(children=OUTCOMES))
    assert result.outputs[0].text == "The child task 2 (two) is failed: broken [True, False]"
