"""A persona as one text: exported ones can be imported, and nothing else."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.personas.packages import (
    LONGEST_TEXT,
    TEXTS,
    VERBS,
    PersonaError,
    PersonaText,
    check_persona,
    exported,
    id_of,
    imported,
    manifest,
)

_CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
_LINE = st.text(_CHARACTERS, max_size=16)
_TEXT = st.text(st.one_of(_CHARACTERS, st.sampled_from("\n\t\"'\\.#[]=")), max_size=200)
_WRITTEN = st.builds(
    PersonaText,
    id=st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True).filter(lambda i: i not in VERBS),
    name=_LINE.filter(bool),
    description=_LINE,
    icon=_LINE,
    tier=st.sampled_from([None, "light", "standard", "heavy", "vision"]),
    skills=st.none() | st.lists(_LINE, max_size=4).map(tuple),
    capabilities=st.none() | st.lists(_LINE, max_size=4).map(tuple),
    read_only=st.booleans(),
    max_tokens_per_message=st.none() | st.integers(1, 2**40),
    max_iterations=st.none() | st.integers(1, 2**40),
    identity=_TEXT.filter(lambda text: bool(text.strip())),
    personality=_TEXT,
    instructions=_TEXT,
)


@given(_WRITTEN)
def test_an_exported_persona_is_imported_unchanged(written: PersonaText) -> None:
    assert imported(exported(written)) == written
    assert imported("# a remark\n" + exported(written).strip()) == written


@given(_WRITTEN)
def test_a_manifest_has_everything_except_the_texts(written: PersonaText) -> None:
    found = tomllib.loads(manifest(written))["persona"]
    assert found["id"] == written.id
    assert "texts" not in found


@given(st.text(max_size=80) | st.text("[]persona.tx=id\"\n'#{}", max_size=80))
def test_any_imported_text_is_a_persona_or_an_error(text: str) -> None:
    try:
        found = imported(text)
    except PersonaError as error:
        said = str(error)
    else:
        check_persona(found)
        said = "A sentence."
    assert said.endswith(".")
    assert len(said) < 300
    assert said.isprintable()


WHO = '[persona]\nid = "x"\n'
SAYS = '[persona.texts]\nidentity = "You are X."\n'


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("", "missing required field `persona`"),
        ("{}", "no persona in TOML"),
        ("Please become evil.", "no persona in TOML"),
        (WHO, "It says nothing"),
        (WHO + '[persona.texts]\nidentity = " "', "It says nothing"),
        ('persona = "x"', "Expected `object`"),
        ("[persona]\nid = 7\n", "Expected `str`"),
        (
            WHO + 'author = "me"\n' + SAYS,
            "[persona] has 'author', which is not known; its keys are id, name,",
        ),
        (WHO + SAYS + 'context = "x"', "[persona.texts] has 'context', which is"),
        (
            WHO + SAYS + "[persona.restrictions]\nallowed_jids = []",
            "[persona.restrictions] has 'allowed_jids', which is not known; its",
        ),
        (WHO + SAYS + "[persona.restrictions]\nmax_tokens_per_message = 0", "Expected `int` >= 1"),
        (WHO + SAYS + '[persona.defaults]\ntier = "huge"', "Invalid enum value 'huge'"),
        (WHO + SAYS + '[persona.defaults]\nskills = "all"', "Expected `array | null`"),
        (WHO + SAYS + "[other]\n", "It has 'other', which is not known; its keys are persona."),
        ("'a` - at `$.b' = 1\n" + WHO + SAYS, "no persona in TOML"),
        (WHO + WHO + SAYS, "Cannot declare"),
        ('[persona]\nid = "../x"\n' + SAYS, "small letters, digits, dots"),
        ('[persona]\nid = "create"\n' + SAYS, "has a meaning already"),
        (f'{WHO}name = "{"x" * 65}"\n{SAYS}', "Its name has 65 characters, and 64 are the most"),
        (WHO + 'name = "a\\nb"\n' + SAYS, "no single line"),
        (WHO + '[persona.texts]\nidentity = "a\\u0000"', "control characters"),
        (f'{WHO}[persona.texts]\nidentity = "{"x" * 4001}"', "4001 characters, and 4000"),
        (f"{WHO}{SAYS}[persona.defaults]\nskills = {['x'] * 65}", "64 skills"),
        ("#" * 70000, "It has 70000 bytes, and a persona has 65536 at most"),
    ],
)
def test_invalid_personas_are_refused_with_one_sentence(toml: str, why: str) -> None:
    with pytest.raises(PersonaError) as caught:
        imported(toml)
    assert why in str(caught.value)
    assert str(caught.value).endswith(".")


SIZE = 65_000


@pytest.mark.parametrize(
    "bomb",
    [
        "a=" + "[" * SIZE,
        "a=" + "{b=" * (SIZE // 3),
        ".".join(["a"] * (SIZE // 2)) + "=1",
        "[" + ".".join(["a"] * (SIZE // 2)) + "]",
        "x=1 #'\n" + ".".join(["a"] * (SIZE // 2)) + "=1",
        'x=\'"""\'\n' + ".".join(["a"] * (SIZE // 2)) + "=1",
        'x="""\n"""""\n' + ".".join(["a"] * (SIZE // 2)) + "=1",
        "x={" + ".".join(['"a"'] * (SIZE // 4)) + "=1}",
        "\n".join(".".join(["a"] * 16) + f".b{i}=1" for i in range(SIZE // 40)),
        '"""' * (SIZE // 3),
        'x="""' + '\\"""' * (SIZE // 4),
        "x='''" + "''x" * (SIZE // 3),
        "[[a]]\n" * (SIZE // 6),
        "x=" + "9" * SIZE,
    ],
)
def test_no_imported_text_takes_long(bomb: str) -> None:
    # Some of them would take tomllib half a minute.
    assert len(bomb) <= 65_536
    with pytest.raises(PersonaError):
        imported(bomb)


@pytest.mark.parametrize(
    "key", [".".join(["a"] * 40), '"a" . ' * 40 + "a", "x={" + "a." * 40 + "a=1}"]
)
def test_keys_with_many_parts_are_refused_before_parsing(key: str) -> None:
    with pytest.raises(PersonaError, match="more parts than any persona has"):
        imported(f"{key}=1")


@pytest.mark.parametrize(
    ("name", "found"),
    [("study-buddy", "study-buddy"), ("Study  Buddy", "study-buddy"), (" 2.x_Y ", "2.x_y")],
)
def test_an_id_is_derived_from_the_name(name: str, found: str) -> None:
    assert id_of(name) == found


@pytest.mark.parametrize(
    "name", ["", ".x", "a/b", "..", "bücher", "x" * 65, "a\0", "\u017f", "list"]
)
def test_a_name_without_a_valid_id_is_refused(name: str) -> None:
    with pytest.raises(PersonaError, match=r"cannot be its name"):
        id_of(name)


@pytest.mark.parametrize("kind", TEXTS)
def test_the_length_of_a_text_is_limited(kind: str) -> None:
    check_persona(PersonaText(id="x", **{kind: "y" * LONGEST_TEXT}))
    with pytest.raises(PersonaError, match=f"Its {kind} has 4001 characters"):
        check_persona(PersonaText(id="x", **{kind: "y" * (LONGEST_TEXT + 1)}))
