"""Commands are confined by their profile, and it by what it may contain."""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.app.checks import check_sandbox
from component.sandbox import report
from component.sandbox.launch import NOT_CONFINED, NOT_FOUND, confined_command
from component.sandbox.profile import ConfinementError, Limits, Profile
from component.sandbox.report import ConfinementReport, Guarantee, confinement_report

PATHS = st.lists(st.from_regex(r"/[a-z/]{1,10}[a-z]", fullmatch=True), max_size=3).map(tuple)
PROFILES = st.builds(
    Profile,
    read=PATHS,
    write=PATHS,
    network=st.just("tcp"),
    ports=st.lists(st.integers(1, 65535), max_size=3).map(tuple),
    processes=st.booleans(),
    environment=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    limits=st.builds(Limits, memory=st.integers(1, 1 << 40), wall_s=st.floats(1, 1e6)),
)


def run(
    profile: Profile, *argv: str, given: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        confined_command(profile, argv),
        check=False,
        capture_output=True,
        text=True,
        input=given,
        env=environment,
        cwd="/",
        start_new_session=True,
    )


def python(profile: Profile, code: str, **environment: str) -> str:
    done = run(profile, sys.executable, "-I", "-c", code, **environment)
    return done.stdout + done.stderr


@given(PROFILES)
def test_a_profile_is_the_same_after_it_was_an_argument(profile: Profile) -> None:
    assert Profile.decode(profile.encode()) == profile


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"reed": []}', '{"read": ["a"]}', '{"network": "all"}', '{"ports": [80]}'],
)
def test_a_profile_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(ConfinementError):
        Profile.decode(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"read": ("relative",)},
        {"write": ("/",)},
        {"work": "/a\0b"},
        {"ports": (443,)},
        {"network": "tcp", "ports": (0,)},
    ],
)
def test_a_profile_cannot_contradict_itself(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfinementError):
        Profile(**wrong)


def test_standard_streams_are_kept_and_the_status_too() -> None:
    done = run(Profile(), "sh", "-c", "read line; echo got $line; echo oh >&2; exit 7", given="x\n")
    assert (done.stdout, done.stderr, done.returncode) == ("got x\n", "oh\n", 7)


def test_variables_are_those_of_the_profile() -> None:
    profile = Profile(environment=("TOKEN", "ABSENT"))
    code = "import os; print(sorted(os.environ))"
    found = python(profile, code, TOKEN="t", SECRET="s", LD_PRELOAD="", PYTHONPATH="/x")
    assert found == "['HOME', 'LANG', 'PATH', 'TMPDIR', 'TOKEN']\n"


def test_files_of_the_profile_can_be_read_and_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    read, write, other = (tmp_path / name for name in ("read", "write", "other"))
    for directory in (read, write, other):
        directory.mkdir()
        (directory / "file").write_text(directory.name)
    profile = Profile(read=(str(read),), write=(str(write),))
    code = f"""
import os
print(open("{read}/file").read(), open("{write}/file").read())
open("{write}/new", "w").write("made")
for path, mode in (("{read}/file", "a"), ("{read}/new", "w"), ("{other}/file", "r")):
    try:
        open(path, mode)
        print("opened", path)
    except OSError:
        pass
"""
    assert python(profile, code) == "read write\n"
    assert (write / "new").read_text() == "made"


def test_paths_may_lie_in_each_other(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    out, work = tmp_path / "out", tmp_path / "work"
    for directory in (out, work):
        directory.mkdir()
    (tmp_path / "file").write_text("read")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    inner = out / "inner"
    inner.mkdir()
    paths = {"read": (str(tmp_path), str(inner)), "write": (str(out),), "work": str(work)}
    code = f"""
import os
print(os.getcwd(), open("{tmp_path}/link").read())
for path in ("in_work", "{out}/a", "{inner}/b", "{tmp_path}/c"):
    try:
        print(open(path, "w").write("made"))
    except OSError:
        print("refused")
"""
    assert python(Profile(**paths), code).split() == [str(work), "read", "4", "4", "4", "refused"]
    assert (inner / "b").read_text() == "made"


def test_programs_that_were_written_cannot_be_run(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    script = "cp /bin/true here; chmod 700 here; ./here && echo ran"
    done = run(Profile(work=str(work), processes=True), "sh", "-c", script)
    assert "ran" not in done.stdout


def test_a_compiler_can_be_confined(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no compiler")
    source, made, work = tmp_path / "source", tmp_path / "made", tmp_path / "work"
    for directory in (source, made, work):
        directory.mkdir()
    (source / "a.c").write_text("int main(void) { return 0; }")
    (source / "b.c").write_text('char x[] = {\n#include "/etc/passwd"\n};')
    profile = Profile(read=(str(source),), write=(str(made),), work=str(work), processes=True)
    done = run(profile, "gcc", "-o", f"{made}/a", f"{source}/a.c")
    assert done.returncode == 0, done.stderr
    assert (made / "a").stat().st_size
    assert "root:" not in run(profile, "gcc", "-o", f"{made}/b", f"{source}/b.c").stderr


def test_a_path_that_does_not_exist_is_named() -> None:
    done = run(Profile(read=("/nothing/here",)), "true")
    assert (done.returncode, done.stderr) == (NOT_CONFINED, "/nothing/here does not exist\n")


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfinementError, match="no program absent-program"):
        confined_command(Profile(), ["absent-program"])
    script = tmp_path / "script"
    script.write_text("#!/nothing/here\n")
    script.chmod(0o755)
    assert run(Profile(), str(script)).returncode == NOT_FOUND


@pytest.mark.anyio
async def test_the_report_names_each_guarantee() -> None:
    found = await confinement_report()
    assert found.problem == ""
    assert found.safe, found.missing
    assert {one.name for one in found.guarantees} == set(report._TEXTS)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("found", "verdict", "text"),
    [
        (ConfinementReport((Guarantee("a", True, True, "do x"),)), "ok", "all 1 respects"),
        (ConfinementReport((Guarantee("a", False, False, "do x"),)), "warning", "that they do x"),
        (ConfinementReport((Guarantee("a", False, True, "do x"),)), "warning", "that they do x"),
        (ConfinementReport(problem="no seccomp"), "warning", "no seccomp"),
    ],
)
async def test_doctor_says_what_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, found: ConfinementReport, verdict: str, text: str
) -> None:
    async def reported() -> ConfinementReport:
        return found

    monkeypatch.setattr("component.app.checks.confinement_report", reported)
    check = await check_sandbox()
    assert check.verdict == verdict
    assert text in check.text


@pytest.mark.anyio
async def test_what_does_not_hold_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is about effects: a profile that allows the network lacks that guarantee."""
    allowed = Profile(network="any", processes=True)

    def open_profile(profile: Profile, argv: list[str]) -> list[str]:
        return confined_command(allowed if profile.network == "none" else profile, argv)

    monkeypatch.setattr(report, "confined_command", open_profile)
    found = await confinement_report()
    assert found.problem == ""
    assert {"network", "fork"} <= {one.name for one in found.missing}
    assert not found.safe


def test_nothing_runs_where_nothing_can_be_confined(tmp_path: Path) -> None:
    """A kernel without seccomp, as far as this process is told."""
    sabotage = tmp_path / "sabotage.py"
    sabotage.write_text(
        "import sys, seccompy\n"
        "def refuse(self): raise seccompy.UnsupportedError('no seccomp')\n"
        "seccompy.Filter.load = refuse\n"
        "from component.sandbox.launch import main\n"
        "main(sys.argv[1:])\n"
    )
    for weaker in (False, True):
        profile = Profile(weaker=weaker)
        command = confined_command(profile, ["echo", "ran"])
        separator = command.index("component.sandbox.launch")
        done = subprocess.run(
            [sys.executable, str(sabotage), *command[separator + 1 :]],
            check=False,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(Path.cwd())},
        )
        assert (done.stdout == "ran\n") is weaker
        assert (done.returncode == NOT_CONFINED) is not weaker


def test_what_lies_in_the_system_s_temporary_directory_is_reached_through_links() -> None:
    """As a Python whose virtual environment is there."""
    with TemporaryDirectory(dir="/tmp") as directory:
        place = Path(directory)
        (place / "real").mkdir()
        (place / "real" / "file").write_text("found")
        (place / "link").symlink_to("real/file")
        for part in (place, place / "real"):
            part.chmod(0o755)
        assert run(Profile(read=(str(place / "link"),)), "cat", f"{place}/link").stdout == "found"
        hidden = Profile(read=(str(place / "link"),), work=str(place / "real"))
        assert run(hidden, "cat", f"{place}/link").stdout == "found"
