"""A durable skill with one step, which both agents of the benchmark have."""

from component.skills import Context, skill


@skill(destructive=False, durable=True, open_world=False)
async def note(text: str, context: Context) -> str:
    """Write something down, once."""

    async def work(_key: str) -> str:
        return text

    return await context.step("write", work, str)
