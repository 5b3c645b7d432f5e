"""Provenance: which agents' work has led to an event, so that agents do not trigger each other
endlessly.

Work that an event triggers has the chain of the event. The items that this work publishes carry the
chain and the agent's own address inside their payloads, which every service passes on.
"""

from collections.abc import Sequence
from typing import Final

from component.store.database import Database
from xep.binding import RawXML, encode
from xep.fluux_agent.provenance import MOST, NAMESPACE, Provenance
from xep.jid import JID, JIDError
from xep.tree import Tree

_KEPT_MS: Final = 7 * 86_400_000
"""Milliseconds for which the chain of work is stored; no work takes longer."""


def note_chain(database: Database, trace: str, chain: Sequence[str]) -> None:
    """Note the chain of the work whose skills have this trace (`Context.trace`)."""
    database.execute("DELETE FROM watch_chains WHERE trace = ?", (trace,))
    if chain:
        database.execute("DELETE FROM watch_chains WHERE at < ?", (database.steady - _KEPT_MS,))
        database.execute(
            "INSERT INTO watch_chains (trace, chain, at) VALUES (?, ?, ?)",
            (trace, " ".join(chain), database.steady),
        )


def noted_chain(database: Database, trace: str) -> tuple[str, ...]:
    """Return the bare JIDs of the agents whose work has led to the work with this trace."""
    found = database.execute("SELECT chain FROM watch_chains WHERE trace = ?", (trace,)).fetchone()
    return () if found is None else tuple(str(found[0]).split())


def chain_of(payload: Tree | None) -> tuple[str, ...]:
    """Return the chain that a payload carries; empty if it carries none. Never raises."""
    found = None if payload is None else payload.find(NAMESPACE, "provenance")
    if found is None:
        return ()
    return tuple(
        each.text.strip() for each in found.children if each.local == "via" and each.text.strip()
    )[-MOST:]


def with_chain(payload: RawXML, agent: JID, chain: Sequence[str]) -> RawXML:
    """Return a payload that carries a chain and the agent that publishes it.

    Invalid addresses in the chain are left out; others can have written them.
    """
    via = []
    for text in chain:
        try:
            via.append(JID.parse(text).bare)
        except JIDError:
            continue
    element = encode(Provenance(via=(*via, agent.bare)[-MOST:]))
    text = payload.text
    if text.endswith("/>"):
        name = text[1:].split(maxsplit=1)[0].rstrip("/>")
        return RawXML(f"{text[:-2]}>{element}</{name}>")
    at = text.rindex("</")
    return RawXML(text[:at] + element + text[at:])
