"""The digest covers everything that would run, and nothing leads out of the directory."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from component.skill_directories import content
from component.skill_directories.content import ContentStore, read_content, signature
from component.skills.errors import SkillLoadError
from component.skills.manifest import ManifestError
from tests.component.features.installed_skills.world import install


def test_every_file_counts(tmp_path: Path) -> None:
    directory = install(tmp_path)
    digests = {read_content(directory).digest}
    for change in (
        lambda: (directory / "main.py").write_text("x = 1\n"),
        (directory / "data").mkdir,
        lambda: (directory / "data" / "table.csv").write_text("1,2\n"),
        lambda: (directory / "data" / "table.csv").rename(directory / "table.csv"),
        lambda: (directory / "table.csv").chmod(0o755),
        lambda: install(tmp_path, capabilities='memory_read = ["skill"]'),
    ):
        before = signature(directory)
        change()
        digests.add(read_content(directory).digest)
        empty = list((directory / "data").glob("*")) == [] and (directory / "data").is_dir()
        assert empty or signature(directory) != before
    assert len(digests) == 6  # an empty directory changes nothing


def test_what_cannot_run_does_not_count(tmp_path: Path) -> None:
    directory = install(tmp_path)
    store = ContentStore(tmp_path / "store")
    before = read_content(directory).digest
    for name in (".git/config", "__pycache__/main.pyc", "tests/cases.toml", "target/a", "main.py~"):
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    found = store.add(directory)
    assert found.digest == before
    copied = {path.name for path in store.path(found.digest).rglob("*")}
    assert copied == {"skill.toml", "main.py"}


@pytest.mark.parametrize("where", ["main.py", "data", "skill.toml"])
def test_links_are_refused(tmp_path: Path, where: str) -> None:
    directory = install(tmp_path)
    (directory / where).unlink(missing_ok=True)
    (directory / where).symlink_to("/etc/passwd" if where != "data" else "/etc")
    with pytest.raises(SkillLoadError, match="symbolic link"):
        read_content(directory)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    directory = install(tmp_path)
    os.mkfifo(directory / "pipe")
    with pytest.raises(SkillLoadError, match="not a file"):
        read_content(directory)


def test_a_link_that_appears_while_it_is_read_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = install(tmp_path)
    honest = (directory / "main.py").stat()
    (directory / "main.py").unlink()
    (directory / "main.py").symlink_to("/etc/passwd")
    real = os.stat

    def lies(path: object, *args: object, **kwargs: object) -> os.stat_result:
        found = real(path, *args, **kwargs)  # type: ignore[arg-type]
        return honest if path == "main.py" else found

    monkeypatch.setattr(os, "stat", lies)
    with pytest.raises(SkillLoadError, match="cannot be read"):
        read_content(directory)


def test_a_skill_directory_beyond_its_limits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = install(tmp_path)
    monkeypatch.setattr(content, "MOST_FILES", 2)
    read_content(directory)
    (directory / "third").write_text("x")
    with pytest.raises(SkillLoadError, match="more than 2 files"):
        read_content(directory)
    monkeypatch.setattr(content, "MOST_FILES", 10)
    monkeypatch.setattr(content, "MOST_DIRECTORY_BYTES", 100)
    with pytest.raises(SkillLoadError, match="more than 100 bytes"):
        read_content(directory)
    monkeypatch.setattr(content, "MOST_DIRECTORY_BYTES", 100_000)
    deep = directory.joinpath(*"abcdefghijklmnopqrs")
    deep.mkdir(parents=True)
    (deep / "x").write_text("x")
    with pytest.raises(SkillLoadError, match="levels"):
        read_content(directory)


def test_what_the_manifest_names_must_be_there(tmp_path: Path) -> None:
    directory = install(tmp_path, more='input_schema = "input.json"')
    with pytest.raises(ManifestError, match=r"'input\.json', which the directory lacks"):
        read_content(directory)
    (directory / "main.py").unlink()
    with pytest.raises(ManifestError, match=r"'main\.py', which the directory lacks"):
        read_content(directory)
    (directory / "skill.toml").unlink()
    with pytest.raises(SkillLoadError, match=r"has no skill\.toml"):
        read_content(directory)


def test_a_copy_is_complete_private_and_verified(tmp_path: Path) -> None:
    directory = install(tmp_path)
    (directory / "run").write_text("#!/bin/sh\n")
    (directory / "run").chmod(0o755)
    store = ContentStore(tmp_path / "store")
    found = store.add(directory)
    copy = store.path(found.digest)
    assert (copy / "run").stat().st_mode & 0o777 == 0o700
    assert (copy / "main.py").stat().st_mode & 0o777 == 0o600
    assert store.has(found.digest)
    assert store.names() == {found.digest}
    (copy / "main.py").write_text("evil()")
    assert not store.has(found.digest)
    store.add(directory)  # it is replaced
    assert store.has(found.digest)


def test_a_copy_that_is_not_needed_is_kept_for_a_week(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "store")
    digests = {store.add(install(tmp_path, word=word)).digest for word in ("one", "two", "three")}
    first, second, third = sorted(digests)
    for digest in (first, second):
        os.utime(store.path(digest), (0, 0))
    store.clean(frozenset((first,)), frozenset())
    assert store.names() == {first, third}
    store.clean(frozenset(), frozenset())
    assert store.names() == {first, third}
    store.clean(frozenset((third,)), frozenset((first,)))
    assert store.names() == {third}


FILES = st.dictionaries(
    st.lists(st.text(alphabet="ab1", min_size=1, max_size=3), min_size=1, max_size=3).map("/".join),
    st.binary(max_size=20),
    max_size=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES, FILES)
def test_directories_are_alike_if_and_only_if_their_digests_are(
    tmp_path_factory: pytest.TempPathFactory, one: dict[str, bytes], other: dict[str, bytes]
) -> None:
    def digest(files: dict[str, bytes]) -> str | None:
        directory = install(tmp_path_factory.mktemp("skill"))
        for name, data in files.items():
            path = directory / "files" / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            except OSError:  # a name is a file and a directory
                return None
        return read_content(directory).digest

    first, second = digest(one), digest(other)
    if first is not None and second is not None:
        assert (first == second) == (one == other)
