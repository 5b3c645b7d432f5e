"""Which parameters an author can leave open for standing approvals."""

from typing import Annotated, Any

import pytest

from component.skills import DeclarationError, skill
from component.skills.free_texts import FREE_TEXT, find_mistake, free_texts
from component.skills.manifest import ManifestError, read_manifest

FREE = {"x-free-text": True}


def test_a_function_marks_a_parameter() -> None:
    @skill
    def write(
        to: str, text: Annotated[str, FREE_TEXT], hint: Annotated[str | None, FREE_TEXT]
    ) -> None:
        """Write."""

    assert free_texts(write.input_schema) == {"text", "hint"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "string", "minLength": 1, "maxLength": 9, "description": "Of a message."},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
    ],
)
@pytest.mark.parametrize("name", ["text", "emailText", "file_content", "message"])
def test_a_plain_text_can_be_free(name: str, schema: dict[str, Any]) -> None:
    assert find_mistake({name: schema | FREE}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number"},
        {"type": "integer"},
        {"type": "boolean"},
        {"type": "object"},
        {"type": "array", "items": {"type": "string"}},
        {"type": ["string", "number"]},
        {"anyOf": [{"type": "string"}, {"type": "number"}]},
        {"$ref": "#/$defs/Text"},
        {},
    ],
)
def test_what_is_not_a_text_cannot_be_free(schema: dict[str, Any]) -> None:
    assert "cannot be a free text" in (find_mistake({"text": schema | FREE}) or "")


@pytest.mark.parametrize("format_", ["uri", "jid", "path", "email", "hostname", "date-time"])
def test_a_text_with_a_format_cannot_be_free(format_: str) -> None:
    one: dict[str, Any] = {"type": "string", "format": format_}
    assert "'format'" in (find_mistake({"text": one | FREE}) or "")
    inside = {"anyOf": [one, {"type": "null"}]}
    assert "'format'" in (find_mistake({"text": inside | FREE}) or "")


@pytest.mark.parametrize(
    "name",
    ["to", "replyTo", "recipients", "addresses", "webhook_url", "baseURL", "file_path", "amount",
     "total-amount", "jid", "email", "file", "user_id", "command", "api_token"],
)  # fmt: skip
def test_a_name_that_says_who_where_or_how_much_cannot_be_free(name: str) -> None:
    mistake = find_mistake({name: {"type": "string"} | FREE})
    assert mistake is not None
    assert "has the word" in mistake or "ends with the word" in mistake


@pytest.mark.parametrize("mark", ["yes", 1, None, [True]])
def test_a_mark_is_true_or_false(mark: object) -> None:
    assert "write true" in (find_mistake({"text": {"type": "string", "x-free-text": mark}}) or "")


def test_a_mark_inside_of_a_type_is_refused() -> None:
    inside = {"anyOf": [{"type": "string"} | FREE, {"type": "null"}]}
    assert "mark the parameter itself" in (find_mistake({"text": inside}) or "")


def test_a_wrong_mark_is_reported_when_the_skill_is_loaded() -> None:
    with pytest.raises(DeclarationError, match="'pay', 'amount' cannot be a free text"):

        @skill
        def pay(amount: Annotated[str, FREE_TEXT]) -> None:
            """Pay."""

    manifest = read_manifest(
        "[skill]\nname = 'pay'\nversion = '1'\n[skill.execution]\nkind = 'process'\nentry = 'run'\n"
        "[skill.input_schema]\ntype = 'object'\n"
        "[skill.input_schema.properties.to]\ntype = 'string'\nx-free-text = true\n"
    )
    with pytest.raises(ManifestError, match="'to' cannot be a free text"):
        manifest.spec({"input_schema": manifest.skill.input_schema}, "skill.toml")
