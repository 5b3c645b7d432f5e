"""Faults that are put into the service on purpose, to see that the rules find them:
`python -m tests.simulation.planted --help`.

A fault that no life finds shows a rule that is missing or too weak, or a moment at which nothing
ever fails.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("component",)
_DAYS: Final = 6.0
_SECONDS: Final = 600.0
"""Seconds for which a fault is looked for."""
_LONGEST_LIFE_S: Final = 120.0
"""Seconds that the last of the lives may take."""
_FIRST: Final = 1000
_VIOLATES: Final = re.compile(r"^seed (\d+) violates a rule: (.*)$", re.MULTILINE)


class Edit(msgspec.Struct, frozen=True):
    """A replacement in a source file: `old` occurs once."""

    file: str
    old: str
    new: str


class Planted(msgspec.Struct, frozen=True):
    """A fault: its name, what it breaks, and how it is put into the source."""

    name: str
    about: str
    edits: tuple[Edit, ...]


FAULTS: Final[Sequence[Planted]] = (
    Planted(
        "answer-before-commit",
        "A repetition of a request is answered before the task is stored.",
        (
            Edit(
                "component/tasks/admission.py",
                """\
        try:
            row, accepted, begins = await self._store.commit(op)
""",
                """\
        early = Accepted(
            task=task, state="accepted", retain_until=self._now(), poll_after=60
        )
        flight.land(early)
        await anyio.sleep(0.2)
        try:
            row, accepted, begins = await self._store.commit(op)
""",
            ),
        ),
    ),
    Planted(
        "step-not-recorded",
        "The end of a step is not stored, so that the next run does not know how it has ended.",
        (
            Edit(
                "component/tasks/run.py",
                """\
            journal.end_step(tx, row, step.name, recorded)
            if cancelled:""",
                "            if cancelled:",
            ),
        ),
    ),
    Planted(
        "step-begins-unrecorded",
        "A step with effects begins without a record, so that it runs again after a kill.",
        (
            Edit(
                "component/tasks/run.py",
                """\
            elif row.state != "cancelling":
                journal.begin_step(tx, row, step)
""",
                """\
            elif row.state != "cancelling":
                pass
""",
            ),
            Edit(
                "component/tasks/run.py",
                """\
        if step is not None and row.state == "running":
            journal.begin_step(tx, row, step)
""",
                "",
            ),
        ),
    ),
    Planted(
        "event-not-marked",
        "The end of a task and its questions are not marked as unsent, and a kill loses them.",
        (
            Edit(
                "component/tasks/changes.py",
                """\
        row.unsent_revision = row.revision
""",
                """\
        pass
""",
            ),
        ),
    ),
    Planted(
        "digest-not-compared",
        "A decision counts whatever digest it has.",
        (
            Edit(
                "component/tasks/questions.py",
                """\
    if decision.hash is not None and decision.hash != about.hash:
""",
                """\
    if False:
""",
            ),
        ),
    ),
    Planted(
        "anybody-decides",
        "A decision of somebody who was not asked counts.",
        (
            Edit(
                "component/tasks/question_rows.py",
                """\
        " WHERE a.jid = ? AND a.input = ? AND i.kind = 'confirm'"
""",
                """\
        " WHERE a.jid <> ? AND a.input = ? AND i.kind = 'confirm'"
""",
            ),
        ),
    ),
    Planted(
        "repetition-not-found",
        "A repetition of a request is not found on disk, and becomes another task.",
        (
            Edit(
                "component/tasks/admission.py",
                """\
        if not (on_disk and self.any_records):
""",
                """\
        if on_disk or not self.any_records:
""",
            ),
            Edit(
                "component/tasks/replay.py",
                """\
    f" WHERE NOT {_HOLDS}"
""",
                """\
    f" WHERE NOT {_HOLDS} OR 1 = 1"
""",
            ),
        ),
    ),
    Planted(
        "expired-answer-counts",
        "A question expires a day later than it says, and an answer that comes hours later counts.",
        (
            Edit(
                "component/tasks/question_rows.py",
                """\
    expires = steady(database, milliseconds(content.expires))
    kind, digest =""",
                """\
    expires = steady(database, milliseconds(content.expires)) + 86_400_000
    kind, digest =""",
            ),
        ),
    ),
    Planted(
        "approval-used-twice",
        "What was interrupted while it was paid is done again, with the same approval.",
        (
            Edit(
                "component/tasks/worker.py",
                """\
    if recorded.begun and not verdict.repeatable:
""",
                """\
    if False:
""",
            ),
        ),
    ),
    Planted(
        "unconfirmed-after-restart",
        "After a restart, tasks that wait for an approval run without it.",
        (
            Edit(
                "component/tasks/service.py",
                """\
        for owner in rows.column(tx, lost):  # they left, or ran on SQLite
""",
                """\
        tx.execute("UPDATE tasks SET state = 'accepted' WHERE state = 'input-required'")
        for owner in rows.column(tx, lost):  # they left, or ran on SQLite
""",
            ),
            Edit(
                "component/tasks/worker.py",
                """\
    if request.confirmation is None:
        return True
""",
                """\
    if request.confirmation is None or row.revision > 0:
        return True
""",
            ),
        ),
    ),
    Planted(
        "two-runs",
        "An answer lets a task run twice at the same time.",
        (
            Edit(
                "component/tasks/service.py",
                """\
                self._worker.take_up_soon(made.row, slot)
                slot = None
""",
                """\
                self._worker.take_up_soon(made.row, slot)
                self._worker.take_up_soon(made.row, self._runtime.slots.take(made.row.share))
                slot = None
""",
            ),
            Edit(
                "component/tasks/worker.py",
                """\
                while (previous := self.of(row.id)) is not None:
""",
                """\
                while (previous := self.of(row.id)) is not None and previous.request.mode == '':
""",
            ),
        ),
    ),
    Planted(
        "slot-not-given-back",
        "An answer that is refused keeps the slot that it was to run in.",
        (
            Edit(
                "component/tasks/service.py",
                """\
        finally:
            if slot is not None:
                slot.release()
        _raise_refusal""",
                """\
        finally:
            pass
        _raise_refusal""",
            ),
        ),
    ),
    Planted(
        "due-task-not-claimed",
        "A task that has slept long enough is queued, and no worker claims it.",
        (
            Edit(
                "component/tasks/expiry.py",
                """\
    if ready:
        tx.ready |= ready
        tx.wake_others()
""",
                "",
            ),
        ),
    ),
    Planted(
        "timer-not-set",
        "A time for which a task waits is stored, and the timer is not set.",
        (
            Edit(
                "component/tasks/changes.py",
                """\
            self.has_timers = True
""",
                """\
            pass
""",
            ),
        ),
    ),
    Planted(
        "iq-answered-twice",
        "A request that is refused for now gets its error twice.",
        (
            Edit(
                "component/link/router/work.py",
                """\
        except StanzaError as error:
            refuse(stanza, error)
""",
                """\
        except StanzaError as error:
            refuse(stanza, error)
            if error.type == "wait":
                refuse(stanza, error)
""",
            ),
        ),
    ),
    Planted(
        "iq-not-answered",
        "A request about a task that does not exist gets no answer.",
        (
            Edit(
                "component/link/router/work.py",
                """\
        except StanzaError as error:
            refuse(stanza, error)
""",
                """\
        except StanzaError as error:
            if error.condition != "item-not-found":
                refuse(stanza, error)
""",
            ),
        ),
    ),
    Planted(
        "cancelled-goes-on",
        "The run of a task that is cancelled is not stopped.",
        (
            Edit(
                "component/tasks/run.py",
                """\
        if made.row.state == "cancelling":
            self.stop("cancel")
""",
                """\
        if made.row.state == "cancelling":
            pass
""",
            ),
            Edit(
                "component/tasks/run.py",
                """\
            elif row.state != "cancelling":
                journal.begin_step(tx, row, step)
""",
                """\
            else:
                journal.begin_step(tx, row, step)
""",
            ),
        ),
    ),
    Planted(
        "schedule-fires-again",
        "A schedule moves on a moment after it has fired, and a kill in between fires it again.",
        (
            Edit(
                "component/features/schedules/runner.py",
                """\
            task = await self._starter.start(trigger, firing_work(schedule, instant, now), move)
""",
                """\
            task = await self._starter.start(trigger, firing_work(schedule, instant, now))
            await anyio.sleep(1)
""",
            ),
            Edit(
                "component/features/schedules/runner.py",
                "name=schedule.id, key=text, data",
                'name=schedule.id, key=f"{text} {seconds_since_boot()}", data',
            ),
        ),
    ),
    Planted(
        "turn-lost",
        "A message that waits for its turn at a kill is not taken up at the next start.",
        (
            Edit(
                "component/agent/conversations.py",
                """\
            if row.request.id in known:
""",
                """\
            if row.request.id in known or row.wait is None:
""",
            ),
        ),
    ),
    Planted(
        "turn-answered-twice",
        "The row of an answered message is not deleted, and it is answered again after a restart.",
        (
            Edit(
                "component/agent/rows.py",
                """\
        database.execute("DELETE FROM turns WHERE id = ?", (turn,))
        waiters.forget""",
                "        waiters.forget",
            ),
        ),
    ),
    Planted(
        "shared-history",
        "All people of a domain have the same history.",
        (
            Edit(
                "component/memory_directory/layout.py",
                """\
        return self.agent_directory(key.agent) / file_name(str(key.who))
""",
                """\
        return self.agent_directory(key.agent) / file_name(key.who.domain)
""",
            ),
        ),
    ),
    Planted(
        "deadline-ignored",
        "A task goes on after its deadline.",
        (
            Edit(
                "component/tasks/rows.py",
                """\
    return row.deadline is not None and database.settled >= row.deadline
""",
                """\
    return False
""",
            ),
        ),
    ),
    Planted(
        "run-kept",
        "A run that has ended is kept.",
        (
            Edit(
                "component/tasks/worker.py",
                """\
        if self._runs.get(run.task) is run:
            del self._runs[run.task]
""",
                """\
        if self._runs.get(run.task) is run and run.row is None:
            del self._runs[run.task]
""",
            ),
        ),
    ),
    Planted(
        "one-vote-suffices",
        "One approval is enough for what several people have to approve.",
        (
            Edit(
                "component/tasks/questions.py",
                """\
        if votes.outcome(votes.votes_on(tx, put.id), approvals, put.hash) is None:
""",
                """\
        if not votes.votes_on(tx, put.id):
""",
            ),
        ),
    ),
    Planted(
        "requester-votes",
        "Who has asked for something may approve it, though others have to.",
        (
            Edit(
                "component/tasks/gate.py",
                """\
        if approvals is not None and not approvals.requester:
""",
                """\
        if approvals is not None and approvals.need == 0:
""",
            ),
            Edit(
                "component/tasks/questions.py",
                """\
        if is_own and not approvals.requester:
""",
                """\
        if is_own and approvals.need == 0:
""",
            ),
        ),
    ),
    Planted(
        "denied-plan-runs",
        "A plan runs although its owner has denied it.",
        (
            Edit(
                "component/plans/run.py",
                """\
            decided = await self._tasks.confirm(START, values, self._question_key, misled=misled)
            if not decided.approved:
""",
                """\
            decided = await self._tasks.confirm(START, values, self._question_key, misled=misled)
            if decided is None:
""",
            ),
        ),
    ),
    Planted(
        "spending-not-stored",
        "What was spent is not stored, and forgotten at the next start.",
        (
            Edit(
                "component/budget/book.py",
                """\
            self._work = anyio.Event()
            try:
                await self.flush()
""",
                """\
            self._work = anyio.Event()
            try:
                pass
""",
            ),
        ),
    ),
    Planted(
        "late-correction-taken",
        "A correction is taken although its message was acted on.",
        (
            Edit(
                "component/agent/conversation.py",
                """\
        if running.is_stopped or running.revisions.is_too_late(request.id):
""",
                """\
        if running.is_stopped:
""",
            ),
        ),
    ),
)


class Found(NamedTuple):
    """The seed of the life that has found a fault, the rule that it violates, and how long that
    took.
    """

    seed: int
    rule: str
    seconds: float


def apply(fault: Planted, root: Path) -> None:
    """Put a fault into the source below `root`. Raises ValueError if it does not fit any more."""
    for edit in fault.edits:
        path = root / edit.file
        text = path.read_text()
        count = text.count(edit.old)
        if count != 1:
            raise ValueError(f"{fault.name}: {count} times in {edit.file}: {edit.old!r}")
        path.write_text(text.replace(edit.old, edit.new))


def find(
    fault: Planted, seconds: float = _SECONDS, first: int = _FIRST, days: float = _DAYS
) -> Found | None:
    """Simulate lives with a fault, with new seeds, until one violates a rule."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        root = Path(directory)
        for path in ROOT.iterdir():
            if path.name in _COPIED:
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(path, root / path.name, ignore=ignored)
            elif not path.name.startswith("."):
                (root / path.name).symlink_to(path)
        apply(fault, root)
        command = (
            *(sys.executable, "-m", "tests.simulation", "--minutes", str(seconds / 60)),
            *("--from", str(first), "--days", str(days), "--first-failure"),
        )
        environment = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
        try:
            done = subprocess.run(
                command,
                cwd=root,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds + _LONGEST_LIFE_S,
            )
        except subprocess.TimeoutExpired:
            return None  # a life does not end
    found = _VIOLATES.search(done.stdout)
    if found is None:
        if done.returncode:
            raise RuntimeError(done.stderr)
        return None
    return Found(int(found[1]), found[2], time.monotonic() - began)


def main(words: Sequence[str]) -> int:
    """Look for faults; return 1 if one is not found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.planted",
        description="Put faults into the service, one at a time, and let lives find them.",
    )
    names = [one.name for one in FAULTS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="for each of them")
    parser.add_argument("--from", type=int, default=_FIRST, dest="first", help="the first seed")
    parser.add_argument("--days", type=float, default=_DAYS, help="simulated days of a life")
    options = parser.parse_args(words)
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no fault of these names: {', '.join(sorted(unknown))}")
    missing = 0
    for fault in FAULTS:
        if options.names and fault.name not in options.names:
            continue
        found = find(fault, options.seconds, options.first, options.days)
        if found is None:
            missing += 1
            print(f"{fault.name}: not found in {options.seconds:.0f} s", flush=True)
        else:
            seed, rule, spent = found
            print(f"{fault.name}: seed {seed}, {spent:.0f} s: {rule}", flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
