"""Time zones are asked of clients that tell them."""

from datetime import UTC, datetime, timedelta, timezone

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.kernel.contacts import TimeZones
from component.zones import duration, in_local_time
from xep.disco import Feature, InfoQuery
from xep.entity_time import NAMESPACE, Time
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example.org")
PHONE = JID.parse("alice@example.org/phone")
TELLS = InfoQuery(features=(Feature(var=NAMESPACE),))
EAST = timezone(timedelta(hours=2))
YEAR_1970 = datetime(1970, 1, 2)  # noqa: DTZ001 - hypothesis adds the zone
NOW = datetime(2026, 12, 1, 8, 15, tzinfo=UTC)


class Client:
    """A client that may answer."""

    def __init__(self, answer: Time | StanzaError | None) -> None:
        self.answer = answer
        self.asked = 0

    async def __call__(self, to: JID, from_: JID) -> Time:
        assert (to, from_) == (PHONE, AGENT)
        self.asked += 1
        if self.answer is None:
            await anyio.sleep_forever()
        if isinstance(self.answer, StanzaError):
            raise self.answer
        assert self.answer is not None
        return self.answer


async def test_the_zone_of_a_client_is_that_of_its_person() -> None:
    zones = TimeZones(Client(Time(tzo=EAST, utc=NOW)))
    assert zones.of(PHONE.bare) is None
    await zones.learn(PHONE, AGENT, TELLS)
    assert zones.of(PHONE.bare) == EAST


async def test_nobody_is_asked_who_does_not_tell() -> None:
    client = Client(Time(tzo=EAST, utc=NOW))
    zones = TimeZones(client)
    await zones.learn(PHONE, AGENT, InfoQuery())
    await zones.learn(PHONE.bare, AGENT, TELLS)
    assert client.asked == 0


@pytest.mark.parametrize("answer", [StanzaError("service-unavailable"), None])
async def test_without_an_answer_the_zone_is_not_known(answer: StanzaError | None) -> None:
    zones = TimeZones(Client(answer))
    await zones.learn(PHONE, AGENT, TELLS)
    assert zones.of(PHONE.bare) is None


async def test_it_is_forgotten_after_hours() -> None:
    now = 0.0
    zones = TimeZones(Client(Time(tzo=EAST, utc=NOW)), lambda: now)
    await zones.learn(PHONE, AGENT, TELLS)
    now = 6 * 3600.0
    assert zones.of(PHONE.bare) is None


@given(st.timedeltas(timedelta(days=-1), timedelta(days=400)))
def test_a_duration_is_never_longer_than_by_half_a_minute(time: timedelta) -> None:
    count, unit = duration(time).split()
    assert int(count) >= 0
    units = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
    said = int(count) * units[unit.removesuffix("s")]
    assert said <= max(0, time.total_seconds()) + 30
    assert unit.endswith("s") == (count != "1")


@given(
    st.datetimes(min_value=YEAR_1970, timezones=st.just(UTC)),
    st.integers(-14 * 60, 14 * 60),
)
def test_a_local_time_can_be_read_back(time: datetime, offset: int) -> None:
    zone, now = timezone(timedelta(minutes=offset)), time.replace(tzinfo=UTC, microsecond=0)
    said = in_local_time(now, now - timedelta(days=3), zone)
    date, clock, _ = said.split(" ", 2)
    assert datetime.fromisoformat(f"{date}T{clock}").replace(tzinfo=zone) == now
