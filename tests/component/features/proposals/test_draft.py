"""What a proposal may contain is checked before anything of it runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.proposals.draft import SkillDraft, check_draft
from component.features.proposals.drafts import DraftError
from tests.component.features.proposals.world import MANIFEST, SPLIT, TESTS, WEATHER

MOST = 4096
SCHEMA = "input_schema = { type = 'object' }"
SCHEDULE = '[skill.schedule]\nwhen = "* * * * *"\nprincipal = "a@example.com"\n'


def test_what_the_model_is_shown_is_a_valid_proposal() -> None:
    from component.features.proposals.draft import FORMAT

    parts = FORMAT.split("A skill of the kind rest")
    _, manifest, code, tests = (
        part.split(":\n", 1)[1] if number else ""
        for number, part in enumerate(
            parts[0]
            .replace("main.py:", "\0:")
            .replace("tests/cases.toml:", "\0:")
            .replace("skill.toml:", "\0:")
            .split("\0")
        )
    )
    assert (
        check_draft(SkillDraft(manifest=manifest, code=code, tests=tests), MOST).name == "tip.split"
    )
    manifest, rest = parts[1].split("Its skill.toml:\n")[1].split("and its tests")
    tests = rest.split(":\n", 1)[1].split("\nRules:")[0]
    assert check_draft(SkillDraft(manifest=manifest, tests=tests), MOST).name == "weather"


@pytest.mark.parametrize(
    ("key", "before", "after", "why"),
    [
        ("manifest", '"python"', '"process"', "lacks the key 'input_schema'"),
        ("manifest", '"python"', '"wasm"', "lacks the key 'input_schema'"),
        ("manifest", '"main.py"', '"../main.py"', "path of a file of this directory"),
        ("manifest", '"main.py"', '"other.py"', 'write entry = "main.py"'),
        ("manifest", '"main.py"', '"main.py"\ndurable = true', "cannot be durable"),
        ("manifest", '"main.py"', '"main.py"\nmemory_bytes = 4_000_000_000', "of memory"),
        ("manifest", '"tip.split"', '"../../etc"', "name"),
        ("manifest", '"tip.split"', '".hidden"', "name"),
        ("manifest", '"tip.split"', f'"{"a" * 100}"', "cannot be used"),
        ("manifest", "[skill.capabilities]", "[skill.capabilities]\nshell = true", "shell"),
        (
            "manifest",
            "[skill.capabilities]",
            '[skill.capabilities]\nfilesystem_read = ["/etc"]',
            "filesystem_read",
        ),
        (
            "manifest",
            "[skill.capabilities]",
            '[skill.capabilities]\nxmpp = ["romeo@example.com"]',
            "xmpp",
        ),
        ("manifest", "[skill.annotations]", f"{SCHEDULE}[skill.annotations]", "its principal"),
        ("manifest", "version", 'input_schema = "schema.json"\nversion', "no other files"),
        ("manifest", 'description = "Say what each person pays for a bill."', "", "description"),
        ("code", "", None, "write entry"),
        ("code", "return", "return \u202e", "RIGHT-TO-LEFT OVERRIDE"),
        ("code", "return", "return \x1b[2J", "control character"),
        ("code", "return", f"return {' ' * 400}", "more than 300 characters"),
        ("code", "return", "# \ud800\n    return", "surrogate"),
        ("code", "return", "#" + "\n    #" * 4000 + "\n    return", "more than the permitted"),
        ("tests", "", None, "1 to 20 tests, not 0"),
        ("tests", 'text = "30.00 euros each"', "", "compares nothing"),
        ("tests", 'text = "30.00 euros each"', 'contains = ""', "compares nothing"),
        ("tests", 'error = "has to pay"', 'error = ""', "compares nothing"),
        ("tests", 'text = "30.00 euros each"', 'error = "x"', "No test shows a result"),
        ("tests", "[[case]]", "[case]", "cannot be used"),
        ("tests", 'name = "splits a bill"', 'name = "splits a bill"\nfile = "../x"', "file"),
    ],
)  # fmt: skip
def test_an_invalid_draft_is_refused_with_the_reason(
    key: str, before: str, after: str | None, why: str
) -> None:
    text = "" if after is None else SPLIT[key].replace(before, after, 1)
    assert text != SPLIT[key]
    with pytest.raises(DraftError, match=why):
        check_draft(SkillDraft(**{**SPLIT, key: text}), MOST)


def test_a_draft_is_of_the_kind_python_or_rest() -> None:
    manifest = MANIFEST.replace("version", f"{SCHEMA}\nversion").replace("python", "process")
    with pytest.raises(DraftError, match="of the kind python or rest"):
        check_draft(SkillDraft(**{**SPLIT, "manifest": manifest}), MOST)


def test_a_request_has_no_code() -> None:
    with pytest.raises(DraftError, match="has no code"):
        check_draft(SkillDraft(**{**WEATHER, "code": "import os"}), MOST)


def test_there_are_not_too_many_tests() -> None:
    case = TESTS.split("[[case]]")[1]
    with pytest.raises(DraftError, match="not 21"):
        check_draft(SkillDraft(**{**SPLIT, "tests": f"[[case]]{case}" * 21}), MOST)


@given(st.text(), st.text(), st.text())
def test_any_texts_are_refused_with_a_reason(manifest: str, code: str, tests: str) -> None:
    with pytest.raises(DraftError):
        check_draft(SkillDraft(manifest=manifest, code=code, tests=tests), MOST)


@given(st.data())
def test_a_manifest_with_any_change_is_read_or_refused(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(MANIFEST)))
    until = data.draw(st.integers(at, len(MANIFEST)))
    text = MANIFEST[:at] + data.draw(st.text(max_size=20)) + MANIFEST[until:]
    try:
        checked = check_draft(SkillDraft(**{**SPLIT, "manifest": text}), MOST)
    except DraftError:
        return
    assert "/" not in checked.name
    assert not checked.name.startswith(".")
