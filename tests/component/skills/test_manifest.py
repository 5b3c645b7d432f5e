"""Manifests are read strictly: errors say where, what is wrong, and how to correct it."""

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import protocol_schemas
from component.skills.manifest import (
    Manifest,
    ManifestError,
    _read_text,
    read_manifest,
    schema_text,
)
from component.skills.spec import SkillSchedule

WHOLE = """
[skill]
name = "weather.today"
version = "1.2.0"
title = "The weather"
description = "Says how the weather is."
author = "Juliet"
license = "Apache-2.0"
tags = ["weather"]
examples = ["How is the weather in Verona?"]
output_schema = "output.json"
output_media_types = ["text/plain"]
taint = "web"
typical_duration = 0.5
cost_usd = 0.01

[skill.input_schema]
type = "object"
properties.city = { type = "string" }

[skill.annotations]
read_only = true

[skill.capabilities]
network = ["https://api.example.com"]
filesystem_read = ["/srv/weather"]
filesystem_write = ["/srv/cache"]
credential = ["weather-key"]
llm = { model = "small", max_tokens = 200 }
memory_read = ["skill"]
memory_write = ["skill"]
xmpp = ["juliet@example.com"]
clock = true
random = true
shell = false

[skill.execution]
kind = "wasm"
entry = "lib/main.wasm"
timeout_s = 5
memory_bytes = 100_000_000
output_bytes = 10_000
attempts = 3
backoff_s = 2.5
queue = "weather"

[skill.schedule]
when = "0 7 * * *"
zone = "Europe/Rome"
params = { city = "Verona" }
principal = "juliet@example.com"
missed = "skip"
"""
SMALL = '[skill]\nname = "one"\nversion = "1"\n[skill.execution]\nkind = "python"\nentry = "m.py"\n'
EXAMPLES = Path(__file__).parents[3] / "examples" / "skills"


def test_a_whole_manifest() -> None:
    manifest = read_manifest(WHOLE)
    spec = manifest.spec({"input_schema": {"type": "object"}}, "test")
    assert (spec.name, spec.version, spec.title) == ("weather.today", "1.2.0", "The weather")
    assert spec.annotations.read_only
    assert not spec.annotations.destructive
    assert (spec.timeout, spec.attempts, spec.backoff_s, spec.queue) == (5, 3, 2.5, "weather")
    assert spec.taint == "web"
    assert "network:api.example.com:443:https" in spec.capabilities
    assert manifest.schema_files == ("output.json",)
    assert spec.schedule == SkillSchedule(
        when="0 7 * * *",
        zone="Europe/Rome",
        params={"city": "Verona"},
        principal="juliet@example.com",
        missed="skip",
    )


@pytest.mark.parametrize("name", ["clock", "random"])
@pytest.mark.parametrize("kind", ["python", "process"])
def test_what_no_process_can_be_denied_is_not_declared(kind: str, name: str) -> None:
    text = SMALL.replace('"python"', f'"{kind}"') + f"[skill.capabilities]\n{name} = true\n"
    with pytest.raises(ManifestError, match="a process can always"):
        read_manifest(text)


def test_what_the_manifest_says_counts() -> None:
    manifest = read_manifest(SMALL)
    said = {"input_schema": {}, "name": "other", "timeout": 999.0, "tags": ("a",), "title": "One"}
    spec = manifest.spec(said, "test")
    assert (spec.name, spec.timeout, spec.tags, spec.title) == ("one", 30.0, ("a",), "One")
    assert spec.annotations.destructive
    assert spec.taint == "web"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('name = "one"', 'nam = "one"', "skill has the key 'nam', which does not exist: did you"),
        ('name = "one"', 'id = "one"', "call it name"),
        ('name = "one"', "name = 1", "skill.name: Expected `str`, got `int`"),
        ('name = "one"', 'name = "o ne"', "no usable name"),
        ('version = "1"', "", "skill lacks the key 'version'"),
        ('kind = "python"', 'kind = "perl"', "skill.execution.kind: Invalid enum value 'perl'"),
        ('kind = "python"', 'kind = "wasm"', "'input_schema': add"),
        ('kind = "python"', 'kind = "python"\nfuel = 5', "for the kind 'wasm' only"),
        ('kind = "python"', 'kind = "python"\nmax_execution_time = 5', "call it timeout_s"),
        ('kind = "python"', 'kind = "python"\ntimeout_s = 0', "skill.execution.timeout_s: "),
        ('kind = "python"', 'kind = "python"\ntimeout_s = inf', "skill.execution.timeout_s: "),
        ('kind = "python"', 'kind = "python"\ntimeout_s = "5"', "got `str`"),
        ('kind = "python"', 'kind = "python"\nattempts = 2', "must not run twice"),
        ('entry = "m.py"', "", "name the file that runs"),
        *(
            ('entry = "m.py"', f"entry = '{path}'", "skill.execution.entry is ")
            for path in ("../m.py", "/etc/m.py", "a//m.py", "./m.py", ".m.py", "a\\m.py", "~/m.py")
        ),
        (
            "[skill.execution]",
            '[skill.capabilities]\nnetwork = ["https://a.example", "https://B.a"]\n[skill.execution]',
            "skill.capabilities.network[1]: 'https://B.a' has capitals: write",
        ),
        (
            "[skill.execution]",
            '[skill.capabilities]\nnetwork = "https://a.example"\n[skill.execution]',
            "skill.capabilities.network: Expected `array`",
        ),
        (
            "[skill.execution]",
            "[skill.capabilities]\nbrowser = true\n[skill.execution]",
            "remove it",
        ),
        ("[skill.execution]", '[skill.request]\nurl = "a"\n[skill.execution]', "'rest' only"),
        ("[skill.execution]", "[other]\n[skill.execution]", "the file has the key 'other'"),
        ('version = "1"', 'version = "1"\nversion = "2"', "is not TOML"),
        ('version = "1"', 'version = "1"\ndescription = "\\u0000"', "XML cannot carry"),
    ],
)
def test_each_mistake_in_a_manifest_is_named(old: str, new: str, expected: str) -> None:
    assert old in SMALL
    with pytest.raises(ManifestError) as error:
        read_manifest(SMALL.replace(old, new, 1))
    assert expected in str(error.value)
    assert str(error.value).startswith("skill.toml")


def test_texts_that_are_no_manifests() -> None:
    for text in (b"\xff", b"x" * 300_000, b"a = " + b"[" * 5000, b"", b"[skill]"):
        with pytest.raises(ManifestError):
            read_manifest(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    return found


@given(st.data())
def test_the_schema_and_the_reader_agree(data: st.DataObject) -> None:
    """What the reader accepts, the published schema accepts; an unknown key neither does."""
    said = copy.deepcopy(tomllib.loads(WHOLE))
    path = data.draw(st.sampled_from(places(said)[2:]))
    target = said
    for key in path[:-1]:
        target = target[key]
    action = data.draw(st.sampled_from(["replace", "remove", "add"]))
    if action == "remove":
        del target[path[-1]]
    elif action == "replace":
        target[path[-1]] = data.draw(VALUES)
    else:
        target["no_such_key"] = 1
    validator = jsonschema_rs.validator_for(json.loads(schema_text()))
    try:
        msgspec.convert(said, Manifest, dec_hook=_read_text)
    except (msgspec.ValidationError, ValueError):
        if action == "add" and path[-2:-1] in ((), ("skill",), ("capabilities",)):
            assert not validator.is_valid(said)
        return
    said = json.loads(json.dumps(said, default=str))
    assert validator.is_valid(said), [str(error) for error in validator.iter_errors(said)]


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_read_as_a_manifest_or_refused(text: str | bytes) -> None:
    try:
        read_manifest(text)
    except ManifestError as error:
        said = str(error)
        assert said


@given(st.text(max_size=30))
def test_any_value_of_a_capability_is_read_or_refused(value: str) -> None:
    text = json.dumps(value)
    manifest = SMALL + f"[skill.capabilities]\nnetwork = [{text}]\nfilesystem_read = [{text}]\n"
    try:
        read_manifest(manifest)
    except ManifestError as error:
        said = str(error)
        assert "skill.capabilities" in said or "TOML" in said


def test_the_published_schema_is_the_declaration() -> None:
    path = Path(protocol_schemas.__file__).with_name("skill.schema.json")
    assert path.read_text() == schema_text()  # python -m component.skills.manifest
    validator = jsonschema_rs.validator_for(json.loads(schema_text()))
    assert validator.is_valid(tomllib.loads(WHOLE))


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*/skill.toml")), ids=lambda one: one.parent.name
)
def test_the_shipped_manifests_are_valid(path: Path) -> None:
    read_manifest(path.read_bytes())


def test_a_manifest_has_a_question_for_people_and_says_how_a_call_is_undone() -> None:
    more = 'question = "May I go to {city}?"\nundo = "/back"\n[skill.execution]'
    manifest = read_manifest(SMALL.replace("[skill.execution]", more))
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    spec = manifest.spec({"input_schema": schema}, "test")
    assert (spec.question, spec.undo) == ("May I go to {city}?", "/back")
    assert not spec.annotations.destructive
    with pytest.raises(ManifestError, match="names 'city', which is not one of its parameters"):
        manifest.spec({"input_schema": {"type": "object", "properties": {}}}, "test")
