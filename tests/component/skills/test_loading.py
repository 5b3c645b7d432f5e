"""Loading modules of skills: by name, by path, and each way it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from component.skills import SkillLoadError, load_module, skills_of

SOURCE = '''
from __future__ import annotations
import msgspec
from component.skills import skill
from component.skills.builtin import echo

class Point(msgspec.Struct):
    x: int

@skill
def second(point: Point) -> str:
    """Say where."""
    return str(point.x)

@skill
def first() -> str:
    """Say one."""
    return "1"

again = first
'''


def test_a_file_offers_what_it_declares_and_not_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "my-skills.py").write_text(SOURCE)
    module = load_module(tmp_path / "my-skills.py")
    assert [each.name for each in skills_of(module)] == ["second", "first"]
    assert load_module(str(tmp_path / "my-skills.py")) is module


def test_a_package_offers_what_its_modules_declare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "offered_in_test"
    package.mkdir()
    (package / "one.py").write_text(SOURCE)
    (package / "__init__.py").write_text("from offered_in_test.one import first\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert [each.name for each in skills_of(load_module("offered_in_test"))] == ["first"]
    finally:
        for name in ("offered_in_test", "offered_in_test.one"):
            sys.modules.pop(name, None)


def test_a_module_without_skills_is_a_mistake() -> None:
    with pytest.raises(SkillLoadError, match="json declares no skills"):
        skills_of(load_module("json"))


def test_a_file_without_skills_is_called_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("X = 1\n")
    with pytest.raises(SkillLoadError) as refused:
        skills_of(load_module(tmp_path / "empty.py"))
    assert str(refused.value).startswith(f"The file {tmp_path}/empty.py declares no skills: ")


@pytest.mark.parametrize("where", ["no_such_module", "no_such.module", "json.no_such"])
def test_a_missing_module_is_said_to_be_missing(where: str) -> None:
    with pytest.raises(SkillLoadError, match=f"There is no module {where}"):
        load_module(where)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_thing", "No module named 'no_such_thing'"),
        ("1/0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("from component.skills import skill\n@skill\ndef f(a): ...", "'a' .* has no type hint"),
    ],
)
def test_a_module_that_breaks_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, says: str
) -> None:
    path = tmp_path / "broken_in_test.py"
    path.write_text(source)
    before = set(sys.modules)
    with pytest.raises(SkillLoadError, match=says):
        load_module(path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SkillLoadError, match=says):
        load_module("broken_in_test")
    assert not [name for name in set(sys.modules) - before if "broken" in name]


def test_a_missing_file_and_a_file_that_is_not_python(tmp_path: Path) -> None:
    with pytest.raises(SkillLoadError, match="There is no file"):
        load_module("./no_such.py")
    (tmp_path / "skills.txt").write_text(SOURCE)
    with pytest.raises(SkillLoadError, match=r"must end in \.py"):
        load_module(tmp_path / "skills.txt")
