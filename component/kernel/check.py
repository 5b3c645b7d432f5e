"""A check of `xmpp-agent doctor`."""

from typing import Final, Literal, TypeAlias

import anyio
import msgspec

Verdict: TypeAlias = Literal["ok", "warning", "failed"]
_REACHED_S: Final = 5.0


class Check(msgspec.Struct, frozen=True):
    """One check: its name, its verdict, and a text for the operator."""

    name: str
    verdict: Verdict
    text: str


async def reached(name: str, host: str, port: int, shown: str) -> Check:
    """Check whether a server can be reached. `shown` names it."""
    problem = await _unreachable(host, port)
    if problem:
        return Check(name, "warning", f"{shown} cannot be reached: {problem}")
    return Check(name, "ok", f"{shown} can be reached")


async def _unreachable(host: str, port: int) -> str:
    """Return why no connection can be made, or an empty text."""
    try:
        with anyio.fail_after(_REACHED_S):
            await (await anyio.connect_tcp(host, port)).aclose()
    except TimeoutError:
        return f"there is no connection within {_REACHED_S:g} s"
    except OSError as error:
        return str(error) or type(error).__name__
    return ""
