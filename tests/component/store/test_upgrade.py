"""Upgrades of the database: rehearsed, with a backup, and undone."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from component.app.schema import SCHEMA
from component.store import OutdatedError, Storage, StorageError, postgres_upgrade, sqlite_upgrade
from component.store.schema import FIRST, Migration, Schema, Table
from component.store.upgrade import rehearse, roll_back, upgrade

pytestmark = pytest.mark.anyio

ROOMS = Table(name="rooms", columns="name TEXT {C} PRIMARY KEY")
PLACES = "id {id}, room TEXT {{C}} NOT NULL REFERENCES rooms (name), seats INTEGER NOT NULL"
SEATS = (
    (
        "CREATE FUNCTION check_seats() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.seats := abs(NEW.seats); RETURN NEW; END $$"
    ),
    "CREATE TRIGGER seats_checked BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION check_seats()",
)
CLOCK = Table(name="beats", columns="at INTEGER NOT NULL", has_rowid=True, is_work=False)
PRIORITY = "priority INTEGER NOT NULL DEFAULT 0"
ADDS = Migration(
    about="adds the priority of places",
    statements=(
        f"ALTER TABLE places ADD COLUMN {PRIORITY}",
        "CREATE INDEX by_p ON places (priority)",
    ),
)


class Site(NamedTuple):
    """A data directory, and its PostgreSQL database if it has one."""

    directory: Path
    postgres: str

    @property
    def dialect(self) -> str:
        return "postgresql" if self.postgres else "sqlite"

    def places(self, extra: str = "", *, priority: bool = False) -> Table:
        key = (
            "INTEGER PRIMARY KEY"
            if not self.postgres
            else ("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
        )
        columns = PLACES.format(id=key) + (f", {PRIORITY}" if priority else "") + extra
        return Table(
            name="places",
            columns=columns,
            indexes={"by_room": "(room)", **({"by_p": "(priority)"} if priority else {})},
            has_rowid=True,
            postgres=tuple(each.replace("{}", "places") for each in SEATS),
        )

    @property
    def older(self) -> Schema:
        return Schema([*WRITERS, ROOMS, self.places(), CLOCK])

    @property
    def newer(self) -> Schema:
        return Schema([*WRITERS, ROOMS, self.places(priority=True), CLOCK], [ADDS])

    async def make(self) -> None:
        """Make the database of the older release, with a room and two places."""
        async with Storage.open(self.older, self.directory, postgres=self.postgres) as storage:
            await storage.change("INSERT INTO rooms VALUES ('hall')")
            for seats in (2, 4):
                await storage.change(
                    "INSERT INTO places (room, seats) VALUES ('hall', ?)", (seats,)
                )

    def rows(self, sql: str) -> list[Any]:
        if self.postgres:
            with psycopg.connect(self.postgres) as connection:
                return connection.execute(sql).fetchall()
        with closing(sqlite3.connect(self.directory / "agent.db")) as connection:
            return connection.execute(sql).fetchall()

    def change(self, sql: str) -> None:
        if self.postgres:
            with psycopg.connect(self.postgres) as connection:
                connection.execute(sql)
        else:
            with closing(sqlite3.connect(self.directory / "agent.db")) as connection:
                connection.execute(sql)
                connection.commit()

    def schemas(self) -> set[str]:
        """The schemas beside that of the service; the directories on SQLite."""
        if not self.postgres:
            return {each.name for each in self.directory.iterdir() if each.is_dir()}
        found = self.rows("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'public_%'")
        return {name.removeprefix("public_").replace("_", "-") for (name,) in found}


# The storage itself uses these.
WRITERS = tuple(
    each for each in SCHEMA.tables if each.name in ("clock", "shared_changes", "writers")
)


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    shared = request.param == "postgresql"
    return Site(tmp_path, request.getfixturevalue("postgres_url") if shared else "")


def version_of(site: Site) -> int:
    sql = "SELECT version FROM versions" if site.postgres else "PRAGMA user_version"
    return int(site.rows(sql)[0][0])


async def test_a_service_upgrades_the_database_of_an_older_release_when_it_starts(
    site: Site,
) -> None:
    await site.make()
    async with Storage.open(
        site.newer, site.directory, postgres=site.postgres, upgrade=True
    ) as storage:
        rows = await storage.select("SELECT id, seats, priority FROM places ORDER BY id")
        assert rows == [(1, 2, 0), (2, 4, 0)]
    assert version_of(site) == FIRST + 1
    assert site.schemas() == {"before-upgrade"}


async def test_other_programs_do_not_upgrade_it(site: Site) -> None:
    await site.make()
    with pytest.raises(OutdatedError, match=f"of version {FIRST}, and this release uses version"):
        async with Storage.open(site.newer, site.directory, postgres=site.postgres):
            pass
    assert version_of(site) == FIRST


async def test_an_older_release_refuses_the_database_of_a_newer_one(site: Site) -> None:
    await site.make()
    upgrade(site.newer, site.directory, site.postgres)
    with pytest.raises(StorageError, match=r"written by a newer release.*xmpp-agent rollback"):
        async with Storage.open(site.older, site.directory, postgres=site.postgres, upgrade=True):
            pass


async def test_an_upgrade_that_is_undone_leaves_what_was_there(site: Site) -> None:
    await site.make()
    made = upgrade(site.newer, site.directory, site.postgres)
    assert made is not None
    assert (made.before, made.after) == (FIRST, FIRST + 1)
    assert roll_back(site.directory, site.postgres) == made
    assert version_of(site) == FIRST
    assert site.schemas() == set()
    # Keys, triggers and the numbers of rows are those of before.
    async with Storage.open(site.older, site.directory, postgres=site.postgres) as storage:
        await storage.change("INSERT INTO places (room, seats) VALUES ('hall', -6)")
        rows = await storage.select("SELECT id, seats FROM places ORDER BY id")
        assert rows == [(1, 2), (2, 4), (3, 6 if site.postgres else -6)]
    # It can be done and undone again.
    upgrade(site.newer, site.directory, site.postgres)
    roll_back(site.directory, site.postgres)


async def test_work_that_was_accepted_since_the_upgrade_is_not_lost_unasked(site: Site) -> None:
    await site.make()
    upgrade(site.newer, site.directory, site.postgres)
    site.change("INSERT INTO places (room, seats, priority) VALUES ('hall', 8, 1)")
    with pytest.raises(StorageError, match=r"places \(1 more rows\).*--discard-newer"):
        roll_back(site.directory, site.postgres)
    assert version_of(site) == FIRST + 1
    assert len(site.rows("SELECT * FROM places")) == 3
    roll_back(site.directory, site.postgres, discard_newer=True)
    assert len(site.rows("SELECT * FROM places")) == 2
    assert site.schemas() == {"discarded"}
    if site.postgres:
        assert len(site.rows("SELECT * FROM public_discarded.places")) == 3
    else:
        with closing(sqlite3.connect(site.directory / "discarded" / "agent.db")) as newer:
            assert newer.execute("SELECT count(*) FROM places").fetchone() == (3,)


async def test_a_row_that_changed_is_work_too_but_not_one_about_processes(site: Site) -> None:
    await site.make()
    upgrade(site.newer, site.directory, site.postgres)
    site.change("INSERT INTO beats VALUES (1)")
    site.change("UPDATE places SET seats = 5 WHERE id = 1")
    with pytest.raises(StorageError, match=r"tables places \(changed\)\."):
        roll_back(site.directory, site.postgres)
    site.change("UPDATE places SET seats = 2 WHERE id = 1")
    roll_back(site.directory, site.postgres)


@pytest.mark.parametrize(
    ("migration", "reason"),
    [
        (("ALTER TABLE places ADD COLUMN other INTEGER",), "the tables would have .*other"),
        (("ALTER TABLE nowhere ADD COLUMN other INTEGER",), "nowhere"),
        (
            (*ADDS.statements, "INSERT INTO places (room, seats) VALUES ('nowhere', 1)"),
            "a row refers to one that does not exist|violates foreign key",
        ),
        ((ADDS.statements[0],), "by_p"),
    ],
)
async def test_a_migration_that_fails_its_rehearsal_changes_nothing(
    site: Site, migration: tuple[str, ...], reason: str
) -> None:
    await site.make()
    broken = Schema(site.newer.tables[1:], [Migration(about="breaks", statements=migration)])
    with pytest.raises(StorageError, match=f"cannot be upgraded.*({reason}).*Nothing was changed"):
        upgrade(broken, site.directory, site.postgres)
    assert version_of(site) == FIRST
    async with Storage.open(site.older, site.directory, postgres=site.postgres):
        pass


async def test_a_rehearsal_runs_beside_a_service_and_changes_nothing(site: Site) -> None:
    await site.make()
    async with Storage.open(site.older, site.directory, postgres=site.postgres) as storage:
        assert rehearse(site.newer, site.directory, site.postgres) == FIRST
        await storage.change("INSERT INTO places (room, seats) VALUES ('hall', 1)")
    assert site.schemas() == set()
    assert rehearse(site.older, site.directory, site.postgres) is None
    assert upgrade(site.older, site.directory, site.postgres) is None


async def test_a_database_in_use_is_neither_upgraded_nor_put_back(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await site.make()
    # On PostgreSQL an instance has a directory of its own.
    elsewhere = tmp_path_factory.mktemp("elsewhere") if site.postgres else site.directory
    async with Storage.open(site.older, site.directory, postgres=site.postgres):
        with pytest.raises(StorageError, match="is in use by"):
            upgrade(site.newer, elsewhere, site.postgres)
        with pytest.raises(StorageError, match=r"is in use by"):
            roll_back(elsewhere, site.postgres)
    assert upgrade(site.newer, elsewhere, site.postgres) is not None


async def test_an_instance_that_comes_back_after_an_upgrade_changes_nothing(
    postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = Site(tmp_path_factory.mktemp("first"), postgres_url)
    await site.make()
    async with Storage.open(site.older, site.directory, postgres=postgres_url) as storage:
        # Its connections break.
        site.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        upgrade(site.newer, tmp_path_factory.mktemp("second"), postgres_url)
        with pytest.raises(StorageError, match="another instance has upgraded it"):
            await storage.change("INSERT INTO rooms VALUES ('kitchen')")
    assert site.rows("SELECT name FROM rooms") == [("hall",)]


async def test_there_is_nothing_to_undo(site: Site) -> None:
    await site.make()
    with pytest.raises(StorageError, match="There is no upgrade to undo"):
        roll_back(site.directory, site.postgres)
    assert upgrade(site.newer, site.directory, site.postgres) is not None
    roll_back(site.directory, site.postgres)
    with pytest.raises(StorageError, match="There is no upgrade to undo"):
        roll_back(site.directory, site.postgres)


async def test_an_upgrade_that_is_killed_is_done_by_the_next_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_args: object) -> None:
        raise Killed

    module = postgres_upgrade if site.postgres else sqlite_upgrade
    await site.make()
    migrate = module._migrate
    calls: list[object] = []

    def dies_after_the_rehearsal(*args: Any) -> None:
        calls.append(args)
        migrate(*args) if len(calls) == 1 else killed()

    monkeypatch.setattr(module, "_migrate", dies_after_the_rehearsal)
    with pytest.raises(Killed):
        upgrade(site.newer, site.directory, site.postgres)
    assert version_of(site) == FIRST
    with pytest.raises(StorageError, match="no upgrade to undo"):
        roll_back(site.directory, site.postgres)
    monkeypatch.setattr(module, "_migrate", migrate)
    assert upgrade(site.newer, site.directory, site.postgres) is not None
    roll_back(site.directory, site.postgres)


async def test_the_whole_schema_is_copied_upgraded_and_put_back(site: Site) -> None:
    async with Storage.open(SCHEMA, site.directory, postgres=site.postgres) as storage:
        await storage.change("INSERT INTO switches VALUES ('paused', 1, 2)")
    before = structure(site)
    extra = Table(name="extra", columns="name TEXT {C} PRIMARY KEY")
    newer = Schema(
        (*SCHEMA.tables[1:], extra),
        (
            *SCHEMA.migrations,
            Migration(
                about="adds extras",
                sqlite=(extra.statement("sqlite"),),
                postgres=(extra.statement("postgresql"),),
            ),
        ),
    )
    async with Storage.open(newer, site.directory, postgres=site.postgres, upgrade=True) as storage:
        await storage.change("INSERT INTO extra VALUES ('one')")
    with pytest.raises(StorageError, match=r"tables extra \(1 more rows\)\."):
        roll_back(site.directory, site.postgres)
    roll_back(site.directory, site.postgres, discard_newer=True)
    assert structure(site) == before
    assert site.rows("SELECT name, value FROM switches") == [("paused", 1)]
    async with Storage.open(SCHEMA, site.directory, postgres=site.postgres) as storage:
        await storage.change("DELETE FROM switches")


def structure(site: Site) -> set[str]:
    if site.postgres:
        with psycopg.connect(site.postgres) as connection:
            return postgres_upgrade._structure(connection)
    with closing(sqlite3.connect(site.directory / "agent.db")) as connection:
        return sqlite_upgrade._structure(connection)
