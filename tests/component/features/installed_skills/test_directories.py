"""Skills of directories: inert until approved, unchanged until approved again, gone if revoked."""

import functools
import os
from pathlib import Path

import anyio
import pytest

from component.app.schema import SCHEMA
from component.features.installed_skills.commands import InstalledError
from component.skills import Registry, SkillUnavailable, skill
from component.store import Storage
from component.store.shared import SharedChanges
from tests.component.features.installed_skills.world import Endless, install, opened, run
from tests.overtaking import overtake
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.ports]
ADMIN = "admin@example.com"


async def test_a_skill_is_offered_once_an_admin_approves_it(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root, capabilities='network = ["https://api.example.com"]')
    async with opened(storage, root) as world:
        (found,) = await world.directories.list()
        assert (found.name, found.state) == ("greet", "waiting")
        assert world.names() == ()
        sheet = await world.directories.approve("greet", ADMIN, trusted=True)
        assert sheet.state == "offered"
        assert sheet.capabilities == ("connect to https://api.example.com:443",)
        assert ADMIN in sheet.approved
        assert await world.says() == "Hello Romeo"
        skill = world.registry.get("greet")
        assert skill is not None
        assert skill.capabilities == ("network:api.example.com:443:https",)
        assert skill.annotations.read_only
        approved = world.events[-1]
        assert (approved.kind, approved.outcome) == ("capability", "approved")
        assert (approved.principal, approved.subject) == (ADMIN, "greet")


async def test_a_skill_is_offered_although_an_older_reading_arrives_after_its_approval(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root)
    async with opened(storage, root) as world:
        reload = functools.partial(world.directories.reload, None)
        approve = functools.partial(world.directories.approve, "greet", ADMIN, trusted=True)
        await overtake(storage, reload, approve, world.directories._loading)
        assert await world.says() == "Hello Romeo"


async def test_an_approval_outlives_a_restart(storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "skills"
    install(root)
    async with opened(storage, root) as world:
        await world.directories.approve("greet", ADMIN, trusted=True)
    async with opened(storage, root, rest_s=1000) as world:
        assert world.names() == ("greet",)
        assert await world.says() == "Hello Romeo"


async def test_changed_files_wait_for_an_approval_while_the_approved_ones_are_offered(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root)
    async with opened(storage, root) as world:
        first = await world.directories.approve("greet", ADMIN, trusted=True)
        install(root, word="Bye", capabilities='memory_read = ["skill"]')
        (found,) = await world.directories.list()
        assert found.state == "changed"
        assert await world.says() == "Hello Romeo"
        sheet = await world.directories.show("greet")
        assert (sheet.added, sheet.removed) == (("read its own memories of its caller",), ())
        with pytest.raises(InstalledError, match="has changed"):
            await world.directories.approve("greet", ADMIN, digest=first.digest, trusted=True)
        await world.directories.approve("greet", ADMIN, digest=sheet.digest[:8], trusted=True)
        assert await world.says() == "Bye Romeo"


async def test_a_revoked_skill_is_gone_with_its_calls(storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "skills"
    install(root)
    runner = Endless()
    ended = list[str]()
    async with opened(storage, root, runner=runner) as world:
        await world.directories.approve("greet", ADMIN)
        skill = world.registry.get("greet")
        assert skill is not None
        assert skill.granted is not None

        async def calls() -> None:
            with pytest.raises(SkillUnavailable, match="revoked") as error:
                await run(skill, who="Romeo")
            ended.append(str(error.value))

        async with anyio.create_task_group() as group:
            group.start_soon(calls)
            await runner.begun.wait()
            sheet = await world.directories.revoke("greet", ADMIN)
        assert ended
        assert runner.stopped == 1
        assert sheet.state == "revoked"
        assert world.names() == ()
        assert skill.granted() == ()
        with pytest.raises(SkillUnavailable, match="revoked") as refused:
            await run(skill, who="Romeo")
        assert not refused.value.begun
    async with opened(storage, root, runner=runner) as world:
        assert world.names() == ()


async def test_an_approval_is_revoked_once(storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "skills"
    install(root)
    async with opened(storage, root) as world:
        with pytest.raises(InstalledError, match="No skill called 'greet' is approved"):
            await world.directories.revoke("greet", ADMIN)
        await world.directories.approve("greet", ADMIN)
        assert ADMIN in (await world.directories.revoke("greet", ADMIN)).revoked
        with pytest.raises(InstalledError, match="No skill called 'greet' is approved"):
            await world.directories.revoke("greet", "other@example.com")
        sheet = await world.directories.show("greet")
        assert ADMIN in sheet.revoked
        assert sheet.reason == f"its approval was revoked by {ADMIN}"


async def test_a_call_ends_with_the_version_that_it_began_with(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root)
    runner = Endless()
    async with opened(storage, root, runner=runner) as world:
        first = await world.directories.approve("greet", ADMIN)
        results = list[str]()

        async def calls() -> None:
            results.append(await world.says())

        async with anyio.create_task_group() as group:
            group.start_soon(calls)
            await runner.begun.wait()
            install(root, word="Bye")
            second = await world.directories.approve("greet", ADMIN)
            assert runner.forgotten == [first.digest]
            runner.ends.set()
        assert results == [first.digest]
        assert await world.says() == second.digest


async def test_a_manifest_that_cannot_be_read_leaves_the_approved_version(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    directory = install(root)
    async with opened(storage, root) as world:
        await world.directories.approve("greet", ADMIN, trusted=True)
        (directory / "skill.toml").write_text("[skill]\nnam = 3")
        (found,) = await world.directories.list()
        assert found.name == "greet"
        assert found.state == "changed"
        assert "did you mean name?" in found.reason
        assert await world.says() == "Hello Romeo"


async def test_files_of_the_service_that_were_tampered_with_do_not_run(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root)
    async with opened(storage, root) as world:
        sheet = await world.directories.approve("greet", ADMIN, trusted=True)
        install(root, word="Bye")
    copy = storage.directory / "approved-skills" / sheet.digest / "main.py"
    copy.write_text(copy.read_text().replace("Hello", "Evil"))
    async with opened(storage, root, rest_s=1000) as world:
        with pytest.raises(SkillUnavailable, match="were changed"):
            await world.says()


async def test_the_settings_can_approve_every_version(storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "skills"
    install(root)
    async with opened(storage, root, auto_approve="trusted") as world:
        assert await world.says() == "Hello Romeo"
        install(root, word="Bye")
        await world.directories.look()
        assert await world.says() == "Bye Romeo"
        install(root, code="import nothing_of_that_name")
        await world.directories.look()
        assert await world.says() == "Bye Romeo"
        (found,) = await world.directories.list()
        assert "nothing_of_that_name" in found.reason


def copies(data: Path) -> set[str]:
    return {path.name for path in (data / "approved-skills").iterdir()}


async def test_a_copy_is_deleted_when_no_approval_and_no_call_needs_it(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root)
    runner = Endless()
    async with opened(storage, root, runner=runner) as world:
        first = await world.directories.approve("greet", ADMIN)
        waits = world.registry.get("greet")  # a call in a queue has its skill
        results = list[str]()

        async def calls() -> None:
            results.append(await world.says())

        async with anyio.create_task_group() as group:
            group.start_soon(calls)
            await runner.begun.wait()
            install(root, word="Bye")
            second = await world.directories.approve("greet", ADMIN)
            assert copies(storage.directory) == {first.digest, second.digest}
            runner.ends.set()
        await world.directories.look()
        assert copies(storage.directory) == {first.digest, second.digest}
        assert waits is not None
        result = await run(waits, who="Romeo")
        assert result.outputs[0].text == first.digest
        waits = None
        await world.directories.look()
        assert copies(storage.directory) == {second.digest}
        await world.directories.revoke("greet", ADMIN)
        assert copies(storage.directory) == set()
        await world.directories.approve("greet", ADMIN)
        assert copies(storage.directory) == {second.digest}
        assert await world.says() == second.digest


async def test_a_start_deletes_what_an_earlier_run_has_left(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root)
    async with opened(storage, root) as world:
        sheet = await world.directories.approve("greet", ADMIN, trusted=True)
    for left in ("0" * 64, "new-left"):
        directory = storage.directory / "approved-skills" / left
        directory.mkdir()
        os.utime(directory, (0, 0))
    async with opened(storage, root) as world:
        await world.directories.look()
        assert copies(storage.directory) == {sheet.digest}
        assert await world.says() == "Hello Romeo"


async def test_a_new_database_deletes_nothing_that_the_next_one_needs(tmp_path: Path) -> None:
    root = tmp_path / "skills"
    install(root)
    async with (
        Storage.open(SCHEMA, tmp_path / "first") as storage,
        opened(storage, root) as world,
    ):
        await world.directories.approve("greet", ADMIN, trusted=True)
    install(root, word="Bye")
    async with (
        Storage.open(SCHEMA, tmp_path / "second") as storage,
        opened(storage, root) as world,
    ):
        await world.directories.look()
        assert world.registry.get("greet") is None
    async with (
        Storage.open(SCHEMA, tmp_path / "first") as storage,
        opened(storage, root) as world,
    ):
        await world.directories.look()
        assert await world.says() == "Hello Romeo"


async def test_a_skill_whose_name_another_source_has_is_not_offered_and_says_so(
    storage: Storage, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root)

    @skill(name="greet")
    def other() -> str:
        """Greet otherwise."""
        return "other"

    registry = Registry()
    registry.offer("elsewhere", [other])
    async with opened(storage, root, registry=registry) as world:
        sheet = await world.directories.approve("greet", ADMIN, trusted=True)
        assert sheet.state == "failed"
        assert "Two skills are named greet" in sheet.reason
        (listed,) = await world.directories.list()
        assert (listed.state, listed.reason) == (sheet.state, sheet.reason)
        assert registry.get("greet") is other
        registry.offer("elsewhere", [])
        (listed,) = await world.directories.list()
        assert (listed.state, listed.reason) == ("offered", "")
        assert await world.says() == "Hello Romeo"


async def test_a_revocation_on_one_instance_ends_calls_on_the_other(
    postgres_url: str, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root)
    runner = Endless()
    async with (
        Storage.open(SCHEMA, tmp_path / "one", postgres=postgres_url) as one,
        Storage.open(SCHEMA, tmp_path / "two", postgres=postgres_url) as two,
        opened(one, root, runner=runner) as first,
        opened(two, root, runner=runner) as second,
        anyio.create_task_group() as group,
    ):
        for storage, world in ((one, first), (two, second)):
            changes = SharedChanges(storage)
            changes.register("skills", world.directories.reload)
            await group.start(changes.run)
        await first.directories.approve("greet", ADMIN)
        await eventually(lambda: second.names() == ("greet",))
        begun = second.registry.get("greet")
        assert begun is not None

        async def call_ends() -> None:
            with pytest.raises(SkillUnavailable, match="revoked"):
                await run(begun, who="Romeo")

        async with anyio.create_task_group() as calls:
            calls.start_soon(call_ends)
            await runner.begun.wait()
            await first.directories.revoke("greet", ADMIN)
        await eventually(lambda: second.names() == ())
        assert begun.granted is not None
        assert begun.granted() == ()
        await first.directories.approve("greet", ADMIN)
        await eventually(lambda: second.names() == ("greet",))
        group.cancel_scope.cancel()
