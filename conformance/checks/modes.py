"""Execution: From Request to Task, Deadlines."""

from conformance.model import check
from conformance.talk import Talk

PAST = "2001-01-01T00:00:00Z"
LONGEST_WAIT = 15
"""The maximum inline limit, in seconds, that the kit waits for; a longer one makes a run
too slow.
"""


@check("execute.mode-unavailable", "EXE-019", roles=("echo",))
async def mode(t: Talk) -> None:
    """A mode that is not supported is refused."""
    answer = await t.execute("echo", {"text": "x"}, mode="async")
    if t.target.serves("task"):
        ok = not answer.is_error or answer.agent_conditions == ["mode-unavailable"]
        t.hold("EXE-019", ok, "a task, or <mode-unavailable/>", answer)
        return
    t.holds_error("EXE-019", answer, "feature-not-implemented", "mode-unavailable")


@check("execute.inline-timeout", "EXE-021", "EXE-022", roles=("sleep",))
async def inline_timeout(t: Talk) -> None:
    """In mode inline, work that exceeds the limit is stopped; the error type says if it is
    repeatable.
    """
    limit = t.target.number("inline_seconds", 0)
    t.need(0 < limit <= LONGEST_WAIT, f"The inline limit is {limit} s: set it to 1 for this run.")
    wait = limit + max(t.timeout, 5)
    answer = await t.execute("sleep", {"seconds": "300"}, mode="inline", within=wait)
    why = "the inline limit has passed"
    t.holds_error("EXE-021", answer, "remote-server-timeout", "timeout", why=why)
    expected = "the type wait, for sleeping is idempotent"
    t.hold("EXE-022", answer.error.type == "wait", expected, answer)


@check("execute.deadline", "EXE-025", roles=("count",))
async def deadline(t: Talk) -> None:
    """A request after its deadline is refused, and nothing runs."""
    key = t.new_id()
    answer = await t.execute("count", {"key": key}, deadline=PAST)
    t.holds_error("EXE-025", answer, "not-acceptable", "deadline-expired")
    answer = await t.execute("count", {"key": key})
    t.hold("EXE-025", t.text(answer, "Counting") == "1", "nothing ran before", answer)


CHECKS = (mode, inline_timeout, deadline)
