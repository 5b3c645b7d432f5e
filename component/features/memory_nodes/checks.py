"""The check of `xmpp-agent doctor` about memories on PubSub nodes: where they can be stored."""

from collections.abc import Awaitable, Callable

from component.features.memory_nodes.account_nodes import is_suitable
from component.features.memory_nodes.privileges import Privileges
from component.kernel.check import Check
from component.kernel.options import privileged_domains
from component.settings import Settings
from xep.jid import JID
from xep.stanza_error import StanzaError

_NONE = "is not possible"


async def check_homes(
    settings: Settings, software: Callable[[JID], Awaitable[str]], privileges: Privileges
) -> Check | None:
    """Check which homes of memories are possible on this server, and why others are not. Returns
    None if memories are only in files.

    Args:
        settings: the settings.
        software: returns the name of the software of a domain. Raises StanzaError.
        privileges: the privileges that servers have granted on this connection.
    """
    if settings.memory.store == "files":
        return None
    lines: list[str] = []
    works = False
    if settings.server.mode == "client":
        account = JID.parse(settings.server.address)
        name, reason = await _software(account.domain, software)
        works = not reason
        lines.append(f"agent: {reason or f'in the account {account}'}")
    else:
        lines.append("agent: at the addresses of the agents, on every server")
        works = settings.memory.home == "agent"
    for domain in sorted(privileged_domains(settings)) if settings.server.mode != "client" else ():
        name, reason = await _software(domain, software)
        lines.append(f"person, as a publisher: {reason or f'in the accounts of {domain} ({name})'}")
        granted = privileges.may_use_nodes(JID(None, domain))
        lines.append(f"person, with consent: {reason or _granted(domain, granted)}")
        works = works or not reason
    used = f"home = {settings.memory.home} is used"
    if not works:
        used = f"home = {settings.memory.home} {_NONE}: memories stay in the files"
    return Check("memory homes", "ok" if works else "warning", "\n".join((used, *lines)))


def _granted(domain: str, granted: bool) -> str:
    if granted:
        return f"{domain} lets the agent act on behalf of people"
    return (
        f"{_NONE}, because {domain} does not let the agent act on behalf of people (XEP-0356;"
        " mod_privilege of Prosody, see docs/memory.md)"
    )


async def _software(domain: str, software: Callable[[JID], Awaitable[str]]) -> tuple[str, str]:
    """The name of the software of a domain, and why accounts there cannot be homes."""
    try:
        name = await software(JID(None, domain))
    except StanzaError as error:
        return "", f"{_NONE}, because {domain} does not say what it is: {error}"
    if not is_suitable(name):
        return name, (
            f"{_NONE} at {domain}, because people cannot correct there what an agent has published"
            f" ({name}, which has no IQ privileges either)"
        )
    return name or "unknown software", ""
