"""The skills of the agent in the middle. One has another agent do the work."""

from component.skills import Context, skill


@skill(read_only=True, open_world=False, durable=True)
async def report(call: str, params: dict[str, str], context: Context, beside: str = "") -> str:
    """Report what another agent says. With the label `beside`, it also collects, and reports what
    is there first.
    """
    tasks = [await context.start(call, params)]
    if not beside:
        (done,) = await context.wait(tasks)
        return f"Report: {done.text or done.reason}"
    tasks.append(await context.start("archive.collect", {"label": beside}))
    found = await context.wait_first(tasks)
    return f"Report: {' '.join(one.text for one in found if one.success)}"


@skill(read_only=True, open_world=False, durable=True)
async def report_later(call: str, params: dict[str, str], context: Context) -> str:
    """Ask first, and then report what another agent says."""
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    await context.ask("Shall I go on?", schema)
    (done,) = await context.wait([await context.start(call, params)])
    return f"Report: {done.text or done.reason}"


@skill(read_only=True, open_world=False, inline=True)
def sources(topic: str) -> str:
    """Find sources."""
    return f"Sources about {topic}."
