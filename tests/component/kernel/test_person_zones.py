"""The time zone of a person is the one they chose, that of their client, or the default."""

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from component.kernel.contacts import PersonZones
from component.store.notifications import Preferences
from xep.jid import JID

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example.org")
PHONE = JID.parse("alice@example.org/phone")
EAST = timezone(timedelta(hours=9))


class Known:
    """What is known of Alice, and what her client tells when it is asked."""

    def __init__(
        self,
        preferences: Preferences = Preferences(),  # noqa: B008 - it is immutable
        tells: timezone | None = None,
        default: str = "UTC",
    ) -> None:
        self.preferences = preferences
        self.reported: timezone | None = None
        self.tells = tells
        self.asked = 0
        store: Any = SimpleNamespace(preferences=self.prefers)
        contacts: Any = SimpleNamespace(
            time_zones=SimpleNamespace(of=lambda _: self.reported), ask_time=self.ask
        )
        self.zones = PersonZones(
            store, default, contacts, lambda: datetime(2026, 11, 23, tzinfo=UTC)
        )

    async def prefers(self, person: JID) -> Preferences:
        assert person.bare == PHONE.bare
        return self.preferences

    async def ask(self, client: JID, at: JID) -> None:
        assert (client, at) == (PHONE, AGENT)
        self.asked += 1
        self.reported = self.tells


async def test_a_client_is_asked_when_its_offset_is_needed_and_not_known() -> None:
    known = Known(tells=EAST)
    assert await known.zones.of(PHONE.bare) == "UTC"
    assert await known.zones.of(PHONE, AGENT) == "UTC+09:00"
    assert await known.zones.of(PHONE, AGENT) == "UTC+09:00"
    assert known.asked == 1


async def test_the_zone_that_a_person_chose_comes_first() -> None:
    known = Known(Preferences(zone="Europe/Berlin", utc_offset=0), tells=EAST)
    assert await known.zones.of(PHONE, AGENT) == "Europe/Berlin"
    assert known.asked == 0


async def test_the_offset_of_an_earlier_run_is_used_until_the_client_reports_another() -> None:
    known = Known(Preferences(utc_offset=-12_600))
    assert await known.zones.of(PHONE.bare) == "UTC-03:30"
    known.reported = EAST
    assert await known.zones.of(PHONE.bare) == "UTC+09:00"


async def test_the_zone_of_the_settings_is_taken_where_the_offset_is_its_own() -> None:
    known = Known(Preferences(utc_offset=3600), default="Europe/Berlin")
    assert await known.zones.of(PHONE.bare) == "Europe/Berlin"
    known.reported = EAST
    assert await known.zones.of(PHONE.bare) == "UTC+09:00"
