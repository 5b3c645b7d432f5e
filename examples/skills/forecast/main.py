"""Says how the weather will be: an HTTP API with a key, and a memory of the last city."""

from typing import Annotated

import msgspec

from xmpp_agent import Context, SkillError, skill


class Forecast(msgspec.Struct):
    """What the API answers."""

    summary: str
    high: float


@skill(name="forecast", destructive=False)
async def forecast(
    context: Context,
    city: Annotated[str, msgspec.Meta(description="the city", max_length=100)] = "",
) -> str:
    """Say how the weather will be in a city, or in the last city that you asked about."""
    city = city or await context.memory.get("city") or ""
    if not city:
        raise SkillError("Which city?")
    answer = await context.http.get(
        "https://api.example.com/forecast",
        params={"city": city},
        credential="weather-key",  # the service adds the key; this code never sees it
    )
    if answer.status == 404:
        raise SkillError(f"There is no forecast for {city}.")
    if not answer.ok:
        raise SkillError("The forecast is not available now.")
    found = answer.json(Forecast)
    await context.memory.put("city", city)
    return f"{city}: {found.summary}, up to {found.high:g} °C"
