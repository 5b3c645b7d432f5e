"""Makes protocol_schemas/vectors: `python -m tests.component.grants.vectors`.

Agents of three domains, with fixed keys, at a fixed time. Each vector is one chain of grants and
the request that it comes with; all but those of `VALID` break exactly one rule.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

import protocol_schemas
from component.grants import Budget, Grant, SigningKey, digest, write_grant
from component.grants.grant import Confirmation
from component.grants.keys import base64url, sign
from xep.binding import encode
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.grant import SignedGrant
from xep.jid import JID

FOLDER: Final = Path(protocol_schemas.__file__).parent / "vectors"
NOW: Final = 1_796_122_800
"""2026-12-01T11:00:00Z."""
ALICE: Final = "alice@example.com"
A: Final = "assistant@agent.example.com"
B: Final = "research@agent.example.net"
C: Final = "library@agent.example.org"


def key_of(agent: str) -> SigningKey:
    """The fixed key of an agent."""
    return SigningKey.of(hashlib.sha256(agent.encode()).digest())


class Vector(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A vector as it is written; README.md says what its members are."""

    name: str
    description: str
    requirement: str
    valid: bool
    reason: str | None = None
    now: int
    published: dict[str, dict[str, Any]]
    sender: str
    receiver: str
    skill: str
    deadline: int | None = None
    delegation: dict[str, Any]
    xml: str
    grants: list[str]
    claims: list[Any]
    effective: Any = None


class Chain:
    """The chain A -> B -> C, one hop or two, with what a vector changes in it."""

    def __init__(self) -> None:
        self.root = Grant(
            iss=A,
            sub=ALICE,
            aud=B,
            skills=("report", "sources.*"),
            depth=2,
            exp=NOW + 1800,
            iat=NOW - 10,
            jti="root-1",
            budget=Budget(usd=Decimal("0.50"), tokens=60_000),
            cnf=Confirmation(jwk=key_of(B).public),
        )
        self.child = Grant(
            iss=B,
            sub=ALICE,
            aud=C,
            skills=("sources.search",),
            depth=1,
            exp=NOW + 900,
            iat=NOW - 5,
            jti="child-1",
            budget=Budget(usd=Decimal("0.20"), tokens=20_000),
            cnf=Confirmation(jwk=key_of(C).public),
        )
        self.hops = 2
        self.root_key, self.child_key = key_of(A), key_of(B)
        self.parent: str | None = None
        self.written: list[str] | None = None
        self.sender, self.receiver = B, C
        self.skill = "sources.search"
        self.origin = ALICE
        self.deadline: int | None = None
        """None is the end of the last grant, 0 no deadline."""
        self.via: tuple[str, ...] = (A, B)
        self.usd: Decimal | None = Decimal("0.20")
        self.tokens: int | None = 20_000
        self.max_hops = 4

    def of_one_hop(self) -> None:
        self.hops = 1
        self.sender, self.receiver, self.via = A, B, (A,)
        self.skill = "report"

    def of_root(self, **values: Any) -> None:
        self.root = msgspec.structs.replace(self.root, **values)

    def of_child(self, **values: Any) -> None:
        self.child = msgspec.structs.replace(self.child, **values)

    def grants(self) -> list[str]:
        if self.written is not None:
            return self.written
        made = [write_grant(self.root, self.root_key)]
        if self.hops == 2:
            parent = digest(made[0]) if self.parent is None else self.parent
            made.append(
                write_grant(msgspec.structs.replace(self.child, par=parent), self.child_key)
            )
        return made


RULES: Final = {
    "wider-skills": "GRA-013",
    "wider-pattern": "GRA-013",
    "other-skill": "GRA-020",
    "wrong-key-of-first": "GRA-008",
    "wrong-key-of-child": "GRA-009",
    "changed-claims": "GRA-008",
    "later-expiry": "GRA-014",
    "deadline-after-expiry": "GRA-022",
    "no-deadline": "GRA-022",
    "other-origin": "GRA-012",
    "origin-of-delegation": "GRA-018",
    "other-audience": "GRA-019",
    "replayed-by-another": "GRA-017",
    "forged-path": "GRA-017",
    "shortened-path": "GRA-017",
    "issuer-without-grant": "GRA-011",
    "stale-parent": "GRA-010",
    "parent-of-first": "GRA-010",
    "larger-budget": "GRA-015",
    "budget-left-out": "GRA-015",
    "budget-of-delegation": "GRA-021",
    "budget-of-delegation-left-out": "GRA-021",
    "too-deep": "GRA-016",
    "depth-not-smaller": "GRA-016",
    "no-key-for-child": "GRA-016",
    "expired": "GRA-023",
    "made-in-the-future": "GRA-023",
    "not-a-grant": "GRA-005",
    "no-algorithm": "GRA-005",
    "pattern-with-star-inside": "GRA-006",
    "full-jid": "GRA-005",
    "one-hop": "GRA-001",
    "two-hops": "GRA-001",
    "no-budget": "GRA-015",
    "expired-within-tolerance": "GRA-023",
    "made-within-tolerance": "GRA-023",
    "last-hop": "GRA-016",
}
"""The requirement that each vector is about."""
VALID: Final[dict[str, tuple[str, Callable[[Chain], None]]]] = {}
INVALID: Final[dict[str, tuple[str, str, Callable[[Chain], None]]]] = {}


def valid(name: str, description: str) -> Callable[[Callable[[Chain], None]], None]:
    return lambda change: VALID.update({name: (description, change)})


def invalid(name: str, reason: str, description: str) -> Callable[[Callable[[Chain], None]], None]:
    return lambda change: INVALID.update({name: (reason, description, change)})


@valid("one-hop", "A grants B a skill for Alice, and B is asked for it.")
def _(chain: Chain) -> None:
    chain.of_one_hop()


@valid("two-hops", "B passes a part of it on to C.")
def _(chain: Chain) -> None:
    pass


@valid("no-budget", "Neither the grants nor the delegation have a budget.")
def _(chain: Chain) -> None:
    chain.of_root(budget=Budget())
    chain.of_child(budget=Budget())
    chain.usd = chain.tokens = None


@valid("expired-within-tolerance", "The grants have expired 30 seconds ago.")
def _(chain: Chain) -> None:
    chain.of_root(exp=NOW - 30, iat=NOW - 900)
    chain.of_child(exp=NOW - 30, iat=NOW - 900)


@valid("made-within-tolerance", "The clock of B is 30 seconds ahead.")
def _(chain: Chain) -> None:
    chain.of_child(iat=NOW + 30)


@valid("last-hop", "C must not pass it on: its grant has no key, and the depth 0.")
def _(chain: Chain) -> None:
    chain.of_child(depth=0, cnf=None)


@invalid("wider-skills", "wider-skills", "B grants a skill that it was not granted.")
def _(chain: Chain) -> None:
    chain.of_child(skills=("sources.search", "erase"))


@invalid("wider-pattern", "wider-skills", "B grants all skills for those that begin alike.")
def _(chain: Chain) -> None:
    chain.of_child(skills=("*",))


@invalid("other-skill", "skill-not-granted", "B asks for a skill that it does not grant itself.")
def _(chain: Chain) -> None:
    chain.skill = "sources.list"


@invalid("wrong-key-of-first", "wrong-key", "The first grant is signed with a key of B.")
def _(chain: Chain) -> None:
    chain.root_key = key_of(B)


@invalid("wrong-key-of-child", "wrong-key", "The second grant is signed with another key of B.")
def _(chain: Chain) -> None:
    chain.child_key = key_of("another key of B")


@invalid("changed-claims", "wrong-key", "The claims of the first grant were changed later.")
def _(chain: Chain) -> None:
    header, _, signature = chain.grants()[0].split(".")
    chain.of_root(budget=Budget(usd=Decimal(50), tokens=60_000))
    _, payload, _ = write_grant(chain.root, chain.root_key).split(".")
    first = f"{header}.{payload}.{signature}"
    child = msgspec.structs.replace(chain.child, par=digest(first))
    chain.written = [first, write_grant(child, chain.child_key)]


@invalid("later-expiry", "later-expiry", "The second grant lasts longer than the first.")
def _(chain: Chain) -> None:
    chain.of_child(exp=chain.root.exp + 1)


@invalid("deadline-after-expiry", "later-expiry", "The deadline is after the end of the grant.")
def _(chain: Chain) -> None:
    chain.deadline = chain.child.exp + 1


@invalid("no-deadline", "later-expiry", "The request has no deadline.")
def _(chain: Chain) -> None:
    chain.deadline = 0


@invalid("other-origin", "wrong-origin", "B uses the grant of Alice for Bob.")
def _(chain: Chain) -> None:
    chain.of_child(sub="bob@example.com")


@invalid("origin-of-delegation", "wrong-origin", "The delegation names Bob, the grants Alice.")
def _(chain: Chain) -> None:
    chain.origin = "bob@example.com"


@invalid("other-audience", "wrong-audience", "What B granted C is presented to another agent.")
def _(chain: Chain) -> None:
    chain.receiver = "archive@agent.example.org"


@invalid("replayed-by-another", "wrong-path", "An agent that overheard the grants presents them.")
def _(chain: Chain) -> None:
    chain.sender = "bot@agent.example.org"


@invalid("forged-path", "wrong-path", "The path has an agent that has granted nothing.")
def _(chain: Chain) -> None:
    chain.via = (A, "broker@agent.example.org", B)


@invalid("shortened-path", "wrong-path", "The path hides the first agent.")
def _(chain: Chain) -> None:
    chain.via = (B,)


@invalid(
    "issuer-without-grant", "wrong-path", "The second grant is not of the agent that was granted."
)
def _(chain: Chain) -> None:
    chain.of_child(iss="bot@agent.example.net")
    chain.via = (A, "bot@agent.example.net")
    chain.sender = "bot@agent.example.net"


@invalid("stale-parent", "wrong-parent", "The second grant belongs to an earlier first grant.")
def _(chain: Chain) -> None:
    earlier = msgspec.structs.replace(chain.root, jti="root-0")
    chain.parent = digest(write_grant(earlier, chain.root_key))


@invalid("parent-of-first", "wrong-parent", "The first grant is derived from one that is missing.")
def _(chain: Chain) -> None:
    chain.of_root(par=digest("missing"))


@invalid("larger-budget", "larger-budget", "B grants more dollars than it was granted.")
def _(chain: Chain) -> None:
    chain.of_child(budget=Budget(usd=Decimal("0.51"), tokens=20_000))


@invalid("budget-left-out", "larger-budget", "The second grant does not limit the tokens.")
def _(chain: Chain) -> None:
    chain.of_child(budget=Budget(usd=Decimal("0.20")))


@invalid("budget-of-delegation", "larger-budget", "The delegation has more tokens than its grant.")
def _(chain: Chain) -> None:
    chain.tokens = 20_001


@invalid(
    "budget-of-delegation-left-out", "larger-budget", "The delegation does not limit the dollars."
)
def _(chain: Chain) -> None:
    chain.usd = None


@invalid("too-deep", "too-deep", "B may not pass it on.")
def _(chain: Chain) -> None:
    chain.of_root(depth=0)
    chain.of_child(depth=0, cnf=None)


@invalid("depth-not-smaller", "too-deep", "The second grant is as deep as the first.")
def _(chain: Chain) -> None:
    chain.of_child(depth=2)


@invalid("no-key-for-child", "too-deep", "The first grant names no key for a second one.")
def _(chain: Chain) -> None:
    chain.of_root(cnf=None)


@invalid("expired", "expired", "The first grant expired 31 seconds ago, and with it the second.")
def _(chain: Chain) -> None:
    chain.of_root(exp=NOW - 31, iat=NOW - 900)
    chain.of_child(exp=NOW - 31, iat=NOW - 900)


@invalid("made-in-the-future", "not-yet-valid", "The second grant is 31 seconds early.")
def _(chain: Chain) -> None:
    chain.of_child(iat=NOW + 31)


@invalid("not-a-grant", "malformed", "The type in the header is that of a receipt.")
def _(chain: Chain) -> None:
    payload = msgspec.json.encode(chain.root)
    chain.written = [sign(chain.root_key, "fluux-receipt+jwt", payload), chain.grants()[1]]


@invalid("no-algorithm", "malformed", "The first grant has the algorithm none, and no signature.")
def _(chain: Chain) -> None:
    header = {"alg": "none", "kid": chain.root_key.public.kid, "typ": "fluux-grant+jwt"}
    parts = (msgspec.json.encode(header), msgspec.json.encode(chain.root), b"")
    chain.written = [".".join(map(base64url, parts)), chain.grants()[1]]


@invalid("pattern-with-star-inside", "malformed", "A pattern has its * elsewhere than at the end.")
def _(chain: Chain) -> None:
    chain.of_child(skills=("sources.*.search",))


@invalid("full-jid", "malformed", "The audience of the second grant is a full JID.")
def _(chain: Chain) -> None:
    chain.of_child(aud=f"{C}/1")


def delegation_of(vector: Vector) -> Delegation:
    """The delegation of a vector, with its grants."""
    given = vector.delegation
    usd = given.get("budget-usd")
    return Delegation(
        origin=JID.parse(given["origin"]),
        max_hops=given["max-hops"],
        budget_usd=None if usd is None else Decimal(usd),
        budget_tokens=given.get("budget-tokens"),
        via=tuple(map(JID.parse, given["via"])),
        grants=tuple(SignedGrant(jws=each) for each in vector.grants),
    )


def _vector(name: str, description: str, reason: str | None, chain: Chain) -> Vector:
    grants = chain.grants()
    claims = [_claims(each) for each in grants]
    given: dict[str, Any] = {"origin": chain.origin, "max-hops": chain.max_hops}
    given |= {} if chain.usd is None else {"budget-usd": str(chain.usd)}
    given |= {} if chain.tokens is None else {"budget-tokens": chain.tokens}
    made = Vector(
        name=name,
        description=description,
        requirement=RULES[name],
        now=NOW,
        valid=reason is None,
        reason=reason,
        published={
            agent: {key_of(agent).public.kid: msgspec.to_builtins(key_of(agent).public)}
            for agent in (A, B, C)
        },
        sender=chain.sender,
        receiver=chain.receiver,
        skill=chain.skill,
        deadline=claims[-1]["exp"] if chain.deadline is None else chain.deadline or None,
        delegation=given | {"via": list(chain.via)},
        xml="",
        grants=grants,
        claims=claims,
    )
    made.xml = encode(delegation_of(made))
    if reason is None:
        made.effective = made.claims[-1]
    return made


def _claims(compact: str) -> Any:
    payload = compact.split(".")[1]
    return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


def vectors() -> dict[str, str]:
    """The text of each file, by its name."""
    made = []
    for name, (description, change) in VALID.items():
        chain = Chain()
        change(chain)
        made.append(_vector(name, description, None, chain))
    for name, (reason, description, change) in INVALID.items():
        chain = Chain()
        change(chain)
        made.append(_vector(name, description, reason, chain))
    return as_files(made)


def as_files(made: Iterable[Any]) -> dict[str, str]:
    """The text of a file for each vector, by its name."""
    return {
        f"{one.name}.json": msgspec.json.format(msgspec.json.encode(one), indent=2).decode() + "\n"
        for one in made
    }


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write these files, in place of those that were in the folder."""
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.json"):
        path.unlink()
    for file, text in files.items():
        (folder / file).write_text(text, "utf-8")


if __name__ == "__main__":
    write(FOLDER, vectors())
