"""The record of a running service: on disk soon, never lost in silence, never broken by a crash."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from component.app.schema import SCHEMA
from component.audit import record
from component.audit.files import files_in
from component.audit.heads import heads_in
from component.audit.lines import ChainLink, Line, read_line
from component.audit.protocol import AuditEvent
from component.audit.record import Audit
from component.audit.verify import Verification, verify
from component.config.service import Audit as AuditSettings
from component.store import Storage, StorageError
from tests.profiles import THOROUGH
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


def event(subject: str = "echo") -> AuditEvent:
    return AuditEvent(
        kind="execute", outcome="done", principal="juliet@example.com", subject=subject
    )


@asynccontextmanager
async def running(path: Path, options: AuditSettings = AuditSettings()) -> AsyncIterator[Audit]:  # noqa: B008
    async with (
        Storage.open(SCHEMA, path) as storage,
        Audit.open(storage, options) as audit,
        anyio.create_task_group() as group,
    ):
        await group.start(audit.run)
        yield audit
        group.cancel_scope.cancel()


async def verdict(path: Path) -> Verification:
    """As `xmpp-agent audit verify` comes to it: with what the database knows."""
    async with Storage.open(SCHEMA, path) as storage:
        _, heads = await storage.read(heads_in)
    return verify(path / "audit", [head.link for head in heads])


def lines(path: Path) -> list[Line]:
    found = [
        read_line(raw)
        for file in files_in(path / "audit")
        for raw in file.read_bytes().splitlines()
    ]
    return [sealed.line for sealed in found if sealed is not None]


async def test_what_was_recorded_is_on_disk_once_settled(tmp_path: Path) -> None:
    async with running(tmp_path) as audit:
        audit.record(event("one"))
        audit.record(event("two"))
        await audit.settled()
        assert [line.subject for line in lines(tmp_path)[1:]] == ["one", "two"]
        assert audit.figures.waiting == 0
    kinds = [(line.kind, line.outcome) for line in lines(tmp_path)]
    assert kinds[0] == ("record", "opened")
    assert kinds[-1] == ("record", "closed")
    assert (await verdict(tmp_path)).whole


async def test_only_the_owner_can_read_the_audit_log(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700
    assert files_in(tmp_path / "audit")[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.ports
async def test_many_settle_at_once_and_the_order_is_that_of_recording(tmp_path: Path) -> None:
    async with running(tmp_path) as audit, anyio.create_task_group() as group:

        async def one(number: int) -> None:
            audit.record(event(str(number)))
            await audit.settled()
            assert any(line.subject == str(number) for line in lines(tmp_path))

        for number in range(20):
            group.start_soon(one, number)
    subjects = [int(line.subject) for line in lines(tmp_path) if line.kind == "execute"]
    assert sorted(subjects) == list(range(20))


async def test_the_chain_goes_on_over_lives(tmp_path: Path) -> None:
    for life in range(3):
        async with running(tmp_path) as audit:
            audit.record(event(str(life)))
    assert (await verdict(tmp_path)).whole
    said = [line.detail for line in lines(tmp_path) if line.outcome == "opened"]
    assert "nothing was recorded before" in said[0]
    assert not any("did not shut down cleanly" in each for each in said)


async def test_files_are_begun_by_size_and_the_chain_goes_on(tmp_path: Path) -> None:
    options = AuditSettings.model_construct(max_file_bytes=2000)
    async with running(tmp_path, options) as audit:
        for number in range(30):
            audit.record(event(str(number)))
            await audit.settled()
    assert len(files_in(tmp_path / "audit")) > 3
    assert all(file.stat().st_size <= 2000 for file in files_in(tmp_path / "audit"))
    assert (await verdict(tmp_path)).whole


async def test_a_file_is_begun_each_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_790_000_000 * 10**9
    monkeypatch.setattr("component.audit.record.time_ns", lambda: now)
    async with running(tmp_path) as audit:
        await audit.settled()
        now += 86_400 * 10**9
        audit.record(event())
    assert len(files_in(tmp_path / "audit")) == 2


async def test_what_is_too_old_is_removed_and_that_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000 * 10**9
    monkeypatch.setattr("component.audit.record.time_ns", lambda: now)
    options = AuditSettings(keep_days=2)
    for _ in range(5):
        async with running(tmp_path, options) as audit:
            audit.record(event())
        now += 86_400 * 10**9
    async with running(tmp_path, options) as audit:
        await eventually(lambda: len(files_in(tmp_path / "audit")) <= 4)  # at work beside
        await audit.settled()
    found = await verdict(tmp_path)
    assert found.whole
    assert found.first > 1
    assert "removed by keep_days" in found.notes[0]


async def test_a_clock_that_jumps_ahead_removes_no_file_of_the_audit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, day = time.time_ns(), 86_400 * 10**9
    monkeypatch.setattr("component.audit.record.time_ns", lambda: now)
    options = AuditSettings(keep_days=2)
    for _ in range(3):
        async with running(tmp_path, options) as audit:
            audit.record(event())
        now += day  # the other clock is still at the first day
    for _ in range(2):
        now += 400 * day
        async with running(tmp_path, options) as audit:
            audit.record(event())
            await audit.settled()
    found = await verdict(tmp_path)
    assert found.whole
    assert found.first == 1


@pytest.mark.ports
async def test_a_tail_that_is_cut_off_between_lives_is_found_by_the_database(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as audit:
        for number in range(5):
            audit.record(event(str(number)))
    file = files_in(tmp_path / "audit")[0]
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:3]))
    found = await verdict(tmp_path)
    assert [each.what for each in found.findings] == ["cut off"]
    assert "lines 4 to 7 are missing" in found.findings[0].sentence
    # The next life goes on, and the hole stays to be seen: the numbers are not given again.
    async with running(tmp_path) as audit:
        audit.record(event("after"))
    assert {line.outcome for line in lines(tmp_path)} >= {"broken"}
    found = await verdict(tmp_path)
    assert [each.what for each in found.findings] == ["removed", "noticed"]
    assert "Lines 4 to 7 were on disk and are missing" in found.findings[1].sentence
    assert verify(tmp_path / "audit", after=found.findings[1].seq).whole


async def test_a_database_from_a_backup_lacks_what_was_decided_since(tmp_path: Path) -> None:
    database, backup = tmp_path / "agent.db", tmp_path / "backup.db"
    times = [datetime(2026, 3, 1, 12, 0, tzinfo=UTC)]
    clock = "component.audit.record.time_ns"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, lambda: int(times[0].timestamp()) * 10**9)
        async with running(tmp_path) as audit:
            audit.record(event("before"))
        shutil.copy(database, backup)
        for days in (1, 2):
            times[0] += timedelta(days=days)
            async with running(tmp_path) as audit:
                audit.record(event("after"))
        assert not [line for line in lines(tmp_path) if line.outcome == "newer"]
        shutil.copy(backup, database)
        async with running(tmp_path):
            pass
    (newer,) = [line.detail for line in lines(tmp_path) if line.outcome == "newer"]
    assert "The last line is of 2026-03-04T12:00:00.000Z" in newer
    assert "audit query --since 2026-03-01T12:00:00.000Z" in newer
    async with running(tmp_path):
        pass
    assert [line.detail for line in lines(tmp_path) if line.outcome == "newer"] == [newer]


async def test_a_database_that_does_not_know_the_log_lacks_its_decisions(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    (tmp_path / "agent.db").unlink()
    async with running(tmp_path):
        pass
    (newer,) = [line.detail for line in lines(tmp_path) if line.outcome == "newer"]
    assert "the database does not know the audit log" in newer


async def test_a_record_that_was_removed_whole_is_found(tmp_path: Path) -> None:
    async with running(tmp_path) as audit:
        audit.record(event())
    for file in (tmp_path / "audit").iterdir():
        file.unlink()
    assert "There are no files" in (await verdict(tmp_path)).findings[0].sentence
    async with running(tmp_path):
        pass
    found = await verdict(tmp_path)
    assert not found.whole
    assert found.first == 4


async def test_an_end_that_was_made_anew_is_found_at_the_start(tmp_path: Path) -> None:
    async with running(tmp_path) as audit:
        audit.record(event())
    file = files_in(tmp_path / "audit")[0]
    head, *rest = file.read_bytes().splitlines(keepends=True)
    from component.audit.lines import Chain

    first = read_line(head.rstrip())
    assert first is not None
    chain = Chain(ChainLink(1, first.hash))
    forged = chain.add([10**18] * len(rest), [event("nothing")] * len(rest))
    file.write_bytes(head + forged)
    assert not (await verdict(tmp_path)).whole
    async with running(tmp_path):
        pass
    assert "Line 3 differs" in next(
        line.detail for line in lines(tmp_path) if line.outcome == "broken"
    )
    assert not (await verdict(tmp_path)).whole


async def test_a_torn_line_is_taken_out_kept_and_recorded(tmp_path: Path) -> None:
    async with running(tmp_path) as audit:
        audit.record(event())
    file = files_in(tmp_path / "audit")[0]
    torn = file.read_bytes().splitlines()[0][:50]
    with file.open("ab") as writer:
        writer.write(torn)
    assert [each.what for each in (await verdict(tmp_path)).findings] == ["torn"]
    async with running(tmp_path):
        pass
    repaired = next(line for line in lines(tmp_path) if line.outcome == "repaired")
    assert "50 bytes after line 3" in repaired.detail
    assert "interrupted write" in repaired.detail
    kept = next(path for path in (tmp_path / "audit").iterdir() if path.suffix == ".bin")
    assert kept.name in repaired.detail
    assert kept.read_bytes() == torn
    assert (await verdict(tmp_path)).whole


async def test_a_file_that_never_got_a_line_is_no_hole(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    (tmp_path / "audit" / "audit-000000000003.jsonl").touch()
    async with running(tmp_path):
        pass
    assert (await verdict(tmp_path)).whole


class _Disk:
    """Fails as it is told to, the system calls of a journal in its place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.unsynced = False
        self._pwrite = os.pwrite
        self._fsync = os.fsync
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def pwrite(self, descriptor: int, data: bytes, at: int) -> int:
        if self.full:
            self._pwrite(descriptor, bytes(data)[:7], at)  # some of it fits
            raise OSError(28, "No space left on device")
        return self._pwrite(descriptor, data, at)

    def fsync(self, descriptor: int) -> None:
        if self.unsynced:
            raise OSError(5, "Input/output error")
        self._fsync(descriptor)


@pytest.mark.parametrize("how", ["full", "unsynced"])
async def test_a_disk_that_refuses_costs_nothing_once_it_takes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    disk = _Disk(monkeypatch)
    async with running(tmp_path) as audit:
        await audit.settled()
        setattr(disk, how, True)
        audit.record(event("kept"))
        with pytest.raises(StorageError, match="Free some space"):
            await audit.settled()
        assert audit.figures.failing
        audit.record(event("too"))
        setattr(disk, how, False)
        await audit.settled()
        assert not audit.figures.failing
    assert [line.subject for line in lines(tmp_path) if line.kind == "execute"] == ["kept", "too"]
    assert (await verdict(tmp_path)).whole


async def test_too_much_that_waits_refuses_new_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Disk(monkeypatch)
    monkeypatch.setattr(record, "MOST_WAITING", 10)
    async with running(tmp_path) as audit:
        await audit.settled()
        disk.full = True
        audit.record(event())
        with pytest.raises(StorageError):
            await audit.settled()
        assert audit.full() is None
        for _ in range(12):  # work that has begun goes on, and is not lost
            audit.record(event())
        assert "cannot be recorded" in str(audit.full())
        disk.full = False
        await audit.settled()
        assert audit.full() is None
    assert sum(line.kind == "execute" for line in lines(tmp_path)) == 13


async def test_who_chose_to_go_on_is_told_how_much_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Disk(monkeypatch)
    monkeypatch.setattr(record, "MOST_WAITING", 10)
    options = AuditSettings(on_failure="continue")
    async with running(tmp_path, options) as audit:
        await audit.settled()
        disk.full = True
        audit.record(event())
        with pytest.raises(StorageError):
            await audit.settled()
        for _ in range(15):
            audit.record(event())
        assert audit.full() is None
        assert audit.figures.lost == 5
        disk.full = False
        await audit.settled()
        await audit.settled()
    lost = [line.detail for line in lines(tmp_path) if line.outcome == "lost"]
    assert len(lost) == 1
    assert lost[0].startswith("5 events since ")
    assert sum(line.kind == "execute" for line in lines(tmp_path)) == 11


async def test_what_waits_at_the_end_is_written(tmp_path: Path) -> None:
    options = AuditSettings(lines_per_minute=0)
    async with Storage.open(SCHEMA, tmp_path) as storage, Audit.open(storage, options) as audit:
        for number in range(1000):
            audit.record(event(str(number)))
    assert sum(line.kind == "execute" for line in lines(tmp_path)) == 1000
    assert (await verdict(tmp_path)).whole


async def test_what_one_principal_does_beyond_the_limit_is_counted(tmp_path: Path) -> None:
    async with running(tmp_path, AuditSettings(lines_per_minute=10)) as audit:
        for _ in range(100):
            audit.record(event("echo"))
        await audit.settled()
    found = [line.detail for line in lines(tmp_path) if line.kind == "execute"]
    assert found == [*[""] * 10, "90 more within a minute"]
    assert (await verdict(tmp_path)).whole


@pytest.mark.ports
async def test_cancelling_who_settles_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, AuditSettings(lines_per_minute=0)) as audit:
        for number in range(3000):
            audit.record(event(str(number)))
        with anyio.move_on_after(0):
            await audit.settled()
        await audit.settled()
    subjects = [line.subject for line in lines(tmp_path) if line.kind == "execute"]
    assert subjects == [str(number) for number in range(3000)]
    assert (await verdict(tmp_path)).whole


_LIFE = """
import sys
from pathlib import Path
import anyio
from component.app.schema import SCHEMA
from component.audit.protocol import AuditEvent
from component.audit.record import Audit
from component.config.service import Audit as AuditSettings
from component.store import Storage

async def main():
    async with Storage.open(SCHEMA, Path(sys.argv[1])) as storage:
        options = AuditSettings.model_construct(max_file_bytes=20000, lines_per_minute=0)
        async with Audit.open(storage, options) as audit:
            async with anyio.create_task_group() as group:
                await group.start(audit.run)
                number = 0
                while True:
                    for _ in range(50):
                        audit.record(
                            AuditEvent(kind="execute", outcome="done", subject=str(number))
                        )
                        number += 1
                    if number % 500 == 0:
                        await audit.settled()
                        print(number, file=sys.stderr, flush=True)
                    await anyio.lowlevel.checkpoint()

anyio.run(main, backend=sys.argv[2])
"""


async def test_what_was_settled_is_there_after_kill_9(
    tmp_path: Path, anyio_backend_name: str
) -> None:
    before = 0
    for life in range(3 if THOROUGH else 2):
        with subprocess.Popen(  # noqa: ASYNC220 - it is to be killed, and nothing else waits
            [sys.executable, "-c", _LIFE, str(tmp_path), anyio_backend_name],
            stdout=subprocess.DEVNULL,  # the log
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            for _ in range(2 + life):
                settled = int(process.stderr.readline())
            process.send_signal(signal.SIGKILL)
        found = [line for line in lines(tmp_path) if line.kind == "execute"]
        assert len(found) - before >= settled
        before = len(found)
    async with running(tmp_path):
        pass
    assert (await verdict(tmp_path)).whole
    said = [line.detail for line in lines(tmp_path) if line.outcome == "opened"]
    assert all("did not shut down cleanly" in each for each in said[1:])
