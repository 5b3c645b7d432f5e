"""The keys of our agents, and the grants that they have made: the tables, and every statement.

All instances share the keys. A key signs for `KEY_LIFETIME_MS`; then another one is made. The old
one stays published until the last grant that it has signed has ended, and can sign for as long as
grants of others name it.

Functions take the `Database` of one operation.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, Literal

import msgspec

from component import system
from component.grants import Budget, Grant, SigningKey, digest, smaller, write_grant
from component.grants.verification import TOLERANCE_S
from component.store.database import Database
from component.store.schema import Table
from component.store.tables import tells

KEY_LIFETIME_MS: Final = 30 * 86_400_000
_KEPT_MS: Final = 7 * 86_400_000
"""How long an old key can sign for grants of others, which have named it."""

TABLES: Final = (
    Table(
        name="agent_keys",
        columns="""
            agent TEXT {C} NOT NULL,
            kid TEXT {C} NOT NULL,
            x TEXT NOT NULL,
            d TEXT NOT NULL,
            created BIGINT NOT NULL,
            retired BIGINT,
            ends BIGINT NOT NULL,
            PRIMARY KEY (agent, kid)
        """,
        kept="the keys of our agents",
    ),
    Table(
        name="peer_grants",
        columns="""
            digest TEXT {C} PRIMARY KEY,
            id TEXT {C} NOT NULL UNIQUE,
            task TEXT NOT NULL REFERENCES tasks ON DELETE CASCADE,
            call TEXT {C} NOT NULL,
            issuer TEXT NOT NULL,
            subject TEXT NOT NULL,
            audience TEXT NOT NULL,
            skills TEXT NOT NULL,
            expires BIGINT NOT NULL,
            budget_usd TEXT,
            budget_tokens BIGINT,
            revoked BIGINT,
            cancels INTEGER NOT NULL DEFAULT 0
        """,
        indexes={"peer_grants_task": "(task)", "peer_grants_call": "(call)"},
        postgres=(
            tells(
                *("peer_grants", "UPDATE", "peer grants", "id"),
                when="OLD.revoked IS DISTINCT FROM NEW.revoked",
            ),
        ),
        kept="part of a task",
    ),
    Table(
        name="grant_shares",
        columns="""
            grant_digest TEXT {C} NOT NULL REFERENCES peer_grants (digest) ON DELETE CASCADE,
            child TEXT {C} NOT NULL,
            usd TEXT,
            tokens BIGINT,
            PRIMARY KEY (grant_digest, child)
        """,
        kept="part of a task",
    ),
)

USES: Final = Table(
    name="grant_uses",
    columns="""
        digest TEXT {C} PRIMARY KEY,
        request TEXT NOT NULL,
        expires BIGINT NOT NULL
    """,
    indexes={"grant_uses_expires": "(expires)"},
    kept="digests of grants of others, until they expire",
    is_work=False,
)

_MOST_SHARES: Final = 1000
"""The maximum number of grants for which a part of the budget of one is set aside."""


class StoredKey(msgspec.Struct, frozen=True):
    """A key of an agent. `created` and `retired` are in milliseconds since 1970; it is published
    until `ends`, if it is retired.
    """

    kid: str
    x: str
    d: str
    created: int
    retired: int | None = None
    ends: int = 0

    @property
    def key(self) -> SigningKey:
        """The key itself."""
        return SigningKey(x=self.x, d=self.d)


_KEY: Final = ", ".join(StoredKey.__struct_fields__)


def keys(database: Database, agent: str) -> Sequence[StoredKey]:
    """Return the published keys of an agent, the newest last."""
    found = database.execute(
        f"SELECT {_KEY} FROM agent_keys WHERE agent = ? AND (retired IS NULL OR ends > ?)"  # noqa: S608 - names
        " ORDER BY created, kid",
        (agent, database.now),
    ).fetchall()
    return [StoredKey(*row) for row in found]


def current_key(database: Database, agent: str, *, roll: bool = False) -> StoredKey:
    """Return the key that signs for an agent; make one if there is none, or the last one is old, or
    with `roll`.
    """
    row = database.execute(
        f"SELECT {_KEY} FROM agent_keys WHERE agent = ? AND retired IS NULL"  # noqa: S608 - names
        " ORDER BY created DESC, kid",
        (agent,),
    ).fetchone()
    now = database.now
    last = None if row is None else StoredKey(*row)
    if last is not None and not roll and now < last.created + KEY_LIFETIME_MS:
        return last
    key = SigningKey.of(system.token_bytes(32))
    made = StoredKey(key.public.kid, key.x, key.d, now)
    database.execute(
        "UPDATE agent_keys SET retired = ?, ends = CASE WHEN ends > ? THEN ends ELSE ? END"
        " WHERE agent = ? AND retired IS NULL",
        (now, now + _KEPT_MS, now + _KEPT_MS, agent),
    )
    database.execute(
        "DELETE FROM agent_keys WHERE agent = ? AND retired IS NOT NULL AND ends <= ?", (agent, now)
    )
    database.execute(
        f"INSERT INTO agent_keys (agent, {_KEY}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - names
        (agent, *msgspec.structs.astuple(made)),
    )
    return made


def key_named(database: Database, agent: str, kid: str) -> StoredKey | None:
    """Return a key of an agent by its name; None if there is none any more."""
    return next((one for one in keys(database, agent) if one.kid == kid), None)


class Issued(msgspec.Struct, frozen=True):
    """A grant that an agent of this service has made for a call. Instants are in milliseconds
    since 1970. `cancels` says that its revocation cancels the call, too.
    """

    digest: str
    id: str
    task: str
    call: str
    issuer: str
    subject: str
    audience: str
    skills: str
    expires: int
    budget_usd: str | None
    budget_tokens: int | None
    revoked: int | None = None
    cancels: int = 0

    @property
    def budget(self) -> Budget:
        """The most that the work may cost."""
        usd = None if self.budget_usd is None else Decimal(self.budget_usd)
        return Budget(usd=usd, tokens=self.budget_tokens)


_ISSUED: Final = ", ".join(Issued.__struct_fields__)


def issue(
    database: Database, grant: Grant, key: StoredKey, agent: str, call: str, task: str
) -> str:
    """Sign a grant for a call, and store it; return it in its compact form."""
    compact = write_grant(grant, key.key)
    usd, tokens = grant.budget.usd, grant.budget.tokens
    ends = (grant.exp + TOLERANCE_S) * 1000
    row = Issued(
        *(digest(compact), grant.jti, task, call, grant.iss, grant.sub, grant.aud),
        *(" ".join(grant.skills), grant.exp * 1000, None if usd is None else str(usd), tokens),
    )
    marks = ", ".join("?" * len(Issued.__struct_fields__))
    database.execute(
        f"INSERT INTO peer_grants ({_ISSUED}) VALUES ({marks})",  # noqa: S608 - names
        msgspec.structs.astuple(row),
    )
    database.execute(
        "UPDATE agent_keys SET ends = CASE WHEN ends > ? THEN ends ELSE ? END"
        " WHERE agent = ? AND kid = ?",
        (ends, ends, agent, key.kid),
    )
    return compact


def issued(database: Database, limit: int = 100) -> Sequence[Issued]:
    """Return the latest grants."""
    found = database.execute(
        f"SELECT {_ISSUED} FROM peer_grants ORDER BY expires DESC, digest LIMIT ?",  # noqa: S608 - names
        (limit,),
    ).fetchall()
    return [Issued(*row) for row in found]


State = Literal["active", "ended", "revoked"]


_OPEN: Final = ("accepted", "running", "input-required")
"""The states of tasks that still want what they have started."""
_DEEPEST: Final = 16


def state_of(database: Database, digest_: str) -> tuple[Issued, State] | None:
    """Return a grant and its state by its digest; None if there is none.

    It ends with its call, and when its task, or one that has started it, ends or is cancelled.
    """
    row = database.execute(
        f"SELECT {', '.join(f'g.{name}' for name in Issued.__struct_fields__)}, c.state"  # noqa: S608 - names
        " FROM peer_grants g LEFT JOIN peer_calls c ON c.id = g.call WHERE g.digest = ?",
        (digest_,),
    ).fetchone()
    if row is None:
        return None
    *values, call = row
    found = Issued(*values)
    if found.revoked is not None:
        return found, "revoked"
    is_alive = call != "ended" and found.expires > database.now
    return found, "active" if is_alive and _is_wanted(database, found.task) else "ended"


def _is_wanted(database: Database, task: str | None) -> bool:
    """Return whether neither a task nor one that has started it has ended or is cancelled."""
    for _ in range(_DEEPEST):
        if task is None:
            return True
        row = database.execute("SELECT state, parent FROM tasks WHERE id = ?", (task,)).fetchone()
        if row is None or row[0] not in _OPEN:
            return False
        task = row[1]
    return False


def left(database: Database, grant: Issued, beside: str = "") -> Budget:
    """Return what is left of the budget of a grant beside what is set aside for grants that follow
    from it, the one with the digest `beside` excepted.
    """
    found = database.execute(
        "SELECT usd, tokens FROM grant_shares WHERE grant_digest = ? AND child <> ?",
        (grant.digest, beside),
    ).fetchall()
    usd, tokens = grant.budget.usd, grant.budget.tokens
    taken = sum((Decimal(row[0]) for row in found if row[0] is not None), Decimal(0))
    return Budget(
        usd=None if usd is None else max(Decimal(0), usd - taken),
        tokens=None if tokens is None else max(0, tokens - sum(row[1] or 0 for row in found)),
    )


def set_aside(database: Database, grant: Issued, child: str, wanted: Budget) -> Budget:
    """Set aside a part of the budget of a grant for one that follows from it, in place of what was
    set aside for that before; return how much. Without a limit in `wanted`, that is what is left.
    """
    locked = " FOR UPDATE" if database.dialect == "postgresql" else ""
    database.execute(f"SELECT 1 FROM peer_grants WHERE digest = ?{locked}", (grant.digest,))  # noqa: S608 - constant texts
    rest = left(database, grant, child)
    part = Budget(usd=smaller(rest.usd, wanted.usd), tokens=smaller(rest.tokens, wanted.tokens))
    values = None if part.usd is None else str(part.usd), part.tokens
    changed = database.execute(
        "UPDATE grant_shares SET usd = ?, tokens = ? WHERE grant_digest = ? AND child = ?",
        (*values, grant.digest, child),
    )
    if changed.rowcount:
        return part
    (count,) = database.execute(
        "SELECT count(*) FROM grant_shares WHERE grant_digest = ?", (grant.digest,)
    ).fetchone() or (0,)
    if count >= _MOST_SHARES:
        return Budget(usd=Decimal(0), tokens=0)
    database.execute(
        "INSERT INTO grant_shares (grant_digest, child, usd, tokens) VALUES (?, ?, ?, ?)",
        (grant.digest, child, *values),
    )
    return part


def use(database: Database, digest_: str, request: str, exp: int) -> bool:
    """Note that a request came with a grant of another agent, which ends at `exp`; return False if
    another one came with it before.
    """
    database.execute("DELETE FROM grant_uses WHERE expires < ?", (database.now,))
    database.execute(
        "INSERT INTO grant_uses (digest, request, expires) VALUES (?, ?, ?)"
        " ON CONFLICT (digest) DO NOTHING",
        (digest_, request, (exp + 2 * TOLERANCE_S) * 1000),
    )
    row = database.execute("SELECT request FROM grant_uses WHERE digest = ?", (digest_,)).fetchone()
    return row is not None and row[0] == request


def is_used(database: Database, digest_: str) -> bool:
    """Return whether a request came with a grant of another agent, and a budget was set aside."""
    row = database.execute("SELECT 1 FROM grant_uses WHERE digest = ?", (digest_,)).fetchone()
    return row is not None


def revoke(database: Database, grant: str, *, cancels: bool = True) -> bool:
    """Revoke a grant by its identifier, and cancel its call if wanted; return whether there is
    one.
    """
    changed = database.execute(
        "UPDATE peer_grants SET revoked = COALESCE(revoked, ?),"
        " cancels = CASE WHEN cancels = 1 THEN 1 ELSE ? END WHERE id = ?",
        (database.now, int(cancels), grant),
    )
    return changed.rowcount > 0


def is_stopped(database: Database, call: str) -> bool:
    """Return whether a call is to be cancelled, because its grant was revoked."""
    row = database.execute(
        "SELECT 1 FROM peer_grants WHERE call = ? AND cancels = 1 LIMIT 1", (call,)
    ).fetchone()
    return row is not None
