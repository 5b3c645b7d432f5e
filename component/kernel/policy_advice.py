"""Settings of the policy that are valid, and probably not what the admin means."""

from collections.abc import Callable, Collection, Iterator

from component.config import Settings
from component.config.policy import Rule
from component.policy.entries import EVERYBODY
from component.policy.globs import pattern, within
from xep.jid import JID


def policy_advice(settings: Settings, admits: Callable[[JID], bool]) -> Iterator[str]:
    """Yield a sentence for each entry of the policy that has no effect, or another one than it
    seems to have, and say what to change. `admits` is that of the policy of these settings.
    """
    users = [JID.parse(each).domain for each in _named(settings.allowed_domains)]
    rules = {f"policy.rules[{index}]": rule for index, rule in enumerate(settings.policy.rules)}
    lists = {
        "agent.allowed_jids": settings.agent.allowed_jids,
        "agent.admins": settings.agent.admins,
    } | {f"{key}.allowed_jids": rule.allowed_jids for key, rule in rules.items()}
    for key, entries in lists.items():
        for entry in _named(entries):
            why = _misspelt(entry, users, settings.server.parent_domain) or _shut_out(
                entry, users, admits
            )
            if why:
                yield f"{key}: {entry!r} {why}"
    for key, rule in rules.items():
        domains = [JID.parse(each).domain for each in _named(rule.allowed_domains)]
        if domains and users and set(domains).isdisjoint(users):
            yield (
                f"{key}.allowed_domains: nobody passes this rule, because agent.allowed_domains has"
                f" none of {', '.join(domains)}: add one there, or correct the rule"
            )
        if rule.rooms and rule.least_affiliation == "none" and rule.hat is None:
            yield (
                f"{key}.affiliation: everybody who enters {rule.rooms[0]} can approve: demand an"
                " affiliation or a hat, or let only members enter the room"
            )
    yield from _covered(rules)


def _named(entries: Collection[str] | None) -> Collection[str]:
    """Return the entries of a list; none if it means everybody."""
    return () if entries is None or EVERYBODY in entries else entries


def _misspelt(entry: str, users: Collection[str], home: str) -> str:
    """Return what is wrong with a domain in a list of accounts. `home` is the domain of the server;
    another one may be a peer.
    """
    jid = JID.parse(entry)
    if jid.local is not None:
        return ""
    if home and jid.domain == JID.parse(home).domain:
        return (
            "means the server itself, not its users: write each account in full, or remove"
            " allowed_jids to allow all of that domain"
        )
    if "." not in jid.domain:
        example = next(iter(users), "example.com")
        return f"has no domain: write the account in full, {jid.domain}@{example}"
    return ""


def _shut_out(entry: str, users: Collection[str], admits: Callable[[JID], bool]) -> str:
    jid = JID.parse(entry)
    if admits(jid):
        return ""
    missing = (
        f"{entry} to agent.allowed_jids"
        if not users or jid.domain in users
        else f"{jid.domain} to agent.allowed_domains"
    )
    return f"cannot use the agent: a sender must be in both lists, so add {missing}"


def _covered(rules: dict[str, Rule]) -> Iterator[str]:
    """Yield what rules say that an earlier rule about the same skills says already."""
    for name in ("confirm", "approvers"):
        before: dict[str, Rule] = {}
        for key, rule in rules.items():
            if getattr(rule, name) is None:
                continue
            for earlier, other in before.items():
                if within(rule.skills, other.skills) is None:
                    yield (
                        f"{key}.{name} never applies: {earlier} is about the same skills and comes"
                        " first. Move the narrower rule above it, or remove one"
                    )
                    break
            before[key] = rule


def unknown_skills(settings: Settings, names: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each pattern in the rules and the agents that none of the names
    matches. What a peer offers may not be known yet.
    """
    known, peers = frozenset(names), {peer.name for peer in settings.peer if peer.skills}
    found: dict[str, bool] = {}
    wanted = [
        *(
            (f"policy.rules[{index}].skills", rule.skills)
            for index, rule in enumerate(settings.policy.rules)
        ),
        *((f"the skills of {entry.name}", entry.skills) for entry in settings.agents),
        *((f"peer.{peer.name}.offers", peer.offers) for peer in settings.peer),
    ]
    for key, globs in wanted:
        for glob in globs:
            if glob not in found:
                found[glob] = (
                    glob == EVERYBODY
                    or glob in known
                    or glob.partition(".")[0] in peers
                    or any(map(pattern((glob,)).fullmatch, names))
                )
            if not found[glob]:
                yield (
                    f"{glob!r} in {key} matches no skill: `xmpp-agent skills list` shows the names"
                )
