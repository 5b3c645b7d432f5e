"""Who is restricted to which personas."""

from typing import Any

import pytest

from component.config import SettingsError
from tests.component.smallest_settings import SMALLEST


def test_who_is_restricted_to_which_personas_is_an_address_or_a_pattern(read: Any) -> None:
    entry = '[[personas.restrictions]]\njid = "{}"\nallowed = ["code-*"]\n'
    for written, meant in (
        ("Dev@Conference.example.com", "dev@conference.example.com"),
        ("*@Example.com", "*@example.com"),
        ("example.com", "example.com"),
    ):
        settings = read(SMALLEST + entry.format(written))
        assert settings.personas.restrictions[0].jid == meant
    for wrong in ("", "a@b/c", "a b@example.com", "@example.com"):
        with pytest.raises(SettingsError, match="address"):
            read(SMALLEST + entry.format(wrong))


def test_people_make_and_share_personas_only_where_that_is_wanted(read: Any) -> None:
    personas = read(SMALLEST).personas
    assert (personas.allow_user_personas, personas.allow_sharing) == (False, False)
    assert personas.max_user_personas == 5
    for wrong in ("0", "true", "1001", "-1"):
        with pytest.raises(SettingsError, match="max_user_personas"):
            read(f"{SMALLEST}[personas]\nmax_user_personas = {wrong}\n")
