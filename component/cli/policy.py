"""`xmpp-agent policy explain`: who may use what, and which setting says so."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from component.cli import frame, peer_policy

if TYPE_CHECKING:
    from component.config import Settings
    from component.config.peers import Peer
    from component.policy import Policy
    from component.skills import Skill
    from xep.jid import JID


@click.group()
def policy() -> None:
    """Explain the policy."""


@policy.command("explain")
@frame.config_option
@frame.json_option("Print JSON.")
@click.argument("jid")
@click.argument("names", metavar="[SKILL]...", nargs=-1)
def explain(config: Path, as_json: bool, jid: str, names: tuple[str, ...]) -> None:
    """Say whether the bare address JID is admitted, and which of the skills (by default all that
    this machine has) it may execute.

    For each skill: who has to confirm it, and for one that is refused the settings that refuse it.
    For a peer, which can also be given by its name, both directions are explained: what it may do
    here, and what is used of it. Nobody is asked; no service has to run.

    \b
    Examples:
      xmpp-agent policy explain juliet@example.com
      xmpp-agent policy explain agent.example.net report
      xmpp-agent policy explain research report
      xmpp-agent policy explain --json juliet@example.com | jq .skills
    """
    from component.app.features import load_skills  # noqa: PLC0415 - --help needs none of it
    from component.kernel.options import make_policy  # noqa: PLC0415
    from component.policy import PolicyError  # noqa: PLC0415
    from component.skills import DuplicateSkillError, SkillLoadError  # noqa: PLC0415
    from xep.jid import JID, JIDError  # noqa: PLC0415

    settings = frame.load_settings(config)
    try:
        named = {peer.name: peer.jid for peer in settings.peer}
        principal = JID.parse(named.get(jid, jid)).bare
        made, registry = make_policy(settings), load_skills(settings)
    except JIDError as error:
        raise frame.Fault(f"{jid!r} is not a JID: {error}") from None
    except PolicyError as error:
        raise frame.ConfigFault(*map(str, error.entries)) from None
    except (SkillLoadError, DuplicateSkillError) as error:
        raise frame.ConfigFault(str(error)) from None
    wanted = names or [name for name in registry.names() if not _is_hidden(registry.get(name))]
    peer = _peer_of(settings, made, principal)
    rows = [_explained(made, principal, name, registry.get(name), peer) for name in wanted]
    used = [] if peer is None else peer_policy.rows_of_skills(made, peer, names)
    if as_json:
        admitted = made.admits(principal)
        refused_by = made.refusals(principal)
        found = {"jid": str(principal), "admitted": admitted, "refused_by": refused_by}
        more = {} if peer is None else {"peer": peer.model_dump(mode="json"), "used": used}
        frame.print_json({**found, "skills": rows, **more})
        return
    for line in _sentences(made, principal, peer):
        click.echo(line)
    for title, table in (
        ("" if peer is None else f"What {peer.name} may execute here:", rows),
        ("" if peer is None else f"What may be executed here of {peer.name}:", used),
    ):
        if made.admits(principal) and table:
            _print(title, table)


def _print(title: str, rows: Sequence[dict[str, Any]]) -> None:
    from component.cli.rows import print_rows  # noqa: PLC0415 - only a table needs it

    click.echo(f"\n{title}" if title else "")
    print_rows([{key: str(row[key]) for key in ("skill", "use", "confirmation")} for row in rows])


def _is_hidden(skill: "Skill | None") -> bool:
    return skill is not None and skill.hidden


def _peer_of(settings: "Settings", policy: "Policy", principal: "JID") -> "Peer | None":
    """Return the peer whose address it is."""
    from component.agent_addresses import both_addresses  # noqa: PLC0415
    from xep.jid import JID  # noqa: PLC0415

    if not policy.is_peer(principal):
        return None
    return next(peer for peer in settings.peer if principal in both_addresses(JID.parse(peer.jid)))


def _sentences(policy: "Policy", principal: "JID", peer: "Peer | None") -> Iterator[str]:
    if peer is not None:
        yield from peer_policy.sentences(policy, peer)
    elif policy.admits(principal):
        yield f"{principal} is admitted."
        if principal.local is None:
            yield "It is a service, not an account: it may use nothing until a [[peer]] names it."
    else:
        yield f"{principal} is not admitted, because of {' and '.join(policy.refusals(principal))}."


def _explained(
    policy: "Policy", principal: "JID", name: str, skill: "Skill | None", peer: "Peer | None"
) -> dict[str, Any]:
    may = policy.may_use(policy.view_key(principal), name, hidden=_is_hidden(skill))
    refused_by = policy.refusals(principal, name)
    use = "yes" if may else f"no: {', '.join(refused_by) or 'hidden'}"
    return {
        "skill": name,
        "use": use if skill is not None else f"{use} (there is no such skill here)",
        "may_use": may,
        "refused_by": [] if may else refused_by,
        "confirmation": _confirmation(policy, name, skill, peer) if may else "",
    }


def _confirmation(policy: "Policy", name: str, skill: "Skill | None", peer: "Peer | None") -> str:
    """Return who has to confirm a skill that the principal itself executes."""
    rule = policy.asking(name)
    harmless = skill is not None and not skill.annotations.destructive and not skill.undo
    if rule.when == "destructive" and harmless:
        return "nobody"
    if rule.has_approvers:
        return rule.description
    if peer is not None:
        return "the peer, which asks the person it works for"
    return "nobody" if rule.when == "never" else "the person"
