"""Makes protocol_schemas/vectors/paths: `python -m tests.component.grants.path_vectors`.

Each vector is one <delegation/> without grants, as it comes to an agent; all but those that are
valid break exactly one rule of the sections "The Path".
"""

from typing import Final

import msgspec

from tests.component.grants.vectors import ALICE, FOLDER, A, B, C, as_files, write

PATHS: Final = FOLDER / "paths"
_DOMAIN: Final = "agent.example.org"
"""The component whose default agent is C."""
_TRACE: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class PathVector(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A vector as it is written; README.md says what its members are."""

    name: str
    description: str
    requirement: str
    valid: bool
    error: str | None = None
    condition: str | None = None
    sender: str
    receiver: str
    addresses: tuple[str, ...]
    xml: str


def written(*via: str, origin: str | None = ALICE, hops: str | None = "4", **limits: str) -> str:
    """Return a delegation; None leaves an attribute out."""
    named = {"origin": origin, "max-hops": hops}
    named |= {name.replace("_", "-"): value for name, value in limits.items()}
    heads = "".join(f" {name}='{value}'" for name, value in named.items() if value is not None)
    inside = "".join(f"<via>{one}</via>" for one in via)
    return f"<delegation xmlns='urn:fluux:agent:0#delegation'{heads}>{inside}</delegation>"


_VALID: Final = {
    "one-agent": ("DLG-003", "B asks for Alice.", written(B)),
    "two-agents": ("DLG-003", "B asks for Alice, and A has asked B.", written(A, B)),
    "last-hop": ("DLG-005", "The path is as long as it may be.", written(A, B, hops="2")),
    "other-agent-of-component": (
        *("DLG-004", "Another agent of the component of C has asked B."),
        written(f"other@{_DOMAIN}", B),
    ),
    "all-limits": (
        "DLG-023",
        "There are budgets and a trace.",
        written(A, B, budget_usd="0.50", budget_tokens="60000", trace=_TRACE),
    ),
}
_MANY: Final = [f"agent{number}@agent.example.net" for number in range(16)]
_INVALID: Final = {
    "other-sender": ("DLG-003", "malformed", "The last agent is another one.", written(A)),
    "other-address-of-sender": (
        *("DLG-003", "malformed", "The last agent is the domain of the sender."),
        written(A, "agent.example.net"),
    ),
    "loop": ("DLG-004", "loop", "The work has been here.", written(A, C, B)),
    "loop-by-domain": (
        *("DLG-004", "loop", "The work has been here, under the address of the component."),
        written(_DOMAIN, A, B),
    ),
    "too-many-hops": ("DLG-005", "hops-exceeded", "One agent too many.", written(A, B, hops="1")),
    "no-hops": ("DLG-005", "hops-exceeded", "It must not be delegated.", written(B, hops="0")),
    "origin-with-resource": (
        *("DLG-023", "malformed", "The origin is a full JID."),
        written(B, origin=f"{ALICE}/desk"),
    ),
    "agent-with-resource": (
        *("DLG-023", "malformed", "The first agent is a full JID."),
        written(f"{A}/f1", B),
    ),
    "seventeen-agents": (
        *("DLG-023", "malformed", "There are more than 16 agents in the path."),
        written(*_MANY, B, hops="20"),
    ),
    "negative-hops": ("DLG-023", "malformed", "max-hops is negative.", written(B, hops="-1")),
    "negative-dollars": (
        *("DLG-023", "malformed", "budget-usd is negative."),
        written(B, budget_usd="-0.01"),
    ),
    "negative-tokens": (
        *("DLG-023", "malformed", "budget-tokens is negative."),
        written(B, budget_tokens="-1"),
    ),
    "trace-without-identifier": (
        *("DLG-023", "malformed", "The trace identifier is zero."),
        written(B, trace=f"00-{'0' * 32}-00f067aa0ba902b7-01"),
    ),
    "no-traceparent": (
        *("DLG-023", "malformed", "trace is not a traceparent."),
        written(B, trace="7"),
    ),
    "no-path": ("COM-013", "malformed", "There is no agent in the path.", written()),
    "no-origin": ("COM-013", "malformed", "There is no origin.", written(B, origin=None)),
    "no-limit": ("COM-013", "malformed", "There is no max-hops.", written(B, hops=None)),
}


def _vector(
    name: str, requirement: str, description: str, xml: str, condition: str | None = None
) -> PathVector:
    errors = {None: None, "malformed": "bad-request"}
    return PathVector(
        name=name,
        description=description,
        requirement=requirement,
        valid=condition is None,
        error=errors.get(condition, "not-allowed"),
        condition=condition,
        sender=B,
        receiver=C,
        addresses=(_DOMAIN, C),
        xml=xml,
    )


def vectors() -> dict[str, str]:
    """Return the text of each file, by its name."""
    made = [_vector(name, rule, text, xml) for name, (rule, text, xml) in _VALID.items()]
    made += [
        _vector(name, rule, text, xml, condition)
        for name, (rule, condition, text, xml) in _INVALID.items()
    ]
    return as_files(made)


if __name__ == "__main__":
    write(PATHS, vectors())
