"""Skills that the guide for callers executes."""

import anyio
import msgspec

from component.skills import Context, skill


class Lunch(msgspec.Struct):
    """What somebody eats."""

    dish: str
    portions: int


@skill(name="order-lunch", destructive=False, open_world=False, durable=True)
async def order_lunch(context: Context) -> str:
    """Ask what to order, and order it."""
    lunch = await context.ask("What would you like?", Lunch)
    return f"{lunch.portions} x {lunch.dish}"


@skill(read_only=True)
async def remind(minutes: int) -> str:
    """Wait."""
    await anyio.sleep(60 * minutes)
    return "It is time."
