"""A check of `xmpp-agent doctor`, and whether a server can be reached."""

from typing import Final, Literal, TypeAlias

import anyio
import msgspec

Verdict: TypeAlias = Literal["ok", "warning", "failed"]

_CONNECT_S: Final = 5.0


class Check(msgspec.Struct, frozen=True):
    """One check: its name, its verdict, and a text for the operator."""

    name: str
    verdict: Verdict
    text: str


async def check_url(name: str, url: str) -> Check:
    """Check whether the server of a URL can be reached. The text has its origin only."""
    from component.http.targets import target_of  # noqa: PLC0415 - only `doctor` needs it

    target = target_of(url)
    return await check_server(name, target.host, target.port, target.origin)


async def check_server(name: str, host: str, port: int, shown: str) -> Check:
    """Check whether a server can be reached. The text calls it `shown`."""
    problem = await _unreachable(host, port)
    if problem:
        return Check(name, "warning", f"{shown} cannot be reached: {problem}")
    return Check(name, "ok", f"{shown} can be reached")


async def _unreachable(host: str, port: int) -> str:
    """Return why no connection can be made, or an empty text."""
    try:
        with anyio.fail_after(_CONNECT_S):
            await (await anyio.connect_tcp(host, port)).aclose()
    except TimeoutError:
        return f"there is no connection within {_CONNECT_S:g} s"
    except OSError as error:
        return str(error) or type(error).__name__
    return ""
